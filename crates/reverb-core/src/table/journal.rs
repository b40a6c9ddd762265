//! What a table notes of its changes, if it is journaled: effects, for a log from which it can be made again.
//!
//! Effects describe the table as a checkpoint saves it: with the items that draws in flight have taken, and without these
//! draws. An item is *kept* if it is in the table, or returns to it if all draws in flight are given back. Of several kept
//! items with one key, one counts as the item of the table: the one that is in it, or else the newest. The others are
//! lost if the draws are given back now, so their draws stand.
//!
//! Without a journal, each change costs one branch.

use super::contents::Table;
use super::in_flight::{Flight, FlownView, Gone};
use super::noted::Noted;
use super::removal::RemovalReason;
use super::snapshot::TableSnapshot;
use crate::effect::{Confirmation, Counters, Effect};
use crate::item::FlightNumber;
use crate::{ItemKey, ItemView, NewItem, TableChanges, Trajectory};
use hashbrown::HashSet;

impl Table {
    /// Notes the effects of all changes from now on. The caller drains them by [`Table::drain_effects`].
    pub fn begin_journal(&mut self) {
        while self.in_flight.remove_delivered(usize::MAX, &mut Vec::new()) {}
        self.in_flight.track_items();
        let (mut unreceived, mut contested) = (Vec::new(), HashSet::new());
        for FlownView { item, gone, .. } in self.in_flight.flown() {
            if self.is_unreceived(item) {
                unreceived.push(item);
            }
            if gone.is_some() && (self.slab.find(item.key).is_some() || self.in_flight.gone_of(item.key).len() > 1) {
                contested.insert(item.key);
            }
        }
        unreceived.into_iter().for_each(|item| self.in_flight.mark_unreceived(item));
        self.noted = Some(Box::new(Noted { contested, ..Noted::default() }));
        let counters = self.counters();
        self.noted.iter_mut().for_each(|noted| noted.counters = counters);
    }

    /// Whether the table notes its effects.
    #[inline]
    pub fn is_journaled(&self) -> bool {
        self.noted.is_some()
    }

    /// Notes an effect that a caller has had beside the table, if the table is journaled.
    pub fn note(&mut self, effect: Effect) {
        if let Some(noted) = &mut self.noted {
            noted.push(effect);
        }
    }

    /// Moves all effects that were noted so far to the end of `effects`, in their order.
    pub fn drain_effects(&mut self, effects: &mut Vec<Effect>) {
        let Some(noted) = &mut self.noted else { return };
        let in_flight = &self.in_flight;
        noted.contested.retain(|key| !in_flight.gone_of(*key).is_empty());
        let counters = self.counters();
        if let Some(noted) = &mut self.noted
            && (!noted.effects.is_empty() || noted.counters != counters)
        {
            noted.counters = counters;
            effects.append(&mut noted.effects);
            effects.push(Effect::Counters(counters));
        }
    }

    /// Lets the next [`Table::take_confirmation`] ask for so much at least, if the table is journaled.
    #[inline]
    pub fn confirm(&mut self, confirmation: Confirmation) {
        if let Some(noted) = &mut self.noted {
            noted.confirmation = noted.confirmation.max(confirmation);
        }
    }

    /// How safe the effects must be that were noted since the last call. Callers ask before they unlock the table, so
    /// that these are their own.
    #[inline]
    pub fn take_confirmation(&mut self) -> Confirmation {
        self.noted.as_mut().map_or(Confirmation::Nothing, |noted| std::mem::take(&mut noted.confirmation))
    }

    /// The state from which later effects go on, after all earlier ones were drained: a snapshot without the draws in
    /// flight, and effects that add what such a snapshot does not have, the items whose keys others have taken while
    /// their draws were in flight.
    pub fn snapshot_for_effects(&self) -> (TableSnapshot, Vec<Effect>) {
        let mut effects = Vec::new();
        for key in self.noted.iter().flat_map(|noted| &noted.contested) {
            for flown in self.hidden(*key).into_iter().filter(FlownView::is_kept) {
                let (Some(gone), Some(times_sampled)) = (flown.gone, flown.times_sampled()) else { continue };
                effects.push(Effect::Put(ItemView { times_sampled, ..gone.view(flown.item) }));
            }
            if let Some(Flight { key, inserted_at }) = self.shown(*key) {
                effects.push(Effect::Back { key, inserted_at });
            }
        }
        effects.push(Effect::Counters(self.counters()));
        (self.snapshot_without_flights(), effects)
    }

    /// The item of the table with this key, if the draws in flight are given back now.
    fn shown(&self, key: ItemKey) -> Option<Flight> {
        let inside = self.slab.find(key).map(|slot| Flight::at(self.slab.get(slot)));
        inside.or_else(|| self.in_flight.gone_of(key).iter().find(|flown| flown.is_kept()).map(|flown| flown.item))
    }

    /// The items with this key that draws in flight have taken, and that are lost if these are given back now. Also those
    /// that are not kept anyway, if they are older than one that is.
    fn hidden(&self, key: ItemKey) -> Vec<FlownView<'_>> {
        let mut gone = self.in_flight.gone_of(key);
        gone.retain(|flown| flown.draws > 0);
        if self.slab.find(key).is_none() {
            // The newest that is kept is the item of the table.
            let seen = gone.iter().position(FlownView::is_kept);
            gone.drain(..seen.map_or(gone.len(), |seen| seen + 1));
        }
        gone
    }

    fn counters(&self) -> Counters {
        let contested = self.noted.iter().flat_map(|noted| &noted.contested);
        let (mut standing, mut standing_items) = (0, 0);
        for flown in contested.flat_map(|key| self.hidden(*key)) {
            standing += i64::from(flown.draws);
            standing_items += u64::from(flown.is_unreceived);
        }
        Counters {
            inserts: self.limiter.inserts,
            samples: self.limiter.samples - self.in_flight.len() as i64 + standing,
            deletes_and_items: self.limiter.deletes + self.slab.len() as i64,
            num_episodes: self.usage.num_deleted_episodes() + self.usage.num_episodes(),
            num_unique_samples: self.num_unique_samples + standing_items - self.in_flight.num_unreceived(),
            largest_priority: self.largest_priority,
        }
    }

    /// The number of received draws of an item, if it is kept.
    fn kept_times(&self, item: Flight) -> Option<i32> {
        let inside = self.slab.find(item.key).map(|slot| self.slab.get(slot));
        let inside = inside.filter(|inside| inside.inserted_at == item.inserted_at);
        let flown = self.in_flight.find(item);
        match inside {
            Some(inside) => Some((inside.times_sampled - flown.map_or(0, |flown| flown.draws)).max(0)),
            None => flown.filter(FlownView::is_kept)?.times_sampled(),
        }
    }

    /// Whether no draw of an item was received, which is kept or has draws in flight.
    fn is_unreceived(&self, item: Flight) -> bool {
        let times = self.kept_times(item).or_else(|| self.in_flight.find(item)?.times_sampled());
        times == Some(0)
    }

    /// Notes that an item enters a slot of the table, and whether it replaces the one there.
    #[cold]
    pub(super) fn note_insert(&mut self, item: &NewItem, inserted_at: u64, slot: u32, replaces: bool) {
        let &NewItem { key, priority, times_sampled, ref trajectory, .. } = item;
        let trajectory = trajectory.clone();
        self.note(Effect::Put(ItemView { key, priority, times_sampled, inserted_at, trajectory }));
        if let Some(noted) = &mut self.noted
            && !self.in_flight.gone_of(key).is_empty()
        {
            noted.contested.insert(key);
        }
        if replaces {
            self.note_gone(Flight::at(self.slab.get(slot)), RemovalReason::MaxSize);
        }
    }

    /// Notes that an item leaves the table for good.
    #[cold]
    pub(super) fn note_gone(&mut self, item: Flight, reason: RemovalReason) {
        let Flight { key, inserted_at } = item;
        self.note(Effect::Gone { key, inserted_at, reason });
        self.in_flight.unmark_unreceived(item);
    }

    /// Notes the insert of an item that is there. It is sent again, so it was not confirmed, and may not be synced yet.
    #[cold]
    pub(super) fn note_sent_again(&mut self, item: &NewItem) {
        self.note_priorities(vec![(item.key, item.priority)]);
        self.confirm(Confirmation::Synced);
    }

    /// Notes that items of the table have new priorities.
    #[cold]
    pub(super) fn note_priorities(&mut self, updates: Vec<(ItemKey, f64)>) {
        if !updates.is_empty() {
            self.note(Effect::Priorities(updates));
        }
    }

    /// Notes that all items leave.
    #[cold]
    pub(super) fn note_reset(&mut self) {
        self.note(Effect::Reset);
        if let Some(noted) = &mut self.noted {
            noted.contested.clear();
            noted.are_draws_new = false;
        }
    }

    /// Notes draws that are tracked.
    #[cold]
    pub(super) fn note_flights(&mut self, items: impl Iterator<Item = Flight>) {
        for item in items {
            if self.is_unreceived(item) {
                self.in_flight.mark_unreceived(item);
            }
        }
    }

    /// Notes that a draw has taken an item, which is in flight now.
    #[cold]
    pub(super) fn note_taken(&mut self, item: Flight) {
        let Some(noted) = &self.noted else { return };
        let shown = noted.contested.contains(&item.key).then(|| self.shown(item.key)).flatten();
        let counted = noted.are_draws_new.then(|| self.kept_times(item)).flatten();
        let Flight { key, inserted_at } = item;
        if let Some(times_sampled) = counted {
            self.note(Effect::Count { key, inserted_at, times_sampled });
        }
        if let Some(Flight { key, inserted_at }) = shown.filter(|shown| *shown != item) {
            self.note(Effect::Back { key, inserted_at });
        }
    }

    /// Whether an item was kept before one of its draws was undone, which has not ended yet.
    pub(super) fn was_kept_before(&self, item: Flight, gone: &Gone) -> bool {
        let draws = self.in_flight.find(item).map_or(0, |flown| flown.draws);
        gone.is_kept(draws - 1)
    }

    /// Notes that an item is back in the table. It was kept before, or was not.
    #[cold]
    pub(super) fn note_back(&mut self, item: Flight, was_kept: bool) {
        let Flight { key, inserted_at } = item;
        if !was_kept {
            self.note_put_again(item);
        }
        self.note(Effect::Back { key, inserted_at });
    }

    /// Notes that an item has left which was drawn often enough. It may come back.
    #[cold]
    pub(super) fn note_drawn_item(&mut self, item: Flight) {
        if self.kept_times(item).is_some() {
            self.note_taken(item);
        } else {
            self.note_gone(item, RemovalReason::MaxTimesSampled);
        }
    }

    /// Notes that an item is kept again.
    fn note_put_again(&mut self, item: Flight) {
        let Some(times_sampled) = self.kept_times(item) else { return };
        let inside = self.slab.find(item.key).map(|slot| self.slab.get(slot));
        let inside = inside.filter(|inside| inside.inserted_at == item.inserted_at).map(ItemView::from);
        let gone = || Some(self.in_flight.find(item)?.gone?.view(item));
        if let Some(view) = inside.or_else(gone) {
            self.note(Effect::Put(ItemView { times_sampled, ..view }));
        }
    }

    /// Ends a draw that stands, because it has reached its caller or cannot be undone.
    #[inline]
    pub(super) fn end_draw(&mut self, item: Flight, number: FlightNumber, removed: &mut Vec<Trajectory>) {
        if self.noted.is_some() {
            self.end_noted_draw(item, number, removed);
        } else {
            self.in_flight.remove(number, removed);
        }
    }

    #[cold]
    fn end_noted_draw(&mut self, item: Flight, number: FlightNumber, removed: &mut Vec<Trajectory>) {
        if number == FlightNumber::NONE {
            return;
        }
        let before = self.kept_times(item);
        self.in_flight.unmark_unreceived(item);
        self.in_flight.remove(number, removed);
        self.note_kept(item, before, RemovalReason::MaxTimesSampled);
    }

    /// Undoes a draw and ends it, or ends it if it stands. Returns whether it was undone.
    #[inline]
    pub(super) fn end_undelivered(
        &mut self,
        item: Flight,
        number: FlightNumber,
        removed: &mut Vec<Trajectory>,
    ) -> bool {
        if self.noted.is_some() {
            return self.end_noted_undelivered(item, number, removed);
        }
        let undone = self.undo(item, number, removed);
        self.in_flight.remove(number, removed);
        undone
    }

    #[cold]
    fn end_noted_undelivered(&mut self, item: Flight, number: FlightNumber, removed: &mut Vec<Trajectory>) -> bool {
        let before = self.kept_times(item);
        if !self.undo(item, number, removed) {
            self.end_draw(item, number, removed);
            return false;
        }
        self.in_flight.remove(number, removed);
        // A tracked draw was not counted. One that is not tracked was counted when it was made.
        if number != FlightNumber::NONE {
            return true;
        }
        if self.kept_times(item).is_some() {
            match before {
                Some(before) => self.note_kept(item, Some(before), RemovalReason::MaxTimesSampled),
                None if self.in_flight.find(item).is_some_and(|flown| flown.gone.is_some()) => {
                    self.note_put_again(item);
                }
                None => {}
            }
        }
        if self.is_unreceived(item) {
            self.in_flight.mark_unreceived(item);
        }
        true
    }

    /// Notes what has become of an item that was kept before, with so many draws.
    fn note_kept(&mut self, item: Flight, before: Option<i32>, reason: RemovalReason) {
        let Flight { key, inserted_at } = item;
        match (before, self.kept_times(item)) {
            (Some(_), None) => self.note_gone(item, reason),
            (Some(before), Some(times_sampled)) if before != times_sampled && self.config.max_times_sampled > 0 => {
                self.note(Effect::Count { key, inserted_at, times_sampled });
            }
            _ => {}
        }
    }

    /// Deletes the items with this key that draws in flight have taken.
    #[inline(never)]
    pub(super) fn delete_in_flight(&mut self, key: ItemKey) {
        let Self { noted, in_flight, .. } = self;
        in_flight.change_gone(key, |item, draws, gone| {
            if let Some(noted) = noted
                && gone.is_kept(draws)
            {
                let Flight { key, inserted_at } = item;
                noted.push(Effect::Gone { key, inserted_at, reason: RemovalReason::Delete });
            }
            gone.is_deleted = true;
        });
    }

    /// Sets the priority of the items with this key that draws in flight have taken.
    #[inline(never)]
    pub(super) fn update_in_flight(&mut self, key: ItemKey, priority: f64) {
        let Self { noted, in_flight, .. } = self;
        in_flight.change_gone(key, |item, draws, gone| {
            if let Some(noted) = noted
                && gone.is_kept(draws)
            {
                let Flight { key, inserted_at } = item;
                noted.push(Effect::FlightPriority { key, inserted_at, priority });
            }
            gone.priority = priority;
        });
    }

    /// Lowers the number of draws below which items return that draws in flight have taken.
    pub(super) fn lower_returns(&mut self, limit: i32) {
        let Self { noted, in_flight, .. } = self;
        in_flight.change_all_gone(|item, draws, gone| {
            let was_kept = gone.is_kept(draws);
            gone.returns_below = gone.returns_below.min(limit);
            if let Some(noted) = noted
                && was_kept
                && !gone.is_kept(draws)
            {
                let Flight { key, inserted_at } = item;
                noted.push(Effect::Gone { key, inserted_at, reason: RemovalReason::MaxTimesSampled });
            }
        });
    }

    /// Notes that options have changed. `is_limited_now` is whether draws of an item are limited from now on and were not
    /// before.
    pub(super) fn note_options(&mut self, changes: &TableChanges, is_limited_now: bool) {
        let Some(noted) = &mut self.noted else { return };
        noted.push(Effect::Options(Box::new(changes.clone())));
        noted.are_draws_new |= is_limited_now;
        if is_limited_now {
            let flown: Vec<_> =
                self.in_flight.flown().filter(|flown| flown.is_kept()).map(|flown| flown.item).collect();
            flown.into_iter().for_each(|item| self.note_times(item));
        }
    }

    /// Notes how often an item that is kept was drawn.
    pub(super) fn note_times(&mut self, Flight { key, inserted_at }: Flight) {
        if let Some(times_sampled) = self.kept_times(Flight { key, inserted_at }) {
            self.note(Effect::Count { key, inserted_at, times_sampled });
        }
    }

    /// Whether a search for items that were drawn often enough also has to note the draws of the others.
    pub(super) fn are_draws_new(&self) -> bool {
        self.noted.as_ref().is_some_and(|noted| noted.are_draws_new)
    }

    /// Notes that the draws of all items were noted.
    pub(super) fn end_new_draws(&mut self) {
        if let Some(noted) = &mut self.noted {
            noted.are_draws_new = false;
        }
    }
}
