//! The status of a table and of the requests that wait for it.

use super::handle::TableHandle;
use super::requests::{InsertWork, Operation, Requests, SampleWork, Work};
use super::wait_histogram::WaitHistogram;
use reverb_core::{RateLimiter, TableInfo};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The status of a table: [`TableInfo`] and the state of its queues.
#[derive(Debug, Clone)]
pub struct TableStatus {
    /// Definition and counts of the table.
    pub info: TableInfo,
    /// Number of inserts that wait.
    pub waiting_inserts: usize,
    /// Number of draws that wait.
    pub waiting_samples: usize,
    /// What the first waiting insert waits for. `None` if no insert waits.
    pub insert_wait: Option<String>,
    /// What the first waiting draw waits for. `None` if no draw waits.
    pub sample_wait: Option<String>,
    /// Who makes the first waiting insert; see [`crate::Peer`]. `None` if no insert waits.
    pub insert_peer: Option<String>,
    /// Who makes the first waiting draw. `None` if no draw waits.
    pub sample_peer: Option<String>,
    /// Time that the first waiting insert has waited. Zero if no insert waits.
    pub longest_insert_wait: Duration,
    /// Time that the first waiting draw has waited. Zero if no draw waits.
    pub longest_sample_wait: Duration,
    /// How long inserts have waited that do not wait any more.
    pub insert_waits: WaitHistogram,
    /// How long draws have waited that do not wait any more.
    pub sample_waits: WaitHistogram,
    /// Number of samples that were drawn but not received yet.
    pub undelivered: u64,
    /// Times with waiting requests, for `TableWorkerTime`.
    pub waited: WaitTimes,
}

impl TableStatus {
    /// Makes the status of a table whose queues are not known.
    pub fn without_queues(info: TableInfo, waited: WaitTimes) -> Self {
        Self {
            info,
            waiting_inserts: 0,
            waiting_samples: 0,
            insert_wait: None,
            sample_wait: None,
            insert_peer: None,
            sample_peer: None,
            longest_insert_wait: Duration::ZERO,
            longest_sample_wait: Duration::ZERO,
            insert_waits: WaitHistogram::default(),
            sample_waits: WaitHistogram::default(),
            undelivered: 0,
            waited,
        }
    }
}

/// Times during which a table had waiting requests, in milliseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct WaitTimes {
    /// Time since the table was created.
    pub alive_ms: u64,
    /// Time during which an insert waited.
    pub inserts_ms: u64,
    /// Time during which a draw waited.
    pub samples_ms: u64,
}

/// The few numbers of a table that are recorded each second. Reading them costs the same for every table.
#[derive(Debug, Clone)]
pub struct TablePulse {
    /// Number of items.
    pub items: u64,
    /// Size in bytes of the chunks that items refer to; each chunk counts once.
    pub bytes: u64,
    /// The rate limiter and what it has counted.
    pub limiter: RateLimiter,
    /// Number of inserts that wait.
    pub waiting_inserts: usize,
    /// Number of draws that wait.
    pub waiting_samples: usize,
}

fn longest_wait<W: Work>(requests: &Requests<W>) -> Duration {
    let mut waiters = requests.iter().filter_map(|request| request.waiter.as_ref());
    waiters.next().map_or(Duration::ZERO, |waiter| waiter.since.elapsed())
}

fn first_peer<W: Work>(requests: &Requests<W>) -> Option<String> {
    Some(requests.front()?.waiter.as_ref()?.peer.to_string())
}

impl TableHandle {
    /// Returns the status of the table and its queues.
    pub fn status(&self) -> TableStatus {
        self.upkeep(|state| {
            let info = state.table.upkeep().info();
            let (table, name) = (&state.table, self.name());
            let (inserts, samples) = (&state.queues.inserts, &state.queues.samples);
            TableStatus {
                info,
                waiting_inserts: inserts.len(),
                waiting_samples: samples.len(),
                insert_wait: (!inserts.is_empty()).then(|| InsertWork::explain(table, name)),
                sample_wait: (!samples.is_empty()).then(|| SampleWork::explain(table, name)),
                insert_peer: first_peer(inserts),
                sample_peer: first_peer(samples),
                longest_insert_wait: longest_wait(inserts),
                longest_sample_wait: longest_wait(samples),
                insert_waits: self.0.waits[Operation::Insert as usize].read(),
                sample_waits: self.0.waits[Operation::Sample as usize].read(),
                undelivered: self.0.undelivered.load(Relaxed),
                waited: WaitTimes {
                    alive_ms: state.made.elapsed().as_millis() as u64,
                    inserts_ms: state.insert_clock.total_ms(),
                    samples_ms: state.sample_clock.total_ms(),
                },
            }
        })
    }

    /// Returns a few numbers of the table.
    pub fn pulse(&self) -> TablePulse {
        self.upkeep(|state| TablePulse {
            items: state.table.len() as u64,
            bytes: state.table.bytes(),
            limiter: state.table.limiter().clone(),
            waiting_inserts: state.queues.inserts.len(),
            waiting_samples: state.queues.samples.len(),
        })
    }
}
