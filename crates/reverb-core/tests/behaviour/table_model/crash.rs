//! A table that is made again from its effects, against what the model knows of the one that was lost.

use super::model::{Life, Model, Place};
use crate::common::plain::Plain;
use reverb_core::{Effect, EpisodeIds, NewItem, RemovalCounts, Replay, Table, TableSnapshot};

/// What is there after a crash.
pub struct Log {
    snapshot: TableSnapshot,
    effects: Vec<Effect>,
    /// The time of the snapshot.
    saved_at: u64,
}

impl Log {
    fn begin(table: &mut Table, saved_at: u64) -> Self {
        table.drain_effects(&mut Vec::new());
        let (snapshot, effects) = table.snapshot_for_effects();
        Self { snapshot, effects, saved_at }
    }

    /// Makes the table again.
    fn replay(&self) -> Table {
        let snapshot = &self.snapshot;
        let mut table = Table::new(snapshot.config.clone()).unwrap();
        for item in snapshot.items() {
            let new = NewItem {
                key: item.key,
                priority: item.priority,
                takes_largest: false,
                others: None,
                times_sampled: item.times_sampled,
                trajectory: item.trajectory,
            };
            table.restore_item(new, item.inserted_at).unwrap();
        }
        snapshot.largest_priority.iter().for_each(|&largest| table.restore_largest_priority(largest));
        let limiter = &snapshot.limiter;
        let (deleted, unique) = (snapshot.num_deleted_episodes, snapshot.num_unique_samples);
        table.restore_counters(limiter.inserts, limiter.samples, limiter.deletes, deleted, unique);
        let mut replay = Replay::new(table);
        self.effects.iter().for_each(|effect| replay.apply(effect.clone()).unwrap());
        replay.finish().unwrap()
    }
}

impl Model {
    pub fn begin_journal(&mut self, table: &mut Table) {
        table.begin_journal();
        self.log = Some(Log::begin(table, self.now));
    }

    pub fn save(&mut self, table: &mut Table) {
        self.log = Some(Log::begin(table, self.now));
        for (life, received) in self.received().into_iter().enumerate() {
            self.lives[life].received = (received, received);
        }
    }

    fn check_options(&self, table: &Table) {
        let (config, own) = (table.config(), &self.config);
        assert_eq!((config.max_size, config.max_bytes), (own.max_size, own.max_bytes));
        assert_eq!((config.max_times_sampled, &config.rate_limiter), (own.max_times_sampled, &own.rate_limiter));
    }

    /// Loses the table and goes on with one that is made again.
    pub fn crash(&mut self, table: &mut Table) {
        let Some(mut log) = self.log.take() else { return };
        table.drain_effects(&mut log.effects);
        *table = log.replay();
        self.check_options(table);
        let saved = self.saved();
        let received = self.received();
        let mut found = table.snapshot().items().collect::<Vec<_>>().into_iter();
        let mut lives = Vec::new();
        for number in saved.lives {
            let Life { key, plain, received: (least, most), put_again, .. } = self.lives[number];
            let item = found.next().expect("the item is there");
            assert_eq!((item.key, item.priority), (key, plain.priority));
            assert!(matches!(item.trajectory.chunks()[0].episodes, EpisodeIds::Same(episode) if episode == key));
            if self.config.max_times_sampled > 0 {
                assert_eq!(item.times_sampled, received[number], "draws of {key}");
            } else {
                assert!((least..=most).contains(&item.times_sampled), "draws of {key}");
            }
            // Checkpoints do not tell which of two items of one priority was changed later.
            let changed = plain.changed.max(put_again);
            let changed = if changed > log.saved_at { changed } else { plain.inserted };
            lives.push(Life::new(key, Plain { changed, ..plain }, item.times_sampled));
        }
        assert_eq!(found.next().map(|item| item.key), None);
        self.inside = lives.iter().enumerate().map(|(number, life)| (life.key, number)).collect();
        self.items = lives.iter().map(|life| (life.key, life.plain)).collect();
        assert!(lives.iter().all(|life| life.place == Place::Inside));
        self.largest = lives.iter().map(|life| life.plain.priority).fold(self.largest, f64::max);
        self.lives = lives;
        self.limiter = saved.limiter;
        self.num_unique_samples = saved.num_unique_samples;
        self.num_deleted_episodes = saved.num_deleted_episodes;
        self.tracks = self.config.counts_samples();
        (self.entered, self.returned, self.removed) = (self.items.len() as u64, 0, RemovalCounts::default());
        // Draws of the table that was lost do nothing to this one.
        self.resets += 1;
        for held in std::mem::take(&mut self.held) {
            self.give_back(table, held);
        }
        self.begin_journal(table);
    }
}
