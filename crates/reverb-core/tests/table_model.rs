//! A table under random calls, against a plain model of one.

mod common;

use common::plain::{Plain, allowed};
use common::{config, item, keys, min_size, prioritized, queue};
use proptest::prelude::*;
use reverb_core::{Drawn, NewItem, RateLimiter, RateLimiterConfig, SelectorKind, Table, TableConfig};
use std::collections::BTreeMap;

#[derive(Debug, Clone)]
enum Op {
    Insert(u64, f64, i32),
    Sample,
    /// Gives back one of the draws that are held, the number modulo how many there are.
    GiveBack(usize),
    Mutate(Vec<(u64, f64)>, Vec<u64>),
    Reset,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let key = 0..16_u64;
    let priority = prop_oneof![Just(0.0), Just(1.0), Just(3.0), 0.0..9.0];
    let times_sampled = prop_oneof![9 => Just(0), 1 => 1..4_i32];
    let updates = prop::collection::vec((key.clone(), priority.clone()), 0..4);
    let deletes = prop::collection::vec(key.clone(), 0..3);
    let op = prop_oneof![
        12 => (key, priority, times_sampled).prop_map(|(key, p, times)| Op::Insert(key, p, times)),
        12 => Just(Op::Sample),
        5 => (0..100_usize).prop_map(Op::GiveBack),
        5 => (updates, deletes).prop_map(|(updates, deletes)| Op::Mutate(updates, deletes)),
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
    (selectors(), selectors(), 1..8_u64, -1..4_i32, limiters()).prop_map(
        |(sampler, remover, max_size, max_times_sampled, rate_limiter)| TableConfig {
            max_times_sampled,
            rate_limiter,
            ..config(sampler, remover, max_size)
        },
    )
}

struct Model {
    config: TableConfig,
    items: BTreeMap<u64, Plain>,
    times_sampled: BTreeMap<u64, i32>,
    limiter: RateLimiter,
    num_unique_samples: u64,
    num_deleted_episodes: u64,
    /// Counts calls, to tell what came before what.
    now: u64,
    resets: u64,
    held: Vec<Held>,
}

/// A draw, and what the model knew of the item.
struct Held {
    drawn: Drawn,
    plain: Plain,
    removed: bool,
    resets: u64,
}

impl Model {
    fn new(config: TableConfig) -> Self {
        Self {
            limiter: RateLimiter::new(config.rate_limiter.clone()),
            config,
            items: BTreeMap::new(),
            times_sampled: BTreeMap::new(),
            num_unique_samples: 0,
            num_deleted_episodes: 0,
            now: 0,
            resets: 0,
            held: Vec::new(),
        }
    }

    fn apply(&mut self, table: &mut Table, op: &Op) {
        self.now += 1;
        match op {
            Op::Insert(key, priority, times_sampled) if self.limiter.can_insert(1) => {
                self.insert(table, *key, *priority, *times_sampled);
            }
            Op::Sample if self.limiter.can_sample(1) => self.sample(table),
            Op::GiveBack(number) if !self.held.is_empty() => {
                let held = self.held.swap_remove(number % self.held.len());
                self.give_back(table, held);
            }
            Op::Mutate(updates, deletes) => {
                table.mutate(updates, deletes, &mut Vec::new()).unwrap();
                deletes.iter().for_each(|key| self.remove(*key));
                updates.iter().for_each(|&(key, priority)| self.update(key, priority));
            }
            Op::Reset => {
                let mut removed = Vec::new();
                table.reset(&mut removed);
                assert_eq!(removed.len(), self.items.len());
                let held = std::mem::take(&mut self.held);
                *self = Self { held, now: self.now, resets: self.resets + 1, ..Self::new(self.config.clone()) };
            }
            _ => {}
        }
    }

    fn insert(&mut self, table: &mut Table, key: u64, priority: f64, times_sampled: i32) {
        let mut removed = Vec::new();
        // The clock stands still: order must not depend on it.
        table.insert(NewItem { times_sampled, ..item(key, priority) }, 1000, &mut removed);
        if self.items.contains_key(&key) {
            return self.update(key, priority);
        }
        self.now += 1;
        self.items.insert(key, Plain { priority, inserted: self.now, changed: self.now });
        self.times_sampled.insert(key, times_sampled);
        let over = (self.items.len() as u64).saturating_sub(self.config.max_size) as usize;
        let mut gone: Vec<_> = self.items.keys().copied().filter(|key| !table.contains(*key)).collect();
        assert_eq!((gone.len(), removed.len()), (over, over));
        while !gone.is_empty() {
            let allowed = allowed(&self.config.remover, &self.items);
            let next = gone.iter().position(|key| allowed.contains_key(key));
            self.remove(gone.swap_remove(next.unwrap_or_else(|| panic!("{gone:?} went, {allowed:?} could"))));
        }
        self.limiter.inserts += 1;
    }

    fn sample(&mut self, table: &mut Table) {
        let Some(drawn) = table.sample(&mut Vec::new()) else {
            assert!(self.items.is_empty());
            return;
        };
        let key = drawn.key;
        let want = allowed(&self.config.sampler, &self.items)[&key];
        assert!((drawn.probability / want - 1.0).abs() < 1e-12);
        let plain = self.items[&key];
        assert_eq!(drawn.priority, plain.priority);
        assert_eq!(drawn.table_size, self.items.len() as u64);
        self.limiter.samples += 1;
        let times = self.times_sampled.get_mut(&key).unwrap();
        self.num_unique_samples += u64::from(*times == 0);
        *times += 1;
        assert_eq!(drawn.times_sampled, *times);
        let removed = self.config.max_times_sampled > 0 && *times >= self.config.max_times_sampled;
        if removed {
            self.remove(key);
        }
        self.held.push(Held { drawn, plain, removed, resets: self.resets });
    }

    fn give_back(&mut self, table: &mut Table, held: Held) {
        let Held { drawn, plain, removed, resets } = held;
        let (key, times_sampled) = (drawn.key, drawn.times_sampled);
        let same = table.get(key).is_some_and(|item| item.inserted_at == drawn.inserted_at);
        table.give_back(drawn, &mut Vec::new());
        if resets != self.resets {
            return;
        }
        if removed {
            if self.items.contains_key(&key) {
                return;
            }
            self.items.insert(key, plain);
            self.times_sampled.insert(key, times_sampled);
            self.limiter.deletes -= 1;
        }
        self.limiter.samples -= 1;
        if removed || same {
            let times = self.times_sampled.get_mut(&key).unwrap();
            *times -= 1;
            self.num_unique_samples -= u64::from(*times == 0);
        }
    }

    fn update(&mut self, key: u64, priority: f64) {
        self.now += 1;
        if let Some(plain) = self.items.get_mut(&key) {
            (plain.priority, plain.changed) = (priority, self.now);
        }
    }

    fn remove(&mut self, key: u64) {
        if self.items.remove(&key).is_some() {
            self.times_sampled.remove(&key);
            self.limiter.deletes += 1;
            self.num_deleted_episodes += 1;
        }
    }

    fn check(&self, table: &Table) {
        let info = table.info();
        assert_eq!(info.current_size, self.items.len() as u64);
        assert_eq!(info.num_episodes, self.items.len() as u64);
        assert_eq!(info.num_deleted_episodes, self.num_deleted_episodes);
        assert_eq!(info.num_unique_samples, self.num_unique_samples);
        assert_eq!(info.bytes, 4 * self.items.len() as u64);
        let RateLimiter { inserts, samples, deletes, .. } = self.limiter;
        assert_eq!((info.inserts, info.samples, info.deletes), (inserts, samples, deletes));
        let mut by_age: Vec<_> = self.items.iter().collect();
        by_age.sort_by_key(|(_, plain)| plain.inserted);
        assert_eq!(keys(table), by_age.iter().map(|(key, _)| **key).collect::<Vec<_>>());
        for (key, plain) in &self.items {
            let item = table.get(*key).unwrap();
            assert_eq!((item.priority, item.times_sampled), (plain.priority, self.times_sampled[key]));
        }
        assert_eq!(table.can_insert(1), self.limiter.can_insert(1));
        assert_eq!(table.can_sample(1), self.limiter.can_sample(1));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn table_does_what_the_model_does(config in configs(), ops in ops()) {
        let mut table = Table::new(config.clone()).unwrap();
        let mut model = Model::new(config);
        for op in &ops {
            model.apply(&mut table, op);
            model.check(&table);
        }
    }
}
