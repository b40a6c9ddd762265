//! Counts of how long requests have waited.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

// limit (HTTP, metrics and logs): buckets of the histograms of waits | one, two and five of each decade from
// {WAIT_BOUNDS.0:time} to {WAIT_BOUNDS.-1:time} | longer waits share the last bucket
/// Upper bounds of all buckets but the last, in seconds.
pub const WAIT_BOUNDS: [f64; 19] = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0,
];

/// How long requests have waited, by buckets.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WaitHistogram {
    /// Numbers of waits. Bucket `i` counts those longer than the bound before that of `i`, up to [`WAIT_BOUNDS`] of `i`.
    /// The last bucket counts those longer than all bounds.
    pub counts: [u64; WAIT_BOUNDS.len() + 1],
    /// Sum of all waits in seconds.
    pub sum_seconds: f64,
}

/// A histogram that is counted up without the lock of its table.
#[derive(Debug, Default)]
pub struct WaitCounts {
    counts: [AtomicU64; WAIT_BOUNDS.len() + 1],
    sum_nanos: AtomicU64,
}

impl WaitCounts {
    /// Counts a wait.
    pub fn add(&self, waited: Duration) {
        let seconds = waited.as_secs_f64();
        self.counts[WAIT_BOUNDS.partition_point(|&bound| bound < seconds)].fetch_add(1, Relaxed);
        self.sum_nanos.fetch_add(u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Returns the histogram.
    pub fn read(&self) -> WaitHistogram {
        WaitHistogram {
            counts: self.counts.each_ref().map(|count| count.load(Relaxed)),
            sum_seconds: self.sum_nanos.load(Relaxed) as f64 / 1e9,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_counted_in_the_bucket_of_the_next_bound() {
        let counts = WaitCounts::default();
        for milliseconds in [0, 1, 2, 3, 1_000_000, 1_000_001] {
            counts.add(Duration::from_millis(milliseconds));
        }
        let histogram = counts.read();
        assert_eq!(histogram.counts[..4], [2, 1, 1, 0]);
        assert_eq!(histogram.counts[18..], [1, 1]);
        assert_eq!(histogram.counts.iter().sum::<u64>(), 6);
        assert!((histogram.sum_seconds - 2000.007).abs() < 1e-9, "{}", histogram.sum_seconds);
    }
}
