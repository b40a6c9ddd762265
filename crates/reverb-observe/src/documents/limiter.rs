//! Describes a rate limiter in numbers and in words.

use super::schema::LimiterDocument;
use reverb_core::{RateLimiterConfig, TableInfo, WaitingBatches};

/// Describes the rate limiter of a table where these batches wait.
pub fn limiter(info: &TableInfo, waiting: WaitingBatches) -> LimiterDocument {
    let limiter = info.limiter();
    let view = info.view(&limiter);
    let RateLimiterConfig { samples_per_insert, min_size_to_sample, min_diff, max_diff } = limiter.config;
    let bound = |value: f64| (value.abs() < f64::MAX).then_some(value);
    LimiterDocument {
        kind: view.kind().name(),
        samples_per_insert,
        min_size: min_size_to_sample,
        diff: view.diff(),
        min_diff: bound(min_diff),
        max_diff: bound(max_diff),
        ahead: view.ahead(),
        least_ahead: view.least_ahead(),
        most_ahead: view.most_ahead(),
        inserts_allowed: view.inserts_allowed(),
        samples_allowed: view.samples_allowed(),
        insert_bound: view.insert_bound(),
        sample_bound: view.sample_bound(),
        sentence: view.sentence(waiting),
    }
}
