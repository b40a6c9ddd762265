//! What a table of a shard counts for the limiter of its cluster, with a room and without one.

use reverb_core::Table;
use reverb_core::published_room::{Counts, Incarnation, Tally};
use std::time::{SystemTime, UNIX_EPOCH};

/// The counts of one start of a table, and what was known of those of all shards before it.
#[derive(Debug)]
pub struct StartCounts {
    /// The number of the start. A later one has a greater number.
    pub number: u64,
    /// What was known before. Empty if the table has always been alone.
    pub known: Tally,
    counts: Counts,
    /// What is counted of the inserts of the table and of its draws. Of draws the most that were kept at one time: one that
    /// goes back makes room for the next, which is not counted.
    seen: (u64, u64),
}

/// Number of items by the limiter of the table.
fn size_of(table: &Table) -> u64 {
    let limiter = table.limiter();
    count(limiter.inserts.saturating_sub(limiter.deletes))
}

fn count(of_limiter: i64) -> u64 {
    u64::try_from(of_limiter).unwrap_or(0)
}

fn totals(table: &Table) -> (u64, u64) {
    (table.totals().0, table.kept_draws())
}

impl StartCounts {
    /// Starts now, after the start with this number. What a table has counted that has always been alone becomes a part of
    /// the sums.
    pub fn new(table: &Table, known: Tally, before: u64) -> Self {
        let limiter = table.limiter();
        let counts = if known.is_empty() {
            let (inserts, samples, deletes) = (count(limiter.inserts), count(limiter.samples), count(limiter.deletes));
            Counts { restored: 0, inserts, deletes, samples }
        } else {
            Counts { restored: size_of(table), ..Counts::default() }
        };
        // The time in microseconds, since no process knows of all starts before it.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_micros() as u64);
        Self { number: now.max(before + 1), known, counts, seen: totals(table) }
    }

    /// Starts again, for the same table.
    pub fn again(&self, table: &Table, known: Tally) -> Self {
        Self { seen: self.seen, ..Self::new(table, known, self.number) }
    }

    /// Counts what has happened in the table. Returns the counts.
    pub fn count(&mut self, table: &Table) -> Counts {
        let (inserts, kept) = totals(table);
        let most_kept = self.seen.1.max(kept);
        self.counts.inserts += inserts - self.seen.0;
        self.counts.samples += most_kept - self.seen.1;
        self.seen = (inserts, most_kept);
        let deletes = (self.counts.restored + self.counts.inserts).saturating_sub(size_of(table));
        self.counts.deletes = self.counts.deletes.max(deletes);
        self.counts
    }

    /// What is known by now of the counts of all shards, without a room. Empty for a table that has always been alone.
    pub fn tally(&mut self, shard: u32, table: &Table) -> Tally {
        let own = (Incarnation { shard, number: self.number }, self.count(table));
        let own = (!self.known.is_empty()).then_some(own);
        self.known.incarnations().chain(own).collect()
    }
}
