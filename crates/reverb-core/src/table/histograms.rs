//! Histograms of what happened in a table.

/// Number of buckets of a [`Log2Histogram`].
pub const LOG2_BUCKETS: usize = 40;

/// A histogram whose bucket bounds are powers of two.
#[derive(Debug, Clone, PartialEq)]
pub struct Log2Histogram {
    /// Numbers of values by bucket. Bucket 0 counts values up to [`Log2Histogram::bound`] of 0. Bucket `i` counts values
    /// above the bound of `i - 1`, up to the bound of `i`. The last bucket has no upper bound.
    pub counts: [u64; LOG2_BUCKETS],
    /// Sum of the values.
    pub sum: f64,
    /// Binary exponent of the bound of bucket 0.
    pub first_exponent: i32,
}

impl Default for Log2Histogram {
    fn default() -> Self {
        Self { counts: [0; LOG2_BUCKETS], sum: 0.0, first_exponent: 0 }
    }
}

impl Log2Histogram {
    /// Returns the upper bound of a bucket; infinity for the last one.
    pub fn bound(&self, bucket: usize) -> f64 {
        if bucket + 1 >= LOG2_BUCKETS { f64::INFINITY } else { 2f64.powi(self.first_exponent + bucket as i32) }
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

// limit (HTTP, metrics and logs): buckets of the histograms of waits | one, two and five of each decade from
// {WAIT_BOUNDS.0:time} to {WAIT_BOUNDS.-1:time} | longer waits share the last bucket
/// Upper bounds of all buckets of a [`WaitHistogram`] but the last, in seconds.
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
