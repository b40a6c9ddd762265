//! Ledgers of the items that each writer has inserted.
//!
//! After a lost connection, a writer sends its unconfirmed items again. The ledger tells which of them are in their
//! tables already, so that no item is inserted twice.

use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, OwnedMutexGuard};

/// Minimum time that the ledger of a disconnected writer is kept. A writer gives up reconnecting earlier.
const KEEP_TIME: Duration = Duration::from_secs(3600);
/// Number of writers at which the server removes old ledgers.
const MANY_WRITERS: usize = 4096;

/// The ledgers of all writers of a server.
#[derive(Debug, Default)]
pub struct Ledgers {
    writers: Mutex<HashMap<u64, WriterEntry>>,
}

#[derive(Debug)]
struct WriterEntry {
    writer: Arc<WriterRecord>,
    last_used: Instant,
}

#[derive(Debug, Default)]
struct WriterRecord {
    ledger: Arc<tokio::sync::Mutex<Ledger>>,
    /// Tells the stream that holds the ledger to release it.
    takeover: Notify,
}

/// The sequence numbers of the items that one writer has inserted.
///
/// Numbers are kept as ranges, so the memory grows with the items that are missing in between, whatever the number of
/// items inserted after them.
#[derive(Debug, Default)]
pub struct Ledger {
    /// All items up to this sequence number were inserted.
    through: u64,
    /// Further items that were inserted: the last number of each range by its first. Between two ranges, and before the
    /// first, at least one number is missing.
    beyond: BTreeMap<u64, u64>,
}

impl Ledger {
    /// Whether the item with this sequence number was inserted.
    #[inline]
    pub fn has(&self, sequence: u64) -> bool {
        sequence <= self.through
            || self.beyond.range(..=sequence).next_back().is_some_and(|(_, &last)| sequence <= last)
    }

    /// Records that the writer will not send items up to this sequence number again.
    pub fn settle(&mut self, through: u64) {
        if through > self.through {
            self.through = through;
            self.advance();
        }
    }

    /// Records that the item was inserted, or that it was refused and must not be inserted.
    pub fn add(&mut self, sequence: u64) {
        if self.through.checked_add(1) == Some(sequence) {
            self.through = sequence;
            self.advance();
        } else if sequence > self.through {
            self.add_beyond(sequence);
        }
    }

    /// Adds a number after a missing one: to the ranges that it touches, or as a new range.
    fn add_beyond(&mut self, sequence: u64) {
        let after = sequence.checked_add(1).and_then(|next| self.beyond.remove(&next));
        let last = after.unwrap_or(sequence);
        match self.beyond.range_mut(..=sequence).next_back() {
            Some((_, end)) if *end >= sequence - 1 => *end = last.max(*end),
            _ => drop(self.beyond.insert(sequence, last)),
        }
    }

    /// Removes the ranges that no missing number separates from the first numbers.
    fn advance(&mut self) {
        while let Some(range) = self.beyond.first_entry()
            && *range.key() <= self.through.saturating_add(1)
        {
            self.through = self.through.max(range.remove());
        }
    }
}

/// Exclusive access of a stream to the ledger of its writer.
#[derive(Debug)]
pub struct LedgerGuard {
    /// The ledger, locked until this guard is dropped.
    pub ledger: OwnedMutexGuard<Ledger>,
    writer: Arc<WriterRecord>,
}

impl LedgerGuard {
    /// Completes when a newer stream of the same writer needs the ledger.
    pub async fn taken_over(&self) {
        self.writer.takeover.notified().await;
    }
}

impl Ledgers {
    /// Takes the ledger of a writer. Tells a stream that holds it to release it, and waits for that.
    pub async fn take(&self, writer_id: u64) -> LedgerGuard {
        let writer = {
            let now = Instant::now();
            let mut writers = self.writers.lock();
            if writers.len() >= MANY_WRITERS {
                writers.retain(|_, entry| {
                    Arc::strong_count(&entry.writer) > 1 || now.duration_since(entry.last_used) < KEEP_TIME
                });
            }
            let entry =
                writers.entry(writer_id).or_insert_with(|| WriterEntry { writer: Arc::default(), last_used: now });
            entry.last_used = now;
            entry.writer.clone()
        };
        let ledger = match writer.ledger.clone().try_lock_owned() {
            Ok(ledger) => ledger,
            Err(_) => {
                writer.takeover.notify_one();
                writer.ledger.clone().lock_owned().await
            }
        };
        LedgerGuard { ledger, writer }
    }

    /// Removes the ledger of a writer that has ended and will not send items again.
    pub fn forget(&self, writer_id: u64) {
        self.writers.lock().remove(&writer_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// The numbers up to 50 that the ledger has.
    fn known(ledger: &Ledger) -> Vec<u64> {
        (1..=50).filter(|&sequence| ledger.has(sequence)).collect()
    }

    #[test]
    fn a_ledger_knows_what_came_out_of_order() {
        let mut ledger = Ledger::default();
        [1, 3, 2, 7, 5].into_iter().for_each(|sequence| ledger.add(sequence));
        assert_eq!(known(&ledger), [1, 2, 3, 5, 7]);
        assert_eq!((ledger.through, ledger.beyond.len()), (3, 2));
        ledger.settle(4);
        assert_eq!((ledger.through, ledger.beyond.len()), (5, 1));
        ledger.settle(u64::MAX);
        assert_eq!((ledger.through, ledger.beyond.len()), (u64::MAX, 0));
    }

    #[test]
    fn a_ledger_grows_with_the_missing_items_only() {
        let mut ledger = Ledger::default();
        (2..100_000).filter(|sequence| sequence % 10_000 != 0).for_each(|sequence| ledger.add(sequence));
        assert_eq!((ledger.through, ledger.beyond.len()), (0, 10));
        (10_000..100_000).step_by(10_000).for_each(|sequence| ledger.add(sequence));
        assert_eq!(ledger.beyond.len(), 1);
        ledger.add(1);
        assert_eq!((ledger.through, ledger.beyond.len()), (99_999, 0));
    }

    proptest! {
        #[test]
        fn a_ledger_is_a_set_of_numbers(steps in prop::collection::vec((1_u64..50, prop::bool::weighted(0.1)), 0..60)) {
            let mut ledger = Ledger::default();
            let mut model = BTreeSet::new();
            for (sequence, settles) in steps {
                if settles {
                    ledger.settle(sequence);
                    model.extend(1..=sequence);
                } else {
                    ledger.add(sequence);
                    model.insert(sequence);
                }
                prop_assert_eq!(known(&ledger), model.iter().copied().collect::<Vec<_>>());
                let missing = (1..=50).filter(|number| !model.contains(number)).count();
                prop_assert!(ledger.beyond.len() <= missing);
            }
        }
    }
}
