//! Reports the progress of a long save or load to the log.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time between two reports.
const PERIOD: Duration = Duration::from_secs(10);
/// Number of steps between two checks of the clock.
const STEPS: u64 = 256;

/// Counts steps, and reports them to the log every ten seconds.
#[derive(Debug)]
pub struct Progress {
    what: &'static str,
    path: PathBuf,
    done: u64,
    total: u64,
    begun: Instant,
    reported: Instant,
}

impl Progress {
    /// Starts counting. `total` is the number of steps, or 0 if it is not known.
    pub fn new(what: &'static str, path: &Path, total: u64) -> Self {
        let now = Instant::now();
        Self { what, path: path.into(), done: 0, total, begun: now, reported: now }
    }

    /// Counts one step, and reports the progress if a report is due.
    pub fn advance(&mut self) {
        self.done += 1;
        if self.done.is_multiple_of(STEPS) && self.reported.elapsed() >= PERIOD {
            self.reported = Instant::now();
            let Self { what, path, done, total, begun, .. } = self;
            let seconds = begun.elapsed().as_secs();
            let path = path.display();
            if *total > 0 {
                tracing::info!("{what} checkpoint {path}: {done} of {total} items after {seconds} s");
            } else {
                tracing::info!("{what} checkpoint {path}: {done} records after {seconds} s");
            }
        }
    }
}
