//! A table under random calls, against a plain model.

use crate::common::plain::{Plain, allowed, weight};
use crate::common::{config, item, keys, min_size, prioritized, queue};
use proptest::prelude::*;
use reverb_core::{
    Delivery, Drawn, NewItem, PeekSearch, RateLimiter, RateLimiterConfig, RemovalCounts, SelectorKind, Table,
    TableChanges, TableConfig,
};
use std::collections::BTreeMap;

/// Size of an item in bytes; each item has a chunk of its own.
const ITEM_BYTES: u64 = 4;

#[derive(Debug, Clone)]
enum Op {
    Insert(u64, f64, i32),
    /// Inserts an item that takes the largest priority so far, at least this one.
    InsertLargest(u64, f64),
    Sample,
    /// Gives back one of the draws that are held; the number is taken modulo their count.
    GiveBack(usize),
    /// Delivers one of the draws that are held.
    Deliver(usize),
    ContinueDeliveries(usize),
    Mutate(Vec<(u64, f64)>, Vec<u64>),
    /// Sets `max_times_sampled`.
    Configure(i32),
    Reset,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let key = 0..16_u64;
    let priority = prop_oneof![Just(0.0), Just(1.0), Just(3.0), 0.0..9.0];
    let times_sampled = prop_oneof![9 => Just(0), 1 => 1..4_i32];
    let updates = prop::collection::vec((key.clone(), priority.clone()), 0..4);
    let deletes = prop::collection::vec(key.clone(), 0..3);
    let op = prop_oneof![
        3 => (key.clone(), prop_oneof![Just(0.0), priority.clone()]).prop_map(|(key, p)| Op::InsertLargest(key, p)),
        12 => (key, priority, times_sampled).prop_map(|(key, p, times)| Op::Insert(key, p, times)),
        12 => Just(Op::Sample),
        5 => (0..100_usize).prop_map(Op::GiveBack),
        3 => (0..100_usize).prop_map(Op::Deliver),
        1 => (1..3_usize).prop_map(Op::ContinueDeliveries),
        5 => (updates, deletes).prop_map(|(updates, deletes)| Op::Mutate(updates, deletes)),
        1 => (-1..4_i32).prop_map(Op::Configure),
        1 => Just(Op::Reset),
    ];
    prop::collection::vec(op, 0..150)
}

fn selectors() -> impl Strategy<Value = SelectorKind> {
    prop_oneof![
        Just(SelectorKind::Fifo),
        Just(SelectorKind::Lifo),
        Just(SelectorKind::Uniform),
        Just(SelectorKind::MinHeap),
        Just(SelectorKind::MaxHeap),
        Just(prioritized(1.0)),
        Just(prioritized(0.5)),
    ]
}

fn limiters() -> impl Strategy<Value = RateLimiterConfig> {
    let ratio = RateLimiterConfig { samples_per_insert: 1.5, min_size_to_sample: 3, min_diff: 1.0, max_diff: 8.0 };
    prop_oneof![Just(min_size(1)), Just(min_size(4)), Just(queue(5)), Just(ratio)]
}

fn configs() -> impl Strategy<Value = TableConfig> {
    let max_bytes = prop_oneof![3 => Just(None), 1 => (1..8_u64).prop_map(|items| Some(items * ITEM_BYTES))];
    (selectors(), selectors(), 1..8_u64, max_bytes, -1..4_i32, limiters()).prop_map(
        |(sampler, remover, max_size, max_bytes, max_times_sampled, rate_limiter)| TableConfig {
            max_bytes,
            max_times_sampled,
            rate_limiter,
            ..config(sampler, remover, max_size)
        },
    )
}

/// An item, from its insert on. It outlives its stay in the table, because its draws do.
struct Life {
    key: u64,
    plain: Plain,
    /// Number of draws that the item entered with, of draws made, and of those undone.
    entered_with: i32,
    made: i32,
    undone: i32,
    place: Place,
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Inside,
    /// Out of the table since it was drawn often enough: back as soon as fewer than `below` draws are left. A delete
    /// has been asked for meanwhile, or not.
    Away {
        below: i32,
        is_deleted: bool,
    },
    /// Gone for good.
    Left,
}

impl Life {
    fn times_sampled(&self) -> i32 {
        self.entered_with + self.made - self.undone
    }
}

struct Model {
    config: TableConfig,
    lives: Vec<Life>,
    /// The items in the table, and the number of the life of each.
    items: BTreeMap<u64, Plain>,
    inside: BTreeMap<u64, usize>,
    limiter: RateLimiter,
    num_unique_samples: u64,
    num_deleted_episodes: u64,
    /// The largest priority since the last reset.
    largest: f64,
    /// Whether draws are tracked from now on.
    tracks: bool,
    /// Number of items inserted under a new key, and of removals; a reset clears neither.
    entered: u64,
    removed: RemovalCounts,
    /// Number of items that came back.
    returned: u64,
    /// Counts calls, which orders events.
    now: u64,
    resets: u64,
    held: Vec<Held>,
}

/// A draw that has not reached its caller.
struct Held {
    drawn: Drawn,
    life: usize,
    is_tracked: bool,
    resets: u64,
}

impl Model {
    fn new(config: TableConfig) -> Self {
        Self {
            limiter: RateLimiter::new(config.rate_limiter.clone()),
            tracks: config.counts_samples(),
            config,
            lives: Vec::new(),
            items: BTreeMap::new(),
            inside: BTreeMap::new(),
            num_unique_samples: 0,
            num_deleted_episodes: 0,
            largest: 0.0,
            entered: 0,
            removed: RemovalCounts::default(),
            returned: 0,
            now: 0,
            resets: 0,
            held: Vec::new(),
        }
    }

    fn apply(&mut self, table: &mut Table, op: &Op) {
        self.now += 1;
        match op {
            Op::Insert(key, priority, times_sampled) if self.limiter.can_insert(1) => {
                self.insert(table, NewItem { times_sampled: *times_sampled, ..item(*key, *priority) }, *priority);
            }
            Op::InsertLargest(key, priority) if self.limiter.can_insert(1) => {
                let new = NewItem { takes_largest: true, ..item(*key, *priority) };
                let is_refused = self.config.remover == SelectorKind::MaxHeap;
                assert_eq!(table.check_item(&new).is_err(), is_refused);
                if !is_refused {
                    self.insert(table, new, priority.max(self.told_largest()));
                }
            }
            Op::Sample if self.limiter.can_sample(1) => self.sample(table),
            Op::GiveBack(number) if !self.held.is_empty() => {
                let held = self.held.swap_remove(number % self.held.len());
                self.give_back(table, held);
            }
            Op::Deliver(number) if !self.held.is_empty() => {
                let held = self.held.swap_remove(number % self.held.len());
                if number % 2 == 0 {
                    table.delivered(&[held.drawn], &mut Vec::new());
                } else {
                    // Snapshots do not show whether this delivery is still to be continued.
                    table.begin_delivery(Delivery::of(&[held.drawn]));
                }
                if !held.is_tracked {
                    table.end_untracked(1);
                }
            }
            Op::ContinueDeliveries(count) => {
                table.continue_deliveries(*count, &mut Vec::new());
                table.continue_untracked(*count, &mut Vec::new());
            }
            Op::Mutate(updates, deletes) => {
                table.mutate(updates, deletes, &mut Vec::new()).unwrap();
                deletes.iter().for_each(|key| self.delete(*key));
                updates.iter().for_each(|&(key, priority)| self.update(key, priority));
            }
            // A table that is over its size, after draws were given back, would come to it, too.
            Op::Configure(max_times_sampled) if self.items.len() as u64 <= self.config.max_size => {
                self.configure(table, *max_times_sampled);
            }
            Op::Reset => {
                assert_eq!(table.reset().num_items(), self.items.len());
                self.removed.reset += self.items.len() as u64;
                let held = std::mem::take(&mut self.held);
                *self = Self {
                    held,
                    tracks: self.tracks,
                    now: self.now,
                    resets: self.resets + 1,
                    entered: self.entered,
                    removed: self.removed,
                    returned: self.returned,
                    ..Self::new(self.config.clone())
                };
            }
            _ => {}
        }
    }

    /// Inserts an item, which enters with this priority.
    fn insert(&mut self, table: &mut Table, new: NewItem, priority: f64) {
        let (key, times_sampled) = (new.key, new.times_sampled);
        let mut removed = Vec::new();
        // The clock does not advance, because the order must not depend on it.
        table.insert(new, 1000, &mut removed);
        self.largest = self.largest.max(priority);
        if self.items.contains_key(&key) {
            return self.update(key, priority);
        }
        self.now += 1;
        let plain = Plain { priority, inserted: self.now, changed: self.now };
        self.inside.insert(key, self.lives.len());
        self.items.insert(key, plain);
        let (made, undone, place) = (0, 0, Place::Inside);
        self.lives.push(Life { key, plain, entered_with: times_sampled, made, undone, place });
        let over_size = (self.items.len() as u64).saturating_sub(self.config.max_size);
        let over_bytes = (self.items.len() as u64 - over_size).saturating_sub(self.max_items_by_bytes());
        assert_eq!(removed.len() as u64, over_size + over_bytes);
        self.evict(table, over_size + over_bytes);
        self.removed.max_size += over_size;
        self.removed.max_bytes += over_bytes;
        self.limiter.inserts += 1;
        self.entered += 1;
    }

    fn max_items_by_bytes(&self) -> u64 {
        self.config.max_bytes.map_or(u64::MAX, |bytes| bytes / ITEM_BYTES)
    }

    /// Removes the `count` items that the table has removed; the remover could choose each of them in turn.
    fn evict(&mut self, table: &Table, count: u64) {
        let mut gone: Vec<_> = self.items.keys().copied().filter(|key| !table.contains(*key)).collect();
        assert_eq!(gone.len() as u64, count);
        while !gone.is_empty() {
            let allowed = allowed(&self.config.remover, &self.items);
            let next = gone.iter().position(|key| allowed.contains_key(key));
            self.remove(gone.swap_remove(next.unwrap_or_else(|| panic!("{gone:?} went, {allowed:?} could"))));
        }
    }

    fn sample(&mut self, table: &mut Table) {
        let Some(drawn) = table.sample(0) else {
            assert!(self.items.is_empty());
            return;
        };
        let key = drawn.key;
        let want = allowed(&self.config.sampler, &self.items)[&key];
        assert!((drawn.probability / want - 1.0).abs() < 1e-12);
        let plain = self.items[&key];
        assert_eq!(drawn.priority, plain.priority);
        assert_eq!(drawn.table_size, self.items.len() as i64);
        self.limiter.samples += 1;
        let number = self.inside[&key];
        let life = &mut self.lives[number];
        self.num_unique_samples += u64::from(life.times_sampled() == 0);
        life.made += 1;
        let times = life.times_sampled();
        assert_eq!(drawn.times_sampled, times);
        self.held.push(Held { drawn, life: number, is_tracked: self.tracks, resets: self.resets });
        if self.config.max_times_sampled > 0 && times >= self.config.max_times_sampled {
            self.take_away(number, times);
        }
    }

    /// Moves an item out of the table because it was drawn often enough.
    fn take_away(&mut self, number: usize, below: i32) {
        self.removed.max_times_sampled += self.remove(self.lives[number].key);
        self.lives[number].place = Place::Away { below, is_deleted: false };
    }

    fn give_back(&mut self, table: &mut Table, held: Held) {
        let Held { drawn, life, is_tracked, resets } = held;
        table.give_back(drawn, &mut Vec::new());
        if !is_tracked {
            table.end_untracked(1);
        }
        if resets != self.resets {
            return;
        }
        let Life { key, place, plain, .. } = self.lives[life];
        let is_away = matches!(place, Place::Away { .. });
        if is_away && self.items.contains_key(&key) {
            return;
        }
        self.lives[life].undone += 1;
        self.limiter.samples -= 1;
        let times = self.lives[life].times_sampled();
        if place != Place::Left {
            self.num_unique_samples -= u64::from(times == 0);
        }
        if let Place::Away { below, is_deleted } = place
            && times < below
        {
            self.lives[life].place = Place::Inside;
            self.largest = self.largest.max(plain.priority);
            self.items.insert(key, plain);
            self.inside.insert(key, life);
            self.limiter.deletes -= 1;
            self.num_deleted_episodes -= 1;
            self.returned += 1;
            if is_deleted {
                self.removed.deleted += self.remove(key);
            }
            let over_bytes = (self.items.len() as u64).saturating_sub(self.max_items_by_bytes());
            self.evict(table, over_bytes);
            self.removed.max_bytes += over_bytes;
        }
    }

    fn configure(&mut self, table: &mut Table, max_times_sampled: i32) {
        let changes = TableChanges { max_times_sampled: Some(max_times_sampled), ..TableChanges::default() };
        let mut shrinking = table.configure(&changes).unwrap();
        let untracked = self.held.iter().filter(|held| !held.is_tracked).count();
        if !self.tracks {
            table.expect_untracked(untracked as u64);
        }
        while table.shrink(&mut shrinking, 1, &mut Vec::new()) {}
        let limit = |times: i32| if times < 1 { i32::MAX } else { times };
        let is_lower = limit(max_times_sampled) < limit(self.config.max_times_sampled);
        self.config.max_times_sampled = max_times_sampled;
        self.tracks |= self.config.counts_samples();
        if is_lower {
            for life in &mut self.lives {
                if let Place::Away { below, .. } = &mut life.place {
                    *below = (*below).min(max_times_sampled);
                }
            }
            for number in self.inside.values().copied().collect::<Vec<_>>() {
                if self.lives[number].times_sampled() >= max_times_sampled {
                    self.take_away(number, max_times_sampled);
                }
            }
        }
    }

    fn update(&mut self, key: u64, priority: f64) {
        self.now += 1;
        match self.items.get_mut(&key) {
            Some(plain) => {
                (plain.priority, plain.changed) = (priority, self.now);
                self.largest = self.largest.max(priority);
                self.lives[self.inside[&key]].plain = *plain;
            }
            None => {
                for life in self.away(key) {
                    // It keeps its place among items of one priority.
                    life.plain.priority = priority;
                }
            }
        }
    }

    fn delete(&mut self, key: u64) {
        if self.items.contains_key(&key) {
            self.removed.deleted += self.remove(key);
            return;
        }
        for life in self.away(key) {
            let Place::Away { is_deleted, .. } = &mut life.place else { continue };
            *is_deleted = true;
        }
    }

    /// The items of this key that may come back.
    fn away(&mut self, key: u64) -> impl Iterator<Item = &mut Life> {
        self.lives.iter_mut().filter(move |life| life.key == key && matches!(life.place, Place::Away { .. }))
    }

    /// Removes an item. Returns the number of removed items: 1, or 0 if it was not in the table.
    fn remove(&mut self, key: u64) -> u64 {
        if self.items.remove(&key).is_none() {
            return 0;
        }
        let number = self.inside.remove(&key).unwrap();
        self.lives[number].place = Place::Left;
        self.limiter.deletes += 1;
        self.num_deleted_episodes += 1;
        1
    }

    /// What a checkpoint saves: the table, but draws that are held and tracked have not happened.
    fn check_snapshot(&self, table: &Table) {
        let mut undelivered: BTreeMap<usize, i32> = BTreeMap::new();
        for held in self.held.iter().filter(|held| held.is_tracked && held.resets == self.resets) {
            *undelivered.entry(held.life).or_default() += 1;
        }
        let mut saved: BTreeMap<u64, usize> = self.inside.clone();
        let (mut limiter, mut unique) = (self.limiter.clone(), self.num_unique_samples);
        let mut deleted_episodes = self.num_deleted_episodes;
        // Newest items first, because of two items with one key the newer returns.
        for (&number, &draws) in undelivered.iter().rev() {
            let life = &self.lives[number];
            let times = life.times_sampled() - draws;
            match life.place {
                Place::Away { .. } if saved.contains_key(&life.key) => continue,
                Place::Away { is_deleted: false, below } if times < below => {
                    saved.insert(life.key, number);
                    limiter.deletes -= 1;
                    deleted_episodes -= 1;
                }
                _ => {}
            }
            limiter.samples -= i64::from(draws);
            unique -= u64::from(life.place != Place::Left && times == 0);
        }
        let snapshot = table.snapshot_without_flights();
        let mut by_age: Vec<_> = saved.into_iter().map(|(key, number)| (number, key)).collect();
        by_age.sort_unstable();
        let items = by_age.iter().map(|&(number, key)| {
            let life = &self.lives[number];
            (key, life.plain.priority, life.times_sampled() - undelivered.get(&number).unwrap_or(&0))
        });
        let found = snapshot.items().map(|item| (item.key, item.priority, item.times_sampled));
        assert_eq!(found.collect::<Vec<_>>(), items.collect::<Vec<_>>());
        assert_eq!(snapshot.num_items(), by_age.len());
        assert_eq!(snapshot.largest_priority.unwrap_or_default(), self.largest);
        assert_eq!(snapshot.limiter, limiter);
        assert_eq!((snapshot.num_unique_samples, snapshot.num_deleted_episodes), (unique, deleted_episodes));
    }

    fn check_peeks(&self, table: &Table, by_age: &[u64]) {
        let keeps_order = [&self.config.sampler, &self.config.remover]
            .into_iter()
            .any(|kind| matches!(kind, SelectorKind::Fifo | SelectorKind::Lifo));
        for count in [0, 1, 3, 100] {
            let oldest: Vec<u64> = by_age.iter().copied().take(count).collect();
            let newest: Vec<u64> = by_age.iter().rev().copied().take(count).collect();
            for (want, is_newest) in [(oldest, false), (newest, true)] {
                let peeked = table.peek(count, is_newest);
                assert_eq!(peeked.is_some(), keeps_order);
                if let Some(items) = peeked {
                    assert!(items.iter().map(|item| item.key).eq(want.iter().copied()));
                }
                assert_eq!(search(table, count, is_newest), want);
            }
        }
    }

    /// What the table says of its largest priority.
    fn told_largest(&self) -> f64 {
        if self.largest == 0.0 { 1.0 } else { self.largest }
    }

    fn check(&self, table: &mut Table) {
        let info = table.info();
        assert_eq!(info.largest_priority, Some(self.told_largest()));
        assert_eq!(info.current_size, self.items.len() as u64);
        assert_eq!(info.num_episodes, self.items.len() as u64);
        assert_eq!(info.num_deleted_episodes, self.num_deleted_episodes);
        assert_eq!(info.num_unique_samples, self.num_unique_samples);
        assert_eq!(info.size_bytes, Some(ITEM_BYTES * self.items.len() as u64));
        let RateLimiter { inserts, samples, deletes, .. } = self.limiter;
        assert_eq!((info.inserts, info.samples, table.limiter().deletes), (inserts, samples, deletes));
        let weight: f64 = self.items.values().map(|plain| weight(&self.config.sampler, plain)).sum();
        let told = info.weight.unwrap();
        assert!((told - weight).abs() <= 1e-12 * weight, "{told} is not {weight}");
        assert_eq!(info.removed, Some(self.removed));
        assert_eq!(info.returned_items, Some(self.returned));
        assert_eq!(self.entered + self.returned, info.current_size + self.removed.total());
        let mut by_age: Vec<_> = self.items.iter().collect();
        by_age.sort_by_key(|(_, plain)| plain.inserted);
        let by_age: Vec<u64> = by_age.iter().map(|(key, _)| **key).collect();
        assert_eq!(keys(table), by_age);
        self.check_peeks(table, &by_age);
        for (key, plain) in &self.items {
            let item = table.get(*key).unwrap();
            let times_sampled = self.lives[self.inside[key]].times_sampled();
            assert_eq!((item.priority, item.times_sampled), (plain.priority, times_sampled));
        }
        assert_eq!(table.can_insert(1), self.limiter.can_insert(1));
        assert_eq!(table.can_sample(1), self.limiter.can_sample(1));
    }
}

/// The items that a look at a table without order finds in one pass.
fn search(table: &Table, count: usize, newest: bool) -> Vec<u64> {
    let mut search = PeekSearch::new(count, newest);
    let mut page = Some(0);
    while let Some(from) = page {
        page = table.peek_pages(&mut search, from, 1);
    }
    table.peeked(search).into_iter().map(|item| item.key).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn table_does_what_the_model_does(config in configs(), ops in ops()) {
        let mut table = Table::new(config.clone()).unwrap();
        let mut model = Model::new(config);
        for op in &ops {
            model.apply(&mut table, op);
            model.check(&mut table);
            model.check_snapshot(&table);
        }
    }
}
