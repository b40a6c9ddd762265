//! A table in its simplest form.

use super::Op;
use super::crash::Log;
use crate::common::plain::{Plain, allowed, weight};
use crate::common::{item, keys};
use reverb_core::{
    CopiedDraws, Delivery, Drawn, NewItem, Race, RateLimiter, RemovalCounts, SelectorKind, Table, TableChanges,
    TableConfig,
};
use std::collections::BTreeMap;

/// Size of an item in bytes; each item has a chunk of its own.
pub const ITEM_BYTES: u64 = 4;

/// An item, from its insert on. It outlives its stay in the table, because its draws do.
pub struct Life {
    pub key: u64,
    pub plain: Plain,
    /// Number of draws that the item entered with, of draws made, and of those undone.
    entered_with: i32,
    made: i32,
    undone: i32,
    pub place: Place,
    /// The least and the greatest number of its received draws since the last [`Op::Save`].
    pub received: (i32, i32),
    /// When its removal was taken back, for which it had enough draws from before the table tracked any. 0 for never.
    pub put_again: u64,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Place {
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
    pub fn new(key: u64, plain: Plain, entered_with: i32) -> Self {
        let received = (entered_with, entered_with);
        Self { key, plain, entered_with, made: 0, undone: 0, place: Place::Inside, received, put_again: 0 }
    }

    pub fn times_sampled(&self) -> i32 {
        self.entered_with + self.made - self.undone
    }
}

pub struct Model {
    pub config: TableConfig,
    pub lives: Vec<Life>,
    /// The items in the table, and the number of the life of each.
    pub items: BTreeMap<u64, Plain>,
    pub inside: BTreeMap<u64, usize>,
    pub limiter: RateLimiter,
    pub num_unique_samples: u64,
    pub num_deleted_episodes: u64,
    /// The largest priority since the last reset.
    pub largest: f64,
    /// Whether draws are tracked from now on.
    pub tracks: bool,
    /// Number of items inserted under a new key, and of removals; a reset clears neither.
    pub entered: u64,
    pub removed: RemovalCounts,
    /// Number of items that came back.
    pub returned: u64,
    /// Counts calls, which orders events.
    pub now: u64,
    pub resets: u64,
    pub held: Vec<Held>,
    /// What is there after a crash, if the table is journaled.
    pub log: Option<Log>,
}

/// What a checkpoint holds, with the numbers of the lives of its items in the order of their inserts.
pub struct Saved {
    pub lives: Vec<usize>,
    pub limiter: RateLimiter,
    pub num_unique_samples: u64,
    pub num_deleted_episodes: u64,
}

/// Draws that have not reached their caller.
pub struct Held {
    draws: Draws,
    lives: Vec<usize>,
    is_tracked: bool,
    resets: u64,
}

enum Draws {
    One(Drawn),
    /// A draw of a race.
    Raced(Drawn),
    Copied(CopiedDraws),
}

impl Held {
    fn deliver(self, table: &mut Table, in_steps: bool) {
        match self.draws {
            Draws::Copied(copied) => table.delivered_copied(&copied, &mut Vec::new()),
            // Snapshots do not show whether this delivery is still to be continued.
            Draws::One(drawn) | Draws::Raced(drawn) if in_steps && !table.is_journaled() => {
                table.begin_delivery(Delivery::of(&[drawn]));
            }
            Draws::One(drawn) | Draws::Raced(drawn) => table.delivered(&[drawn], &mut Vec::new()),
        }
        if !self.is_tracked {
            table.end_untracked(self.lives.len() as u64);
        }
    }
}

impl Model {
    pub fn new(config: TableConfig) -> Self {
        Self {
            log: None,
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

    pub fn apply(&mut self, table: &mut Table, op: &Op) {
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
            Op::Race(limit) => self.race(table, *limit),
            Op::Copied(count) => self.sample_copied(table, *count),
            Op::GiveBack(number) if !self.held.is_empty() => {
                let held = self.held.swap_remove(number % self.held.len());
                self.give_back(table, held);
            }
            Op::Deliver(number) if !self.held.is_empty() => {
                let held = self.held.swap_remove(number % self.held.len());
                held.deliver(table, number % 2 == 1);
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
            // A table that is over its limits, after draws were given back or a crash, would come to them, too.
            Op::Configure(max_times_sampled) if self.is_within_limits() => {
                self.configure(table, *max_times_sampled);
            }
            Op::Limit(changes) => self.limit(table, changes),
            Op::Reset => {
                assert_eq!(table.reset().num_items(), self.items.len());
                self.removed.reset += self.items.len() as u64;
                let held = std::mem::take(&mut self.held);
                *self = Self {
                    held,
                    log: self.log.take(),
                    tracks: self.tracks,
                    now: self.now,
                    resets: self.resets + 1,
                    entered: self.entered,
                    removed: self.removed,
                    returned: self.returned,
                    ..Self::new(self.config.clone())
                };
            }
            Op::Save if self.log.is_some() => self.save(table),
            Op::Crash if self.log.is_some() => self.crash(table),
            _ => {}
        }
        self.note_received();
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
        self.lives.push(Life::new(key, plain, times_sampled));
        let over_size = (self.items.len() as u64).saturating_sub(self.config.max_size);
        let over_bytes = (self.items.len() as u64 - over_size).saturating_sub(self.max_items_by_bytes());
        assert_eq!(removed.len() as u64, over_size + over_bytes);
        self.evict(table, over_size + over_bytes);
        self.removed.max_size += over_size;
        self.removed.max_bytes += over_bytes;
        self.limiter.inserts += 1;
        self.entered += 1;
    }

    fn is_within_limits(&self) -> bool {
        self.items.len() as u64 <= self.config.max_size.min(self.max_items_by_bytes())
    }

    fn max_items_by_bytes(&self) -> u64 {
        self.config.max_bytes.map_or(u64::MAX, |bytes| bytes / ITEM_BYTES)
    }

    /// Removes so many of the items that the table has removed; the remover could choose each of them in turn.
    fn evict(&mut self, table: &Table, count: u64) {
        let mut gone: Vec<_> = self.items.keys().copied().filter(|key| !table.contains(*key)).collect();
        for _ in 0..count {
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
        assert_eq!(drawn.table_size, self.items.len() as i64);
        assert_eq!(drawn.priority, self.items[&key].priority);
        let life = self.count_draw(key, drawn.times_sampled);
        self.hold(Draws::One(drawn), vec![life]);
    }

    /// The rate limiter is not asked.
    fn race(&mut self, table: &mut Table, limit: usize) {
        let mut drawn = Vec::new();
        let by_size = self.items.values().all(|plain| weight(&self.config.sampler, plain) == 0.0);
        table.race(Race { interval: f64::INFINITY, limit, by_size }, &mut drawn).unwrap();
        for drawn in drawn {
            let life = self.count_draw(drawn.key, drawn.times_sampled);
            self.hold(Draws::Raced(drawn), vec![life]);
        }
    }

    fn sample_copied(&mut self, table: &mut Table, count: usize) {
        let Some((batch, draws)) = table.sample_copied(count, true, None, 0) else { return };
        let times = batch.info.times_sampled().iter();
        let lives = batch.info.keys().iter().zip(times).map(|(key, times)| self.count_draw(*key, *times)).collect();
        let copied = table.lease_copied(&draws);
        self.hold(Draws::Copied(copied), lives);
    }

    fn hold(&mut self, draws: Draws, lives: Vec<usize>) {
        self.held.push(Held { draws, lives, is_tracked: self.tracks, resets: self.resets });
    }

    /// Counts a draw of an item, whose draws the table counts like this. Returns the number of its life.
    fn count_draw(&mut self, key: u64, told_times: i32) -> usize {
        self.limiter.samples += 1;
        let number = self.inside[&key];
        let life = &mut self.lives[number];
        self.num_unique_samples += u64::from(life.times_sampled() == 0);
        life.made += 1;
        let times = life.times_sampled();
        assert_eq!(told_times, times);
        if self.config.max_times_sampled > 0 && times >= self.config.max_times_sampled {
            self.take_away(number, times);
        }
        number
    }

    /// Moves an item out of the table because it was drawn often enough.
    fn take_away(&mut self, number: usize, below: i32) {
        self.removed.max_times_sampled += self.remove(self.lives[number].key);
        self.lives[number].place = Place::Away { below, is_deleted: false };
    }

    pub fn give_back(&mut self, table: &mut Table, held: Held) {
        let Held { draws, lives, is_tracked, resets } = held;
        match draws {
            Draws::One(drawn) => drop(table.give_back(drawn, &mut Vec::new())),
            Draws::Raced(drawn) => drop(table.give_back_loser(drawn, &mut Vec::new())),
            Draws::Copied(copied) => table.give_back_copied(&copied, &mut Vec::new()),
        }
        if !is_tracked {
            table.end_untracked(lives.len() as u64);
        }
        if resets == self.resets {
            lives.into_iter().for_each(|life| self.undo(table, life, is_tracked));
        }
    }

    fn undo(&mut self, table: &Table, life: usize, is_tracked: bool) {
        let undelivered = self.undelivered().get(&life).copied().unwrap_or(0);
        let Life { key, place, plain, .. } = self.lives[life];
        let is_away = matches!(place, Place::Away { .. });
        if is_away && self.items.contains_key(&key) {
            return;
        }
        self.lives[life].undone += 1;
        self.limiter.samples -= 1;
        let times = self.lives[life].times_sampled();
        if let Place::Away { below, .. } = place
            && !is_tracked
            && times + 1 - undelivered == below
        {
            self.now += 1;
            self.lives[life].put_again = self.now;
        }
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
        self.expect_untracked(table);
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

    /// As the owner of a table does when its options change.
    fn expect_untracked(&self, table: &mut Table) {
        let untracked = self.held.iter().filter(|held| !held.is_tracked).map(|held| held.lives.len()).sum::<usize>();
        if !self.tracks && table.config().counts_samples() {
            table.expect_untracked(untracked as u64);
        }
    }

    fn limit(&mut self, table: &mut Table, changes: &TableChanges) {
        let max_size = changes.max_size.unwrap_or(self.config.max_size);
        let limiter = changes.rate_limiter.clone().unwrap_or_else(|| self.config.rate_limiter.clone());
        let Ok(mut shrinking) = table.configure(changes) else {
            assert!(limiter.min_size_to_sample > max_size as i64);
            return;
        };
        self.expect_untracked(table);
        while table.shrink(&mut shrinking, 1, &mut Vec::new()) {}
        self.limiter.config = limiter.clone();
        self.config.rate_limiter = limiter;
        self.config.max_size = max_size;
        self.config.max_bytes = changes.max_bytes.unwrap_or(self.config.max_bytes);
        self.tracks |= self.config.counts_samples();
        let over_size = (self.items.len() as u64).saturating_sub(max_size);
        let over_bytes = (self.items.len() as u64 - over_size).saturating_sub(self.max_items_by_bytes());
        self.evict(table, over_size + over_bytes);
        self.removed.max_size += over_size;
        self.removed.max_bytes += over_bytes;
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

    /// The numbers of the lives of the draws that are held and tracked, and how many draws of each.
    fn undelivered(&self) -> BTreeMap<usize, i32> {
        let mut undelivered: BTreeMap<usize, i32> = BTreeMap::new();
        let held = self.held.iter().filter(|held| held.is_tracked && held.resets == self.resets);
        held.flat_map(|held| &held.lives).for_each(|life| *undelivered.entry(*life).or_default() += 1);
        undelivered
    }

    /// How often items were drawn, without the draws that are held and tracked.
    pub fn received(&self) -> Vec<i32> {
        let mut received: Vec<_> = self.lives.iter().map(Life::times_sampled).collect();
        self.undelivered().into_iter().for_each(|(number, draws)| received[number] -= draws);
        received
    }

    fn note_received(&mut self) {
        for (life, times) in self.received().into_iter().enumerate() {
            let (least, most) = &mut self.lives[life].received;
            (*least, *most) = (times.min(*least), times.max(*most));
        }
    }

    /// What a checkpoint saves: the table, but draws that are held and tracked have not happened.
    pub fn saved(&self) -> Saved {
        let undelivered = self.undelivered();
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
        let mut lives: Vec<_> = saved.into_values().collect();
        lives.sort_unstable();
        Saved { lives, limiter, num_unique_samples: unique, num_deleted_episodes: deleted_episodes }
    }

    pub fn check_snapshot(&self, table: &Table) {
        let saved = self.saved();
        let snapshot = table.snapshot_without_flights();
        let received = self.received();
        let items = saved.lives.iter().map(|&number| {
            let Life { key, plain, .. } = &self.lives[number];
            (*key, plain.priority, received[number])
        });
        let found = snapshot.items().map(|item| (item.key, item.priority, item.times_sampled));
        assert_eq!(found.collect::<Vec<_>>(), items.collect::<Vec<_>>());
        assert_eq!(snapshot.num_items(), saved.lives.len());
        assert_eq!(snapshot.largest_priority.unwrap_or_default(), self.largest);
        assert_eq!(snapshot.limiter, saved.limiter);
        assert_eq!(snapshot.num_unique_samples, saved.num_unique_samples);
        assert_eq!(snapshot.num_deleted_episodes, saved.num_deleted_episodes);
    }

    /// What the table says of its largest priority.
    fn told_largest(&self) -> f64 {
        if self.largest == 0.0 { 1.0 } else { self.largest }
    }

    pub fn check(&self, table: &mut Table) {
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
