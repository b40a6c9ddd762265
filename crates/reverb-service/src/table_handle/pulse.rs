//! The few numbers of a table that are recorded each second.

use super::handle::TableHandle;
use reverb_core::RateLimiter;

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

impl TableHandle {
    /// Returns a few numbers of the table.
    pub fn pulse(&self) -> TablePulse {
        let state = self.0.state.lock();
        TablePulse {
            items: state.table.len() as u64,
            bytes: state.table.bytes(),
            limiter: state.table.limiter().clone(),
            waiting_inserts: state.inserts.len(),
            waiting_samples: state.samples.len(),
        }
    }
}
