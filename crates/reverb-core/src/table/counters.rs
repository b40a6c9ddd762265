//! Counts of what happened in a table, for those who watch it.

/// Counts of a table since it was created, beside those of its rate limiter and of its removals.
///
/// A checkpoint does not contain them, and a reset does not clear them.
#[derive(Debug, Clone, Default)]
pub struct TableCounters {
    /// Number of items whose priority was set after their insert.
    pub priority_updates: u64,
    /// Size in bytes of the rows of inserted items.
    pub insert_bytes: u64,
    /// Size in bytes of the rows of drawn items.
    pub sample_bytes: u64,
    /// Number of items that left the table without a draw.
    pub unsampled_removals: u64,
    /// Time of the latest insert in nanoseconds since the Unix epoch. 0 before the first.
    pub last_insert_nanos: u64,
    /// Time of the latest draw in nanoseconds since the Unix epoch. 0 before the first.
    pub last_sample_nanos: u64,
    /// Seconds between the insert of an item and a draw of it.
    pub sample_age_seconds: Log2Histogram,
    /// Number of draws that items had when they left the table.
    pub removed_times_sampled: Log2Histogram,
}

/// Number of buckets of a [`Log2Histogram`].
pub const LOG2_BUCKETS: usize = 40;

/// A histogram whose bucket bounds are powers of two.
#[derive(Debug, Clone)]
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
