//! Ledgers of the items that each writer has inserted.
//!
//! After a lost connection, a writer sends its unconfirmed items again. The ledger tells which of them are in their
//! tables already, so that no item is inserted twice.

use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
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
#[derive(Debug, Default)]
pub struct Ledger {
    /// All items up to this sequence number were inserted.
    through: u64,
    /// Further items that were inserted.
    beyond: BTreeSet<u64>,
}

impl Ledger {
    /// Whether the item with this sequence number was inserted.
    #[inline]
    pub fn has(&self, sequence: u64) -> bool {
        sequence <= self.through || self.beyond.contains(&sequence)
    }

    /// Records that the writer will not send items up to this sequence number again.
    pub fn settle(&mut self, through: u64) {
        if through > self.through {
            self.through = through;
            self.beyond = through.checked_add(1).map(|next| self.beyond.split_off(&next)).unwrap_or_default();
            self.advance();
        }
    }

    /// Records that the item was inserted, or that it was refused and must not be inserted.
    pub fn add(&mut self, sequence: u64) {
        if sequence == self.through.wrapping_add(1) {
            self.through = sequence;
            self.advance();
        } else if sequence > self.through {
            self.beyond.insert(sequence);
        }
    }
}

impl Ledger {
    fn advance(&mut self) {
        while let Some(next) = self.through.checked_add(1)
            && self.beyond.first() == Some(&next)
        {
            self.beyond.pop_first();
            self.through += 1;
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

    #[test]
    fn a_ledger_knows_what_came_out_of_order() {
        let mut ledger = Ledger::default();
        for sequence in [1, 3, 2, 7, 5] {
            ledger.add(sequence);
        }
        let known: Vec<_> = (1..=8).filter(|&sequence| ledger.has(sequence)).collect();
        assert_eq!(known, [1, 2, 3, 5, 7]);
        assert_eq!((ledger.through, ledger.beyond.len()), (3, 2));
        ledger.settle(4);
        assert_eq!((ledger.through, ledger.beyond.len()), (5, 1));
        ledger.settle(u64::MAX);
        assert_eq!((ledger.through, ledger.beyond.len()), (u64::MAX, 0));
    }
}
