//! Makes a table again from an earlier state of it and the effects since.

use super::contents::Table;
use super::counters::Counting;
use super::in_flight::{Flight, InFlight};
use super::removal::{RemovalCounts, RemovalReason};
use crate::effect::{Counters, Effect};
use crate::selector::{AnySelector, Selector};
use crate::slab::{Item, MAX_SLOTS};
use crate::{Error, ItemKey, ItemView, NewItem, Result, Trajectory};
use std::collections::HashMap;

/// Counts above this come from no table, and would overflow with those to come.
const MAX_COUNT: u64 = 1 << 62;

/// A table that nobody else has seen yet, and that repeats the effects of another one.
///
/// The result is the other table without its draws in flight, as after giving back all of them. Heaps keep the order of
/// items of one priority, except that those of the first state are in the order of their inserts. Counts that a
/// checkpoint does not have begin at 0.
#[derive(Debug)]
pub struct Replay {
    table: Table,
    /// Items whose keys others have. They come back if these leave first.
    hidden: HashMap<ItemKey, Vec<Hidden>>,
    /// The latest counts.
    counters: Option<Counters>,
    /// Whether effects came after the latest counts.
    wants_counters: bool,
    /// The last places of the first state in the sampler and in the remover.
    begin: (u64, u64),
    /// Whether an item came after one that was inserted later.
    is_out_of_order: bool,
}

#[derive(Debug)]
struct Hidden {
    inserted_at: u64,
    priority: f64,
    times_sampled: i32,
    trajectory: Trajectory,
    /// Its places in the sampler and in the remover. Those of the first state come first.
    places: (u64, u64),
    /// Whether it was in the table.
    has_places: bool,
}

impl Replay {
    /// Begins with the earlier state: an empty table, or a restored one.
    pub fn new(mut table: Table) -> Self {
        let begin = new_places(&mut table);
        Self { table, hidden: HashMap::new(), begin, counters: None, wants_counters: false, is_out_of_order: false }
    }

    /// The table so far.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Repeats an effect. Ignores [`Effect::Wrote`], which belongs to the ledger of a writer.
    ///
    /// # Errors
    /// [`Error::DataLoss`], [`Error::InvalidPriority`], [`Error::SignatureMismatch`] or [`Error::InvalidArgument`] if the
    /// effect cannot be one of the other table after the effects before it. The table is of no use then.
    pub fn apply(&mut self, effect: Effect) -> Result<()> {
        match effect {
            Effect::Wrote { .. } => return Ok(()),
            Effect::Counters(counters) => {
                self.counters = Some(check_counters(counters)?);
                self.wants_counters = false;
                return Ok(());
            }
            Effect::Put(item) => self.put(item)?,
            Effect::Gone { key, inserted_at, .. } => self.remove(Flight { key, inserted_at })?,
            Effect::Back { key, inserted_at } => self.show(Flight { key, inserted_at })?,
            Effect::Priorities(updates) => {
                updates.into_iter().try_for_each(|(key, priority)| self.set_priority(key, priority))?;
            }
            Effect::FlightPriority { key, inserted_at, priority } => {
                self.set_priority_in_place(Flight { key, inserted_at }, priority)?;
            }
            Effect::Count { key, inserted_at, times_sampled } => {
                self.count(Flight { key, inserted_at }, times_sampled)?
            }
            Effect::Reset => {
                drop(self.table.reset());
                self.hidden.clear();
            }
            // Items that no longer fit leave by effects of their own.
            Effect::Options(changes) => drop(self.table.configure(&changes)?),
        }
        self.wants_counters = true;
        Ok(())
    }

    /// Ends the replay, and returns the table.
    ///
    /// # Errors
    /// [`Error::DataLoss`] if the last effects were not followed by [`Effect::Counters`], or if the counts cannot be
    /// those of the table.
    pub fn finish(mut self) -> Result<Table> {
        if self.wants_counters {
            return Err(self.damaged("its last effects come without counts"));
        }
        if self.is_out_of_order {
            self.put_in_order();
        }
        if let Some(counters) = self.counters {
            self.set_counters(counters)?;
        }
        let mut table = self.table;
        // What has happened in the replay has happened before this table was made.
        table.removed = RemovalCounts::default();
        table.counting = Counting::default();
        table.in_flight = InFlight::new(table.config.max_times_sampled);
        table.tracks_draws = table.config.counts_samples();
        table.max_evictions = usize::MAX;
        table.last_restored_at = table.last_inserted_at;
        Ok(table)
    }

    fn damaged(&self, what: &str) -> Error {
        Error::DataLoss(format!("the log does not fit table `{}`: {what}", self.table.config.name))
    }

    fn unknown(&self, Flight { key, inserted_at }: Flight) -> Error {
        self.damaged(&format!("it has no item with key {key} that was inserted at {inserted_at}"))
    }

    fn put(&mut self, item: ItemView) -> Result<()> {
        let ItemView { key, priority, times_sampled, inserted_at, trajectory } = item;
        self.table.check_priority(priority)?;
        self.table.config.check_signature(&trajectory)?;
        check_times(times_sampled)?;
        if self.table.len() as u64 >= MAX_SLOTS - 1 {
            return Err(self.damaged("it would hold too many items"));
        }
        let visible = self.table.slab.find(key).map(|slot| (slot, self.table.slab.get(slot).inserted_at));
        let is_known = |hidden: &Vec<Hidden>| hidden.iter().any(|hidden| hidden.inserted_at == inserted_at);
        if visible.is_some_and(|(_, time)| time == inserted_at) || self.hidden.get(&key).is_some_and(is_known) {
            return Err(self.damaged(&format!("the item with key {key} comes twice")));
        }
        // The first counts end the first state, in which items whose keys others have come after all others.
        let is_of_first_state = self.counters.is_none() && visible.is_some();
        let places = is_of_first_state.then_some((0, 0));
        let mut item = Hidden { inserted_at, priority, times_sampled, trajectory, places: (0, 0), has_places: false };
        match visible {
            Some((_, time)) if time > inserted_at => {
                item.places = places.unwrap_or_else(|| new_places(&mut self.table));
                self.hidden.entry(key).or_default().push(item);
                return Ok(());
            }
            Some((slot, _)) => self.hide(slot),
            None => {}
        }
        self.is_out_of_order |= is_of_first_state || inserted_at <= self.table.last_inserted_at;
        self.table.last_inserted_at = self.table.last_inserted_at.max(inserted_at);
        self.add(key, item, places);
        Ok(())
    }

    /// Adds an item whose key the table does not have.
    fn add(&mut self, key: ItemKey, item: Hidden, places: Option<(u64, u64)>) {
        let Hidden { inserted_at, priority, times_sampled, trajectory, .. } = item;
        let new = NewItem { key, priority, takes_largest: false, others: None, times_sampled, trajectory };
        if let Some(slot) = self.table.put_again(new, inserted_at) {
            self.table.place(slot, places);
        }
    }

    /// Moves the item of a slot to those whose keys others have.
    fn hide(&mut self, slot: u32) {
        let places = (self.table.sampler.place(slot), self.table.remover.place(slot));
        let Item { key, inserted_at, priority, times_sampled, trajectory, .. } = self.take_out(slot);
        let hidden = Hidden { inserted_at, priority, times_sampled, trajectory, places, has_places: true };
        self.hidden.entry(key).or_default().push(hidden);
    }

    fn take_out(&mut self, slot: u32) -> Item {
        // Which reason does not matter: these counts end with the replay.
        self.table.take_out(slot, RemovalReason::MaxSize)
    }

    /// The slot of an item, if the table has it.
    fn find(&self, item: Flight) -> Option<u32> {
        let slot = self.table.slab.find(item.key)?;
        (self.table.slab.get(slot).inserted_at == item.inserted_at).then_some(slot)
    }

    fn find_hidden(&mut self, item: Flight) -> Result<&mut Hidden> {
        let error = self.unknown(item);
        let mut hidden = self.hidden.get_mut(&item.key).into_iter().flatten();
        hidden.find(|hidden| hidden.inserted_at == item.inserted_at).ok_or(error)
    }

    /// Takes an item from those whose keys others have.
    fn take_hidden(&mut self, item: Flight) -> Result<Hidden> {
        let error = self.unknown(item);
        let of_key = self.hidden.get_mut(&item.key).ok_or_else(|| error.clone())?;
        let index = of_key.iter().position(|hidden| hidden.inserted_at == item.inserted_at).ok_or(error)?;
        let taken = of_key.swap_remove(index);
        if of_key.is_empty() {
            self.hidden.remove(&item.key);
        }
        Ok(taken)
    }

    fn remove(&mut self, item: Flight) -> Result<()> {
        let Some(slot) = self.find(item) else { return self.take_hidden(item).map(drop) };
        self.take_out(slot);
        let newest = self.hidden.get(&item.key).and_then(|of_key| of_key.iter().map(|hidden| hidden.inserted_at).max());
        match newest {
            None => Ok(()),
            Some(inserted_at) => self.bring_back(Flight { inserted_at, ..item }),
        }
    }

    /// Adds one of the items whose keys others had.
    fn bring_back(&mut self, item: Flight) -> Result<()> {
        let hidden = self.take_hidden(item)?;
        let places = hidden.places;
        // One that was never in the table has no place in a queue.
        self.is_out_of_order |= !hidden.has_places;
        self.add(item.key, hidden, Some(places));
        Ok(())
    }

    /// Makes an item the one that the table has of those with its key.
    fn show(&mut self, item: Flight) -> Result<()> {
        if self.find(item).is_some() {
            return Ok(());
        }
        self.find_hidden(item)?;
        if let Some(slot) = self.table.slab.find(item.key) {
            self.hide(slot);
        }
        self.bring_back(item)
    }

    fn set_priority(&mut self, key: ItemKey, priority: f64) -> Result<()> {
        self.table.check_priority(priority)?;
        let slot = self.table.slab.find(key);
        let slot = slot.ok_or_else(|| self.damaged(&format!("it has no item with key {key}")))?;
        self.table.set_priority(slot, priority);
        Ok(())
    }

    fn set_priority_in_place(&mut self, item: Flight, priority: f64) -> Result<()> {
        self.table.check_priority(priority)?;
        let Some(slot) = self.find(item) else {
            self.find_hidden(item)?.priority = priority;
            return Ok(());
        };
        let Table { sampler, remover, slab, .. } = &mut self.table;
        slab.get_mut(slot).priority = priority;
        for selector in [sampler, remover] {
            let place = selector.place(slot);
            selector.remove(slot);
            selector.insert_at(slot, priority, place);
        }
        Ok(())
    }

    fn count(&mut self, item: Flight, times_sampled: i32) -> Result<()> {
        check_times(times_sampled)?;
        let Some(slot) = self.find(item) else {
            self.find_hidden(item)?.times_sampled = times_sampled;
            return Ok(());
        };
        let before = std::mem::replace(&mut self.table.slab.get_mut(slot).times_sampled, times_sampled);
        self.table.draws_of_items += i64::from(times_sampled) - i64::from(before);
        Ok(())
    }

    /// Puts the items into their order: first those that have not changed since the first state, in the order of their
    /// inserts.
    fn put_in_order(&mut self) {
        let Table { sampler, remover, slab, config, .. } = &mut self.table;
        let slots: Vec<_> =
            slab.items().filter_map(|item| Some((slab.find(item.key)?, item.inserted_at, item.priority))).collect();
        for (selector, kind, begin) in
            [(sampler, &config.sampler, self.begin.0), (remover, &config.remover, self.begin.1)]
        {
            let place = |slot| Some(selector.place(slot)).filter(|&place| selector.is_heap() && place > begin);
            let mut slots = slots.clone();
            slots.sort_by_key(|&(slot, inserted_at, _)| (place(slot), inserted_at));
            *selector = AnySelector::new(kind);
            slots.iter().for_each(|&(slot, _, priority)| selector.insert(slot, priority));
        }
    }

    fn set_counters(&mut self, counters: Counters) -> Result<()> {
        let table = &mut self.table;
        let deleted_episodes = counters.num_episodes.checked_sub(table.usage.num_episodes());
        let Some(deleted_episodes) = deleted_episodes else {
            return Err(self.damaged("its items have more episodes than were counted"));
        };
        let deletes = counters.deletes_and_items - table.len() as i64;
        let Counters { inserts, samples, num_unique_samples, largest_priority, .. } = counters;
        table.restore_counters(inserts, samples, deletes, deleted_episodes, num_unique_samples);
        table.largest_priority = largest_priority;
        // Updates of items that draws in flight have taken count once these are given back.
        let priorities: Vec<_> = table.slab.items().map(|item| item.priority).collect();
        priorities.into_iter().for_each(|priority| table.note_priority(priority));
        Ok(())
    }
}

fn new_places(table: &mut Table) -> (u64, u64) {
    (table.sampler.new_place(), table.remover.new_place())
}

fn check_times(times_sampled: i32) -> Result<()> {
    if times_sampled < 0 {
        return Err(Error::DataLoss(format!("times_sampled must not be negative, got {times_sampled}")));
    }
    Ok(())
}

fn check_counters(counters: Counters) -> Result<Counters> {
    let Counters { inserts, samples, deletes_and_items, num_episodes, num_unique_samples, largest_priority } = counters;
    let are_small = [inserts, samples, deletes_and_items].iter().all(|count| count.unsigned_abs() < MAX_COUNT)
        && [num_episodes, num_unique_samples].iter().all(|count| *count < MAX_COUNT);
    if are_small && largest_priority.is_finite() && largest_priority >= 0.0 {
        return Ok(counters);
    }
    Err(Error::DataLoss(format!("counts of a table cannot be {counters:?}")))
}
