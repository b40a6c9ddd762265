//! The status of a table and of the requests that wait for it.

use reverb_core::TableInfo;
use std::time::{Duration, Instant};

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
}

/// Makes the status of a table of whose requests nothing is known.
impl From<TableInfo> for TableStatus {
    fn from(info: TableInfo) -> Self {
        Self { info, insert_wait: None, sample_wait: None, insert_peer: None, sample_peer: None }
    }
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

    pub fn total_seconds(&self) -> f64 {
        (self.total + self.since.map_or(Duration::ZERO, |since| since.elapsed())).as_secs_f64()
    }
}
