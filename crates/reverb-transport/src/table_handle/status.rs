//! What a table tells about itself and those who wait for it.

use reverb_core::TableInfo;
use std::time::{Duration, Instant};

/// What a table is doing, beside what [`TableInfo`] says.
#[derive(Debug, Clone)]
pub struct TableStatus {
    /// The table itself.
    pub info: TableInfo,
    /// Inserts that wait.
    pub waiting_inserts: usize,
    /// Draws that wait.
    pub waiting_samples: usize,
    /// What the first waiting insert waits for.
    pub insert_wait: Option<String>,
    /// What the first waiting draw waits for.
    pub sample_wait: Option<String>,
    /// Samples drawn and not yet received.
    pub undelivered: u64,
    /// Time spent, for `TableWorkerTime`.
    pub waited: WaitTimes,
}

/// Milliseconds that the table had waiting inserts, and waiting draws.
#[derive(Debug, Clone, Copy, Default)]
pub struct WaitTimes {
    /// Since the table was made.
    pub alive_ms: u64,
    /// An insert waited.
    pub inserts_ms: u64,
    /// A draw waited.
    pub samples_ms: u64,
}

/// Adds up the time in which something waits.
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
