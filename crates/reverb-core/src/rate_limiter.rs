//! May an insert, or a sample, go now? Counters and arithmetic only: nothing here waits.

use crate::{Error, Result};

/// The ratio between inserts and samples.
///
/// With `diff = inserts × samples_per_insert - samples`, a sample must leave `diff` at or above `min_diff`, and an
/// insert must leave it at or below `max_diff`.
#[derive(Debug, Clone, PartialEq)]
pub struct RateLimiterConfig {
    /// Average number of samples for each insert.
    pub samples_per_insert: f64,
    /// Number of items that a table must hold before the first sample, and to which it may always refill.
    pub min_size_to_sample: i64,
    /// Lower bound of `diff`; `-f64::MAX` for none.
    pub min_diff: f64,
    /// Upper bound of `diff`; `f64::MAX` for none.
    pub max_diff: f64,
}

impl RateLimiterConfig {
    /// Checks that the numbers can limit a table.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `samples_per_insert` is not positive and finite, `min_size_to_sample` is below 1,
    /// a bound is NaN, or `min_diff` is above `max_diff`.
    pub fn validate(&self) -> Result<()> {
        let Self { samples_per_insert, min_size_to_sample, min_diff, max_diff } = *self;
        if !(samples_per_insert > 0.0 && samples_per_insert.is_finite()) {
            return Err(Error::invalid(format!(
                "samples_per_insert must be positive and finite, got {samples_per_insert}"
            )));
        }
        if min_size_to_sample < 1 {
            return Err(Error::invalid(format!("min_size_to_sample must be at least 1, got {min_size_to_sample}")));
        }
        if min_diff.is_nan() || max_diff.is_nan() {
            return Err(Error::invalid(format!(
                "min_diff and max_diff must be numbers, got {min_diff} and {max_diff}"
            )));
        }
        if min_diff > max_diff {
            return Err(Error::invalid(format!("min_diff ({min_diff}) must not be above max_diff ({max_diff})")));
        }
        Ok(())
    }

    /// Whether the number of samples can ever block a sample or an insert.
    pub fn counts_samples(&self) -> bool {
        self.min_diff > -f64::MAX || self.max_diff < f64::MAX
    }
}

/// A configuration and the events counted so far.
#[derive(Debug, Clone, PartialEq)]
pub struct RateLimiter {
    /// The bounds.
    pub config: RateLimiterConfig,
    /// Number of new items inserted.
    pub inserts: i64,
    /// Number of samples.
    pub samples: i64,
    /// Number of items removed for any reason.
    pub deletes: i64,
}

impl RateLimiter {
    /// Creates a rate limiter that has counted no events.
    pub fn new(config: RateLimiterConfig) -> Self {
        Self { config, inserts: 0, samples: 0, deletes: 0 }
    }

    /// Whether `n` samples are allowed now.
    pub fn can_sample(&self, n: i64) -> bool {
        self.size() >= self.config.min_size_to_sample && self.diff(self.inserts) - n as f64 >= self.config.min_diff
    }

    /// Whether `n` inserts are allowed now. A table may always refill to `min_size_to_sample`: otherwise it could never
    /// be sampled again after deletes.
    pub fn can_insert(&self, n: i64) -> bool {
        self.size().saturating_add(n) <= self.config.min_size_to_sample
            || self.diff(self.inserts.saturating_add(n)) <= self.config.max_diff
    }

    /// Number of samples that inserts have allowed, less those that were made.
    pub fn balance(&self) -> f64 {
        self.diff(self.inserts)
    }

    fn size(&self) -> i64 {
        self.inserts.saturating_sub(self.deletes)
    }

    fn diff(&self, inserts: i64) -> f64 {
        inserts as f64 * self.config.samples_per_insert - self.samples as f64
    }
}
