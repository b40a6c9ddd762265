//! The counters of a table under many random calls, against a plain model.

use crate::common::counted::counters;
use crate::common::histogram::Plain;
use crate::common::{SELECTORS, config, min_size, prioritized, queue};
use bytes::Bytes;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use reverb_core::{
    Chunk, CopiedDraws, DType, Drawn, EpisodeIds, Layout, NewItem, RateLimiterConfig, RemovalCounts, SelectorKind,
    Slice, StepRange, Table, TableChanges, TableConfig, Trajectory, TrajectoryColumn, random_key,
};
use smallvec::smallvec;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

const OPERATIONS: usize = 100_000;
const KEYS: u64 = 40;
const ROWS: u32 = 4;
const ROW_BYTES: u64 = 12;

/// An item of the table.
#[derive(Debug, Clone, Copy)]
struct Row {
    inserted_at: u64,
    times_sampled: i32,
    bytes: u64,
}

/// A draw that has not been delivered.
enum Held {
    One { drawn: Drawn, resets: u64 },
    Copied { draws: CopiedDraws, items: Vec<(u64, Row)>, resets: u64 },
}

impl Held {
    /// Number of draws that the table does not track.
    fn num_untracked(&self) -> u64 {
        match self {
            Self::One { drawn, .. } => u64::from(!drawn.is_tracked()),
            Self::Copied { draws, items, .. } => {
                if draws.are_tracked() {
                    0
                } else {
                    items.len() as u64
                }
            }
        }
    }
}

/// An item that has left because it was drawn often enough. It comes back with fewer draws than `below`.
struct Away {
    row: Row,
    below: i32,
    is_deleted: bool,
}

struct Model {
    table: Table,
    config: TableConfig,
    /// Whether all items have two rows, so that batches can be copied.
    alike: bool,
    /// Whether the options change as well.
    configures: bool,
    shrinks: bool,
    layout: Arc<Layout>,
    chunk: Arc<Chunk>,
    rng: SmallRng,
    now: u64,
    items: BTreeMap<u64, Row>,
    /// By key and time of insert.
    away: BTreeMap<(u64, u64), Away>,
    held: Vec<Held>,
    resets: u64,
    entered: u64,
    removed: RemovalCounts,
    updates: u64,
    insert_bytes: u64,
    sample_bytes: u64,
    unsampled: u64,
    last_insert: u64,
    last_sample: u64,
    draws: u64,
    returned_draws: u64,
    returned_items: u64,
    /// The counters at the last look.
    counted: Vec<f64>,
    copied: u64,
    ages: Plain,
    times: Plain,
}

impl Model {
    fn new(config: TableConfig, alike: bool) -> Self {
        let columns = [(DType::Float32, smallvec![2], 0), (DType::Float32, smallvec![], 0)];
        let layout = Arc::new(Layout::new(ROWS as usize, columns).unwrap());
        let chunk = new_chunk(&layout);
        Self {
            table: Table::new(config.clone()).unwrap(),
            config,
            alike,
            configures: false,
            shrinks: false,
            layout,
            chunk,
            rng: SmallRng::seed_from_u64(7),
            now: 1_700_000_000_000_000_000,
            items: BTreeMap::new(),
            away: BTreeMap::new(),
            held: Vec::new(),
            resets: 0,
            entered: 0,
            removed: RemovalCounts::default(),
            updates: 0,
            insert_bytes: 0,
            sample_bytes: 0,
            unsampled: 0,
            last_insert: 0,
            last_sample: 0,
            draws: 0,
            returned_draws: 0,
            returned_items: 0,
            counted: Vec::new(),
            copied: 0,
            ages: Plain::new(2f64.powi(-10)),
            times: Plain::new(0.5),
        }
    }

    fn step(&mut self) {
        // From less than a tick to a day.
        self.now += [0, 1, 300_000, 20_000_000, 3_000_000_000, 90_000_000_000_000][self.rng.random_range(0..6)];
        match self.rng.random_range(0..100) {
            0..40 => self.insert(),
            40..50 => self.update(),
            50..58 => self.delete(),
            58..74 => self.sample(),
            74..80 => self.sample_copied(),
            80..92 => self.give_back(),
            92..99 => self.deliver(),
            _ if self.configures && self.rng.random_bool(0.8) => self.configure(),
            _ => self.reset(),
        }
    }

    fn configure(&mut self) {
        // Alone, so that it is known why an item has left.
        let limits_draws = self.rng.random_bool(0.4) && self.items.len() as u64 <= self.config.max_size;
        let changes = if limits_draws {
            TableChanges { max_times_sampled: Some(self.rng.random_range(-1..6)), ..TableChanges::default() }
        } else {
            let rng = &mut self.rng;
            TableChanges {
                max_size: rng.random_bool(0.5).then(|| rng.random_range(5..25)),
                max_bytes: rng.random_bool(0.5).then(|| rng.random_bool(0.5).then(|| rng.random_range(100..600))),
                max_times_sampled: None,
                rate_limiter: rng
                    .random_bool(0.5)
                    .then(|| [min_size(1), queue(20), min_size(5)][rng.random_range(0..3)].clone()),
            }
        };
        let before = self.config.clone();
        let tracked_before = self.table.tracks_draws();
        let Ok(mut shrinking) = self.table.configure(&changes) else { unreachable!("all of these are valid") };
        if !tracked_before {
            self.table.expect_untracked(self.held.iter().map(Held::num_untracked).sum());
        }
        let TableChanges { max_size, max_bytes, max_times_sampled, rate_limiter } = changes;
        let config = &mut self.config;
        config.max_size = max_size.unwrap_or(config.max_size);
        config.max_bytes = max_bytes.unwrap_or(config.max_bytes);
        config.max_times_sampled = max_times_sampled.unwrap_or(config.max_times_sampled);
        config.rate_limiter = rate_limiter.unwrap_or(config.rate_limiter.clone());
        // In some runs others come between two steps.
        let is_interrupted = !limits_draws && self.rng.random();
        let limit = |times: i32| if times < 1 { i32::MAX } else { times };
        if limit(self.config.max_times_sampled) < limit(before.max_times_sampled) {
            let limit = self.config.max_times_sampled;
            self.away.values_mut().for_each(|away| away.below = away.below.min(limit));
        }
        let operations = self.rng.random_range(1..8);
        loop {
            let has_more = self.table.shrink(&mut shrinking, operations, &mut Vec::new());
            self.note_shrunk(&before);
            if !has_more {
                break;
            }
            if is_interrupted {
                self.shrinks = true;
                self.insert();
                self.sample();
                self.give_back();
                self.check();
                self.shrinks = false;
            }
        }
        assert!(self.items.len() as u64 <= self.config.max_size);
        let limit = self.config.max_times_sampled;
        let was_higher = before.max_times_sampled < 1 || before.max_times_sampled > limit;
        assert!(is_interrupted || limit < 1 || !was_higher || self.items.values().all(|row| row.times_sampled < limit));
    }

    /// Lets the items go that a step of a change has removed. Those above the size go first, then those above the bytes,
    /// then those with enough draws.
    fn note_shrunk(&mut self, before: &TableConfig) {
        let gone: Vec<u64> = self.items.keys().copied().filter(|key| !self.table.contains(*key)).collect();
        let removed = self.table.info().removed.unwrap();
        let by_size = removed.max_size - self.removed.max_size;
        let by_bytes = removed.max_bytes - self.removed.max_bytes;
        let drawn = removed.max_times_sampled - self.removed.max_times_sampled;
        assert_eq!(by_size + by_bytes + drawn, gone.len() as u64);
        assert!(by_size <= (self.items.len() as u64).saturating_sub(self.config.max_size));
        assert!(by_bytes == 0 || self.config.max_bytes.is_some());
        let limit = self.config.max_times_sampled;
        let enough = gone.iter().filter(|key| limit > 0 && self.items[key].times_sampled >= limit).count() as u64;
        assert!(drawn <= enough && (drawn == 0 || before.max_times_sampled != limit));
        self.removed = removed;
        for key in gone {
            let row = self.leave(key);
            if drawn > 0 {
                self.away.insert((key, row.inserted_at), Away { row, below: limit, is_deleted: false });
            }
        }
    }

    fn trajectory(&mut self) -> Trajectory {
        if self.rng.random_bool(0.3) {
            self.chunk = new_chunk(&self.layout);
        }
        let chunk = self.chunk.clone();
        if self.alike {
            return Trajectory::rows(chunk, self.rng.random_range(0..=ROWS - 2), 2).unwrap();
        }
        let length = self.rng.random_range(1..=ROWS);
        let offset = self.rng.random_range(0..=ROWS - length);
        if self.rng.random() {
            return Trajectory::rows(chunk, offset, length).unwrap();
        }
        let column = TrajectoryColumn { slices: smallvec![Slice { chunk, column: 0, offset, length }], squeeze: false };
        Trajectory::columns(vec![column]).unwrap()
    }

    fn insert(&mut self) {
        if !self.table.can_insert(1) {
            return;
        }
        let trajectory = self.trajectory();
        let bytes = match &trajectory {
            Trajectory::Rows { length, .. } => ROW_BYTES * u64::from(*length),
            Trajectory::Columns(columns) => 8 * u64::from(columns[0].slices[0].length),
        };
        let times_sampled = if self.rng.random_bool(0.1) { self.rng.random_range(1..70) } else { 0 };
        let key = self.rng.random_range(0..KEYS);
        let new =
            NewItem { key, priority: self.priority(), takes_largest: false, others: None, times_sampled, trajectory };
        if self.table.check_item(&new).is_err() {
            return;
        }
        self.table.insert(new, self.now, &mut Vec::new());
        if self.items.contains_key(&key) {
            self.updates += 1;
            return;
        }
        self.entered += 1;
        self.insert_bytes += bytes;
        self.last_insert = self.now.max(self.last_insert + 1);
        // The stamp may be later than the clock. An item that left at once was there for no time.
        let inserted_at = self.table.get(key).map_or(0, |item| item.inserted_at);
        self.items.insert(key, Row { inserted_at, times_sampled, bytes });
        let over_size = (self.items.len() as u64).saturating_sub(self.config.max_size);
        // While a change evicts many in steps, an insert evicts only some of them.
        self.evict(if self.shrinks { over_size.min(16) } else { over_size });
    }

    /// Lets the items go that have left the table: `over_size` because of their number, the others because of their
    /// bytes.
    fn evict(&mut self, over_size: u64) {
        let gone: Vec<u64> = self.items.keys().copied().filter(|key| !self.table.contains(*key)).collect();
        let over_bytes = gone.len() as u64 - over_size;
        assert!(over_bytes == 0 || self.config.max_bytes.is_some());
        self.removed.max_size += over_size;
        self.removed.max_bytes += over_bytes;
        for key in gone {
            self.leave(key);
        }
    }

    fn leave(&mut self, key: u64) -> Row {
        let entry = self.items.remove(&key).unwrap();
        self.times.add(f64::from(entry.times_sampled), 1);
        self.unsampled += u64::from(entry.times_sampled == 0);
        entry
    }

    fn priority(&mut self) -> f64 {
        f64::from(self.rng.random_range(0..4_u32))
    }

    fn update(&mut self) {
        let updates: Vec<_> = (0..3).map(|_| (self.rng.random_range(0..KEYS), self.priority())).collect();
        self.table.mutate(&updates, &[], &mut Vec::new()).unwrap();
        self.updates += updates.iter().filter(|(key, _)| self.items.contains_key(key)).count() as u64;
    }

    fn delete(&mut self) {
        let key = self.rng.random_range(0..KEYS);
        let found = self.table.mutate(&[], &[key], &mut Vec::new()).unwrap();
        if found > 0 {
            self.removed.deleted += 1;
            self.leave(key);
        } else {
            self.away.range_mut((key, 0)..=(key, u64::MAX)).for_each(|(_, away)| away.is_deleted = true);
        }
    }

    fn sample(&mut self) {
        let wanted = self.rng.random_range(1..40);
        let mut drawn = Vec::new();
        if wanted > 30 {
            drawn.extend(self.table.can_sample(1).then(|| self.table.sample(self.now)).flatten());
        } else {
            self.table.sample_up_to(wanted, false, self.now, &mut drawn);
        }
        for drawn in drawn {
            self.count_draw(drawn.key);
            let removed = drawn.times_sampled >= self.config.max_times_sampled && self.config.max_times_sampled > 0;
            if removed {
                self.removed.max_times_sampled += 1;
                let row = self.leave(drawn.key);
                let away = Away { row, below: drawn.times_sampled, is_deleted: false };
                self.away.insert((drawn.key, row.inserted_at), away);
            }
            self.hold(Held::One { drawn, resets: self.resets });
        }
    }

    fn sample_copied(&mut self) {
        let count = self.rng.random_range(1..50);
        let is_leased: bool = self.rng.random();
        let Some((batch, draws)) = self.table.sample_copied(count, true, None, self.now) else { return };
        let draws = is_leased.then(|| self.table.lease_copied(&draws));
        self.copied += 1;
        let items = batch.info.keys().iter().map(|&key| (key, self.count_draw(key))).collect();
        if let Some(draws) = draws {
            self.hold(Held::Copied { draws, items, resets: self.resets });
        }
    }

    fn count_draw(&mut self, key: u64) -> Row {
        let entry = self.items.get_mut(&key).unwrap();
        entry.times_sampled += 1;
        let entry = *entry;
        self.sample_bytes += entry.bytes;
        self.last_sample = self.now;
        let age = self.now.saturating_sub(entry.inserted_at) as f64 / 1e9;
        if self.draws < 256 {
            self.ages.add(age, 1);
        } else if self.draws.is_multiple_of(16) {
            self.ages.add(age, 16);
        }
        self.draws += 1;
        entry
    }

    fn hold(&mut self, held: Held) {
        self.held.push(held);
        if self.held.len() > 60 {
            self.deliver();
        }
    }

    fn take_held(&mut self) -> Option<Held> {
        let count = self.held.len();
        (count > 0).then(|| self.held.swap_remove(self.rng.random_range(0..count)))
    }

    fn deliver(&mut self) {
        let Some(held) = self.take_held() else { return };
        match &held {
            Held::One { drawn, .. } => self.table.delivered(std::slice::from_ref(drawn), &mut Vec::new()),
            Held::Copied { draws, .. } => self.table.delivered_copied(draws, &mut Vec::new()),
        }
        self.table.end_untracked(held.num_untracked());
    }

    fn give_back(&mut self) {
        let Some(held) = self.take_held() else { return };
        let untracked = held.num_untracked();
        match held {
            Held::One { drawn, resets } => {
                let (key, inserted_at) = (drawn.key, drawn.inserted_at);
                self.table.give_back(drawn, &mut Vec::new());
                if resets == self.resets {
                    self.uncount_draw(key, inserted_at);
                }
            }
            Held::Copied { draws, items, resets } => {
                self.table.give_back_copied(&draws, &mut Vec::new());
                if resets == self.resets {
                    items.into_iter().for_each(|(key, row)| self.uncount_draw(key, row.inserted_at));
                }
            }
        }
        self.table.end_untracked(untracked);
    }

    fn uncount_draw(&mut self, key: u64, inserted_at: u64) {
        let in_table = self.items.get_mut(&key);
        let is_in_table = in_table.is_some();
        if let Some(row) = in_table.filter(|row| row.inserted_at == inserted_at) {
            row.times_sampled = (row.times_sampled - 1).max(0);
        } else if let Some(away) = self.away.get_mut(&(key, inserted_at)) {
            if is_in_table {
                return;
            }
            away.row.times_sampled -= 1;
            if away.row.times_sampled < away.below {
                let Away { row, is_deleted, .. } = self.away.remove(&(key, inserted_at)).unwrap();
                self.items.insert(key, row);
                self.returned_items += 1;
                if is_deleted {
                    self.removed.deleted += 1;
                    self.leave(key);
                }
            }
        }
        self.returned_draws += 1;
        self.evict(0);
    }

    fn reset(&mut self) {
        let old = self.table.reset();
        let counts = old.counts();
        drop(old);
        self.table.count_old(&counts);
        self.removed.reset += self.items.len() as u64;
        let keys: Vec<u64> = self.items.keys().copied().collect();
        for key in keys {
            self.leave(key);
        }
        self.away.clear();
        self.resets += 1;
    }

    fn check(&mut self) {
        let info = self.table.info();
        let time = |nanos: u64| (nanos > 0).then_some(nanos as f64 / 1e9);
        let removed = info.removed.unwrap();
        assert_eq!(info.current_size, self.items.len() as u64);
        assert_eq!(removed, self.removed);
        assert_eq!(removed.total(), self.entered + self.returned_items - info.current_size);
        assert_eq!((info.process_inserts, info.process_samples), (Some(self.entered), Some(self.draws)));
        assert_eq!(info.returned_samples, Some(self.returned_draws));
        assert_eq!(info.returned_items, Some(self.returned_items));
        let counted = counters(&info);
        assert!(
            self.counted.iter().zip(&counted).all(|(before, now)| before <= now),
            "{:?}, {counted:?}",
            self.counted
        );
        self.counted = counted;
        assert_eq!(info.priority_updates, Some(self.updates));
        assert_eq!(info.insert_bytes, Some(self.insert_bytes));
        assert_eq!(info.sample_bytes, Some(self.sample_bytes));
        assert_eq!(info.unsampled_removals, Some(self.unsampled));
        assert_eq!((info.last_insert_at, info.last_sample_at), (time(self.last_insert), time(self.last_sample)));
        self.ages.check(&info.sample_age_seconds.unwrap());
        let times_sampled = info.removed_times_sampled.unwrap();
        self.times.check(&times_sampled);
        assert_eq!(times_sampled.count(), removed.total());
        assert_eq!(info.referenced_bytes, Some(self.items.values().map(|entry| entry.bytes).sum::<u64>()));
        let mut chunks = HashSet::new();
        for key in self.items.keys() {
            chunks.extend(self.table.get(*key).unwrap().trajectory.chunks().iter().map(|chunk| chunk.key));
        }
        assert_eq!(info.chunks, Some(chunks.len() as u64));
    }
}

fn new_chunk(layout: &Arc<Layout>) -> Arc<Chunk> {
    let data = Bytes::from(vec![0; layout.size_bytes]);
    Arc::new(Chunk::new(random_key(), EpisodeIds::Same(1), StepRange::default(), layout.clone(), data).unwrap())
}

/// Makes many random calls. Returns the model, for what a configuration is known to do.
fn run(config: TableConfig, alike: bool) -> Model {
    run_model(Model::new(config, alike))
}

fn run_model(mut model: Model) -> Model {
    for _ in 0..OPERATIONS {
        model.step();
        model.check();
    }
    let info = model.table.info();
    let draws = model.draws as f64;
    let estimate = info.sample_age_seconds.unwrap().count() as f64;
    assert!((estimate - draws).abs() <= 16.0, "{estimate} of {draws}");
    assert!(model.draws > 5 * 1024 && model.entered > 5000 && model.removed.reset > 0, "too little happened");
    model
}

#[test]
fn counters_equal_a_model_with_any_selector_and_copied_batches() {
    for kind in SELECTORS {
        let model = run(TableConfig { sampler: kind.clone(), ..config(kind.clone(), kind, 20) }, true);
        assert!(model.removed.max_size > 0 && model.copied > 1000 && model.unsampled > 0);
    }
}

#[test]
fn counters_equal_a_model_with_limits_on_bytes_and_draws() {
    for (kind, max_times_sampled) in SELECTORS.into_iter().zip([1, 3, 1, 0, 2, 5]) {
        let config = TableConfig { max_bytes: Some(400), max_times_sampled, ..config(SelectorKind::Uniform, kind, 15) };
        let model = run(config, false);
        assert!(model.removed.max_size > 0 && model.removed.max_bytes > 0);
        assert_eq!(model.removed.max_times_sampled > 0, max_times_sampled > 0);
    }
}

#[test]
fn counters_equal_a_model_with_rate_limiters_that_count_draws() {
    let ratio = RateLimiterConfig { samples_per_insert: 2.5, min_size_to_sample: 3, min_diff: -30.0, max_diff: 50.0 };
    for rate_limiter in [ratio, queue(20), min_size(5)] {
        let times = i32::from(rate_limiter == queue(20));
        let config =
            TableConfig { rate_limiter, max_times_sampled: times, ..config(prioritized(1.0), SelectorKind::Fifo, 20) };
        run(config, true);
    }
}

#[test]
fn counters_equal_a_model_while_options_change() {
    for (number, kind) in SELECTORS.into_iter().enumerate() {
        let model = Model::new(config(kind.clone(), kind, 20), number % 2 == 0);
        let model = run_model(Model { configures: true, ..model });
        let RemovalCounts { max_size, max_bytes, max_times_sampled, .. } = model.removed;
        assert!(max_size > 0 && max_bytes > 0 && max_times_sampled > 0, "{:?}", model.removed);
    }
}
