//! Which items of a writer are in their tables: what is sent again after a lost connection is not inserted again.

use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, OwnedMutexGuard};

/// Writers that are not connected are forgotten after this time at the earliest. A writer gives up before that.
const KEEP_TIME: Duration = Duration::from_secs(3600);
/// Writers beyond which the server looks for some to forget.
const MANY_WRITERS: usize = 4096;

/// The ledgers of all writers of a server.
#[derive(Debug, Default)]
pub struct Ledgers {
    writers: Mutex<HashMap<u64, Entry>>,
}

#[derive(Debug)]
struct Entry {
    writer: Arc<Writer>,
    last_used: Instant,
}

#[derive(Debug, Default)]
struct Writer {
    ledger: Arc<tokio::sync::Mutex<Ledger>>,
    /// Tells the stream that has the ledger to give it up.
    takeover: Notify,
}

/// The items of one writer that were inserted, by sequence number.
#[derive(Debug, Default)]
pub struct Ledger {
    /// All up to this one.
    through: u64,
    /// And these.
    beyond: BTreeSet<u64>,
}

impl Ledger {
    /// Whether the item was inserted.
    pub fn has(&self, sequence: u64) -> bool {
        sequence <= self.through || self.beyond.contains(&sequence)
    }

    /// Notes that no item up to this one comes again.
    pub fn settle(&mut self, through: u64) {
        if through > self.through {
            self.through = through;
            self.beyond = through.checked_add(1).map(|next| self.beyond.split_off(&next)).unwrap_or_default();
            self.advance();
        }
    }

    /// Notes that it was, or that it never will be.
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

/// A stream's hold on its writer's ledger.
#[derive(Debug)]
pub struct Held {
    /// The ledger.
    pub ledger: OwnedMutexGuard<Ledger>,
    writer: Arc<Writer>,
}

impl Held {
    /// Completes when a newer stream of the writer wants the ledger.
    pub async fn taken_over(&self) {
        self.writer.takeover.notified().await;
    }
}

impl Ledgers {
    /// The ledger of a writer. A stream that has it is told to give it up, and is waited for.
    pub async fn take(&self, writer_id: u64) -> Held {
        let writer = {
            let now = Instant::now();
            let mut writers = self.writers.lock();
            if writers.len() >= MANY_WRITERS {
                writers.retain(|_, entry| {
                    Arc::strong_count(&entry.writer) > 1 || now.duration_since(entry.last_used) < KEEP_TIME
                });
            }
            let entry = writers.entry(writer_id).or_insert_with(|| Entry { writer: Arc::default(), last_used: now });
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
        Held { ledger, writer }
    }

    /// Forgets a writer that has ended, and has nothing to send again.
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
