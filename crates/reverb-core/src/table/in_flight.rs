//! Draws in flight: made, but neither delivered to their callers nor given back.
//!
//! A table tracks them if its draws affect later ones, so that a checkpoint can hold the items as if they had not been
//! drawn. Other tables track nothing.
//!
//! An item that was drawn often enough leaves its table with some of its draws in flight. It is kept here until all of
//! them have ended, because it returns if fewer draws are left than it may have, whichever of them is given back. The
//! item of a queue has one draw, which keeps it. Where items may have several, or where a caller has changed one that
//! has left, items are found by their keys: this makes the draws of a queue slower by a fifth.

use crate::item::FlightNumber;
use crate::slab::Item;
use crate::{Drawn, ItemKey, ItemView, Trajectory};
use foldhash::fast::RandomState;
use hashbrown::{HashSet, HashTable, hash_table};
use std::cmp::Reverse;
use std::hash::BuildHasher;

/// The item of a draw. The time of the insert tells it from another item with the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Flight {
    pub key: ItemKey,
    pub inserted_at: u64,
}

/// An item that has left the table because it was drawn often enough.
#[derive(Debug)]
pub(super) struct Gone {
    pub priority: f64,
    pub times_sampled: i32,
    pub trajectory: Trajectory,
    /// Its places in the sampler and in the remover.
    pub places: (u64, u64),
    /// It returns with fewer draws than this.
    pub returns_below: i32,
    /// Whether a caller has deleted it meanwhile.
    pub is_deleted: bool,
}

/// An item with draws in flight.
#[derive(Debug)]
struct FlownItem {
    item: Flight,
    draws: u32,
    gone: Option<Gone>,
    /// Whether the item was drawn for the first time and none of its draws was received: in a journaled table.
    is_unreceived: bool,
}

/// An item with draws in flight, for reading.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlownView<'a> {
    pub item: Flight,
    pub draws: i32,
    /// The item itself, if it has left the table because it was drawn often enough.
    pub gone: Option<&'a Gone>,
    pub is_unreceived: bool,
}

impl FlownView<'_> {
    /// See [`Gone::is_kept`].
    pub fn is_kept(&self) -> bool {
        self.gone.is_some_and(|gone| gone.is_kept(self.draws))
    }

    /// The number of received draws, if the item has left.
    pub fn times_sampled(&self) -> Option<i32> {
        Some(self.gone?.times_sampled - self.draws)
    }
}

/// A draw in flight.
#[derive(Debug)]
struct Draw {
    item: Flight,
    /// The item, if this was its only draw and items are not found by their keys.
    gone: Option<Gone>,
}

/// The draws of a table in flight.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    flights: Vec<Option<Draw>>,
    free: Vec<u32>,
    /// Draws that are delivered, but still have to be removed from `flights`.
    delivered: Vec<Vec<FlightNumber>>,
    /// The items of all flights by their keys. `None` as long as each item that has left had one draw, which keeps it.
    items: Option<FlownItems>,
    /// Whether draws may keep items.
    may_keep: bool,
    /// Number of draws in flight from before the table began to track draws.
    untracked: u64,
    /// Items that may be kept for these draws alone, some of them more than once.
    kept_for_untracked: Vec<Flight>,
}

#[derive(Debug, Default)]
struct FlownItems {
    table: HashTable<FlownItem>,
    hasher: RandomState,
    num_unreceived: u64,
}

/// The draws of a large batch that have reached their caller together.
#[derive(Debug)]
pub struct Delivery {
    pub(super) epoch: u64,
    numbers: Vec<FlightNumber>,
}

impl Delivery {
    /// Takes the numbers of the draws. This is O(n), so the caller does it without the lock that guards the table.
    pub fn of(drawn: &[Drawn]) -> Self {
        // Draws from before a reset come first, and are not tracked any more.
        let epoch = drawn.last().map_or(u64::MAX, |last| last.epoch);
        let numbers = drawn.iter().filter(|draw| draw.epoch == epoch).map(|draw| draw.in_flight).collect();
        Self { epoch, numbers }
    }
}

impl Flight {
    #[inline]
    pub fn of(drawn: &Drawn) -> Self {
        Self { key: drawn.key, inserted_at: drawn.inserted_at }
    }

    #[inline]
    pub fn at(item: &Item) -> Self {
        Self { key: item.key, inserted_at: item.inserted_at }
    }
}

impl Gone {
    /// Whether the item returns to the table if all its draws in flight are given back, so many of them.
    pub fn is_kept(&self, draws: i32) -> bool {
        !self.is_deleted && self.times_sampled - draws < self.returns_below
    }

    /// The item as it was when it left.
    pub fn view(&self, item: Flight) -> ItemView {
        let Flight { key, inserted_at } = item;
        let Self { priority, times_sampled, ref trajectory, .. } = *self;
        ItemView { key, priority, times_sampled, inserted_at, trajectory: trajectory.clone() }
    }
}

impl FlownItem {
    fn view(&self) -> FlownView<'_> {
        let &Self { item, draws, ref gone, is_unreceived } = self;
        FlownView { item, draws: draws as i32, gone: gone.as_ref(), is_unreceived }
    }

    fn change_gone(&mut self, change: &mut impl FnMut(Flight, i32, &mut Gone)) {
        let Self { item, draws, .. } = *self;
        self.gone.iter_mut().for_each(|gone| change(item, draws as i32, gone));
    }

    fn release(self, removed: &mut Vec<Trajectory>) {
        removed.extend(self.gone.map(|gone| gone.trajectory));
    }
}

impl FlownItems {
    fn hash(&self, key: ItemKey) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Adds some draws of an item. `gone` is the item if it has left the table.
    #[inline]
    fn add(&mut self, item: Flight, draws: u32, gone: Option<Gone>) {
        let hash = self.hash(item.key);
        let Self { table, hasher, .. } = self;
        match table.entry(hash, |other| other.item == item, |other| hasher.hash_one(other.item.key)) {
            hash_table::Entry::Occupied(entry) => {
                let flown = entry.into_mut();
                flown.draws += draws;
                flown.gone = gone;
            }
            hash_table::Entry::Vacant(entry) => {
                entry.insert(FlownItem { item, draws, gone, is_unreceived: false });
            }
        }
    }

    fn gone(&self, item: Flight) -> Option<&Gone> {
        self.table.find(self.hash(item.key), |flown| flown.item == item)?.gone.as_ref()
    }

    fn find_mut(&mut self, item: Flight) -> Option<&mut FlownItem> {
        self.table.find_mut(self.hash(item.key), |flown| flown.item == item)
    }

    /// Ends a draw of an item. Without draws the item is forgotten, unless it is gone and has draws that are not tracked.
    /// Returns whether it is kept for these.
    #[inline]
    fn end(&mut self, item: Flight, has_untracked: bool, removed: &mut Vec<Trajectory>) -> bool {
        let hash = self.hash(item.key);
        let Ok(mut entry) = self.table.find_entry(hash, |flown| flown.item == item) else { return false };
        let flown = entry.get_mut();
        flown.draws = flown.draws.saturating_sub(1);
        if flown.draws > 0 {
            return false;
        }
        self.num_unreceived -= u64::from(std::mem::take(&mut flown.is_unreceived));
        let is_kept = flown.gone.is_some() && has_untracked;
        if !is_kept {
            entry.remove().0.release(removed);
        }
        is_kept
    }

    /// Forgets an item unless it has draws.
    fn forget(&mut self, item: Flight, removed: &mut Vec<Trajectory>) {
        let hash = self.hash(item.key);
        if let Ok(entry) = self.table.find_entry(hash, |flown| flown.item == item && flown.draws == 0) {
            entry.remove().0.release(removed);
        }
    }
}

impl InFlight {
    /// Creates an empty set of flights of a table that limits the draws of an item to this number.
    pub fn new(max_times_sampled: i32) -> Self {
        Self { items: (max_times_sampled > 1).then(FlownItems::default), ..Self::default() }
    }

    /// Empties the set, and returns what it held.
    pub fn take(&mut self) -> Self {
        let items = self.items.is_some().then(FlownItems::default);
        std::mem::replace(self, Self { items, ..Self::default() })
    }

    /// Finds the items of all flights by their keys from now on.
    pub fn track_items(&mut self) {
        if self.items.is_none() {
            let mut items = FlownItems::default();
            self.flights.iter_mut().flatten().for_each(|draw| items.add(draw.item, 1, draw.gone.take()));
            self.items = Some(items);
        }
    }

    /// Tracks a draw of an item. `gone` is the item if the draw has removed it.
    #[inline]
    pub fn add(&mut self, item: Flight, mut gone: Option<Gone>) -> FlightNumber {
        if gone.as_ref().is_some_and(|gone| gone.times_sampled > 1) {
            self.track_items();
        }
        if let Some(items) = &mut self.items {
            items.add(item, 1, gone.take());
        }
        self.may_keep |= gone.is_some();
        let draw = Some(Draw { item, gone });
        if let Some(number) = self.free.pop() {
            self.flights[number as usize] = draw;
            return FlightNumber::new(number);
        }
        self.flights.push(draw);
        FlightNumber::new(self.flights.len() as u32 - 1)
    }

    /// Ends the tracking of a draw. The caller has checked that the number is of the current epoch. The data of an item
    /// that no draw keeps any more goes to `removed`, except that of an item which the draw alone has kept: the caller
    /// has the same data with the draw.
    #[inline(always)]
    pub fn remove(&mut self, number: FlightNumber, removed: &mut Vec<Trajectory>) {
        let Some(number) = number.get() else { return };
        let Some(draw) = self.flights.get_mut(number as usize).and_then(Option::take) else { return };
        if let Some(items) = &mut self.items
            && items.end(draw.item, self.untracked > 0, removed)
        {
            self.kept_for_untracked.push(draw.item);
        }
        self.free.push(number);
        if self.free.len() == self.flights.len() {
            self.flights.clear();
            self.free.clear();
            self.may_keep = false;
        }
    }

    /// Whether draws of this item may be in flight.
    pub fn has_draws_of(&self, item: Flight) -> bool {
        let Some(items) = &self.items else { return false };
        self.untracked > 0 || items.table.find(items.hash(item.key), |flown| flown.item == item).is_some()
    }

    /// Keeps an item that has left the table and of which draws are in flight.
    pub fn set_gone(&mut self, item: Flight, gone: Gone) {
        let Some(items) = &mut self.items else { return };
        items.add(item, 0, Some(gone));
        if self.untracked > 0 {
            self.kept_for_untracked.push(item);
        }
    }

    /// The item of a draw, if the item has left the table because it was drawn often enough.
    #[inline]
    pub fn gone_mut(&mut self, item: Flight, number: FlightNumber) -> Option<&mut Option<Gone>> {
        let gone = match &mut self.items {
            Some(items) => &mut items.find_mut(item)?.gone,
            None => &mut self.flights.get_mut(number.get()? as usize)?.as_mut()?.gone,
        };
        gone.is_some().then_some(gone)
    }

    /// Changes the items with this key that have left the table because they were drawn often enough. `change` is told
    /// the number of their draws in flight.
    pub fn change_gone(&mut self, key: ItemKey, mut change: impl FnMut(Flight, i32, &mut Gone)) {
        if self.may_keep {
            self.track_items();
        }
        let Some(items) = &mut self.items else { return };
        if !items.table.is_empty() {
            let of_key = items.table.iter_hash_mut(items.hasher.hash_one(key)).filter(|flown| flown.item.key == key);
            of_key.for_each(|flown| flown.change_gone(&mut change));
        }
    }

    /// As [`InFlight::change_gone`], for all keys.
    pub fn change_all_gone(&mut self, mut change: impl FnMut(Flight, i32, &mut Gone)) {
        let flown = self.items.iter_mut().flat_map(|items| items.table.iter_mut());
        flown.for_each(|flown| flown.change_gone(&mut change));
    }

    /// The items with draws in flight, if they are found by their keys.
    pub fn flown(&self) -> impl Iterator<Item = FlownView<'_>> {
        self.items.iter().flat_map(|items| items.table.iter()).map(FlownItem::view)
    }

    /// An item with draws in flight, if items are found by their keys.
    pub fn find(&self, item: Flight) -> Option<FlownView<'_>> {
        let items = self.items.as_ref().filter(|items| !items.table.is_empty())?;
        items.table.find(items.hash(item.key), |flown| flown.item == item).map(FlownItem::view)
    }

    /// The items with this key that have left the table because they were drawn often enough, the newest first.
    pub fn gone_of(&self, key: ItemKey) -> Vec<FlownView<'_>> {
        let Some(items) = self.items.as_ref().filter(|items| !items.table.is_empty()) else { return Vec::new() };
        let of_key = items.table.iter_hash(items.hash(key)).filter(|flown| flown.item.key == key);
        let mut gone: Vec<_> = of_key.map(FlownItem::view).filter(|flown| flown.gone.is_some()).collect();
        gone.sort_unstable_by_key(|flown| Reverse(flown.item.inserted_at));
        gone
    }

    /// Number of items that were drawn for the first time and of whose draws none was received.
    pub fn num_unreceived(&self) -> u64 {
        self.items.as_ref().map_or(0, |items| items.num_unreceived)
    }

    /// Counts an item in [`InFlight::num_unreceived`], if it has draws in flight.
    pub fn mark_unreceived(&mut self, item: Flight) {
        let Some(items) = &mut self.items else { return };
        if let Some(flown) = items.find_mut(item).filter(|flown| flown.draws > 0) {
            let was_unreceived = std::mem::replace(&mut flown.is_unreceived, true);
            items.num_unreceived += u64::from(!was_unreceived);
        }
    }

    /// Does not count an item in [`InFlight::num_unreceived`] any more.
    pub fn unmark_unreceived(&mut self, item: Flight) {
        let Some(items) = self.items.as_mut().filter(|items| items.num_unreceived > 0) else { return };
        if let Some(flown) = items.find_mut(item) {
            let was_unreceived = std::mem::take(&mut flown.is_unreceived);
            items.num_unreceived -= u64::from(was_unreceived);
        }
    }

    /// Expects so many draws, which were made before the table tracked any, to end.
    pub fn expect_untracked(&mut self, count: u64) {
        self.untracked = count;
    }

    /// Notes that draws have ended that were made before the table tracked any. [`InFlight::remove_kept`] ends what
    /// they have kept.
    pub fn end_untracked(&mut self, count: u64) {
        self.untracked = self.untracked.saturating_sub(count);
    }

    /// Forgets `count` of the items that were kept for draws that are not tracked, once all of these have ended. Returns
    /// false if there are no more.
    pub fn remove_kept(&mut self, count: usize, removed: &mut Vec<Trajectory>) -> bool {
        let Some(items) = self.items.as_mut().filter(|_| self.untracked == 0) else { return false };
        let left = self.kept_for_untracked.len().saturating_sub(count);
        self.kept_for_untracked.drain(left..).for_each(|item| items.forget(item, removed));
        left > 0
    }

    /// Counts the draws of a batch as delivered, in O(1). [`InFlight::remove_delivered`] ends their tracking.
    pub fn begin_delivery(&mut self, delivery: Delivery) {
        self.delivered.push(delivery.numbers);
    }

    /// Ends the tracking of `count` delivered draws. Returns false if none are left.
    pub fn remove_delivered(&mut self, count: usize, removed: &mut Vec<Trajectory>) -> bool {
        let Some(mut numbers) = self.delivered.pop() else { return false };
        let left = numbers.len().saturating_sub(count);
        numbers.drain(left..).for_each(|number| self.remove(number, removed));
        if !numbers.is_empty() {
            self.delivered.push(numbers);
        }
        !self.delivered.is_empty()
    }

    /// Number of draws that are tracked.
    pub fn len(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    /// The items of the draws in flight, with the item itself if it has left because it was drawn often enough.
    pub fn iter(&self) -> impl Iterator<Item = (Flight, Option<&Gone>)> {
        let delivered: HashSet<_> = self.delivered.iter().flatten().filter_map(|number| number.get()).collect();
        let flights = self.flights.iter().enumerate();
        flights
            .filter(move |(number, _)| !delivered.contains(&(*number as u32)))
            .filter_map(|(_, draw)| draw.as_ref())
            .map(|Draw { item, gone }| (*item, self.items.as_ref().map_or(gone.as_ref(), |items| items.gone(*item))))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Table, TableChanges, TableConfig};
    use crate::{RateLimiterConfig, SelectorKind};

    fn tracks_items_after(changes: &TableChanges, max_times_sampled: i32) -> bool {
        let mut table = Table::new(TableConfig {
            name: "table".into(),
            sampler: SelectorKind::Fifo,
            remover: SelectorKind::Fifo,
            max_size: 10,
            max_times_sampled,
            rate_limiter: RateLimiterConfig {
                samples_per_insert: 1.0,
                min_size_to_sample: 1,
                min_diff: 0.0,
                max_diff: 10.0,
            },
            signature: None,
            max_bytes: None,
            seed: None,
        })
        .unwrap();
        let _ = table.configure(changes).unwrap();
        table.in_flight.items.is_some()
    }

    /// Draws of a queue whose items are tracked are a fifth slower.
    #[test]
    fn only_a_lower_limit_of_draws_makes_a_table_track_items() {
        let limited = |times| TableChanges { max_times_sampled: Some(times), ..TableChanges::default() };
        let sized = TableChanges { max_size: Some(5), max_bytes: Some(Some(9)), ..TableChanges::default() };
        for (changes, before, expected) in [
            (sized.clone(), 1, false),
            (limited(1), 1, false),
            (limited(0), 1, false),
            (limited(1), 0, true),
            (sized, 2, true),
        ] {
            assert_eq!(tracks_items_after(&changes, before), expected, "{changes:?} from {before}");
        }
    }
}
