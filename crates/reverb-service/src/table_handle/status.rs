//! The status of a table and of the requests that wait for it.

use super::wait_histogram::WaitHistogram;
use reverb_core::TableInfo;
use std::time::{Duration, Instant};

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

/// Measures the total time during which requests wait.
#[derive(Debug, Default)]
pub struct WaitClock {
    since: Option<Instant>,
    total: Duration,
}

impl WaitClock {
    pub fn set(&mut self, waits: bool) {
        match (self.since, waits) {
            (None, true) => self.since = Some(Instant::now()),
            (Some(since), false) => {
                self.total += since.elapsed();
                self.since = None;
            }
            _ => {}
        }
    }

    pub fn total_ms(&self) -> u64 {
        (self.total + self.since.map_or(Duration::ZERO, |since| since.elapsed())).as_millis() as u64
    }
}
