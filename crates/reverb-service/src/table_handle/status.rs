//! The status of a table and of the requests that wait for it.

use super::handle::TableHandle;
use super::requests::{Operation, Requests, Work};
use crate::store::StoreLog;
use reverb_core::{RateLimiter, TableInfo, WaitingBatches};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The status of a table: its figures, and the first of the requests that wait for it.
#[derive(Debug, Clone)]
pub struct TableStatus {
    /// Definition and figures of the table.
    pub info: TableInfo,
    /// What the first waiting insert waits for. `None` if no insert waits.
    pub insert_wait: Option<String>,
    /// What the first waiting draw waits for. `None` if no draw waits.
    pub sample_wait: Option<String>,
    /// Who makes the first waiting insert; see [`crate::Peer`]. `None` if no insert waits.
    pub insert_peer: Option<String>,
    /// Who makes the first waiting draw. `None` if no draw waits.
    pub sample_peer: Option<String>,
    /// The batches of both. Only the server itself knows them.
    pub waiting: WaitingBatches,
    /// The log of the table's server; [`crate::Replay::status`] sets it. `None` if the server is not durable.
    pub log: Option<StoreLog>,
}

/// Makes the status of a table of whose requests nothing is known.
impl From<TableInfo> for TableStatus {
    fn from(info: TableInfo) -> Self {
        let waiting = WaitingBatches::default();
        Self { info, insert_wait: None, sample_wait: None, insert_peer: None, sample_peer: None, waiting, log: None }
    }
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
    /// Number of items inserted by this process.
    pub inserts: u64,
    /// Number of items sampled in this process.
    pub samples: u64,
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

fn first_batch<W: Work>(requests: &Requests<W>) -> Option<u64> {
    requests.front().map(|request| request.work.missing())
}

impl TableHandle {
    /// Returns the status of the table and its queues.
    pub fn status(&self) -> TableStatus {
        self.upkeep(|state| {
            let of_table = state.table.info();
            let (table, room, name) = (&state.table, state.room.as_deref(), self.name());
            let (inserts, samples) = (&state.queues.inserts, &state.queues.samples);
            // Draws that wait have taken items, too.
            let taken: usize = samples.iter().map(|request| request.work.drawn.len()).sum();
            let info = TableInfo {
                age_seconds: state.made.elapsed().as_secs_f64(),
                insert_blocked_seconds: state.insert_clock.total_seconds(),
                sample_blocked_seconds: state.sample_clock.total_seconds(),
                undelivered_samples: Some(self.0.undelivered.load(Relaxed) + taken as u64),
                inserts_by_client: Some(state.inserts_by_client.counts()),
                waiting_inserts: Some(state.queues.num_inserts() as u64),
                waiting_samples: Some(samples.len() as u64),
                longest_insert_wait_seconds: Some(longest_wait(inserts).as_secs_f64()),
                longest_sample_wait_seconds: Some(longest_wait(samples).as_secs_f64()),
                insert_wait_seconds: Some(self.0.waits[Operation::Insert as usize].read()),
                sample_wait_seconds: Some(self.0.waits[Operation::Sample as usize].read()),
                ..of_table
            };
            TableStatus {
                info,
                insert_wait: inserts.front().map(|request| request.work.explain(table, room, name)),
                sample_wait: samples.front().map(|request| request.work.explain(table, room, name)),
                insert_peer: first_peer(inserts),
                sample_peer: first_peer(samples),
                waiting: WaitingBatches { inserts: first_batch(inserts), samples: first_batch(samples) },
                log: None,
            }
        })
    }

    /// Returns a few numbers of the table.
    pub fn pulse(&self) -> TablePulse {
        self.upkeep(|state| {
            let (inserts, samples) = state.table.totals();
            TablePulse {
                items: state.table.len() as u64,
                bytes: state.table.bytes(),
                limiter: state.table.limiter().clone(),
                inserts,
                samples,
                waiting_inserts: state.queues.num_inserts(),
                waiting_samples: state.queues.samples.len(),
            }
        })
    }
}
