//! Changes of a table's options, as messages.

use crate::replay_v1::proto::{ConfigureRequest, RateLimiter};
use reverb_core::{RateLimiterConfig, TableChanges};

/// Makes the message of a rate limiter's settings.
pub fn limiter_to_wire(limiter: &RateLimiterConfig) -> RateLimiter {
    let RateLimiterConfig { samples_per_insert, min_size_to_sample, min_diff, max_diff } = *limiter;
    RateLimiter { samples_per_insert, min_size_to_sample, min_diff, max_diff }
}

/// Reads a rate limiter's settings, which are not checked.
pub fn limiter_from_wire(limiter: &RateLimiter) -> RateLimiterConfig {
    let RateLimiter { samples_per_insert, min_size_to_sample, min_diff, max_diff } = *limiter;
    RateLimiterConfig { samples_per_insert, min_size_to_sample, min_diff, max_diff }
}

pub fn changes_to_wire(table: &str, changes: &TableChanges) -> ConfigureRequest {
    let rate_limiter = changes.rate_limiter.as_ref().map(limiter_to_wire);
    ConfigureRequest {
        table: table.into(),
        max_size: changes.max_size,
        max_bytes: changes.max_bytes.map(|limit| limit.unwrap_or(0)),
        max_times_sampled: changes.max_times_sampled,
        rate_limiter,
    }
}

/// Returns the name of the table as well.
pub fn changes_from_wire(request: ConfigureRequest) -> (String, TableChanges) {
    let ConfigureRequest { table, max_size, max_bytes, max_times_sampled, rate_limiter } = request;
    let rate_limiter = rate_limiter.as_ref().map(limiter_from_wire);
    let max_bytes = max_bytes.map(|limit| Some(limit).filter(|&limit| limit > 0));
    (table, TableChanges { max_size, max_bytes, max_times_sampled, rate_limiter })
}
