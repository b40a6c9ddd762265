//! Converts table definitions to the messages of the reference and back.

use crate::proto::schema::key_distribution_options::{Distribution, Heap, Prioritized};
use crate::proto::schema::{self, KeyDistributionOptions, TableWorkerTime};
use crate::proto::tensorflow::StructuredValue;
use crate::signature::signature_of;
use prost::Message;
use reverb_core::{Error, RateLimiterConfig, Result, SelectorKind, TableConfig, TableInfo};
use std::sync::Arc;

/// Describes a table in the message of the reference.
pub fn table_info(info: &TableInfo) -> schema::TableInfo {
    let config = &info.config;
    let RateLimiterConfig { samples_per_insert, min_size_to_sample, min_diff, max_diff } = config.rate_limiter;
    let stats = |completed: i64| Some(schema::RateLimiterCallStats { completed });
    let milliseconds = |seconds: f64| (seconds * 1e3).round() as i64;
    schema::TableInfo {
        name: config.name.clone(),
        sampler_options: Some(selector_options(&config.sampler)),
        remover_options: Some(selector_options(&config.remover)),
        max_size: config.max_size as i64,
        max_times_sampled: config.max_times_sampled,
        rate_limiter_info: Some(schema::RateLimiterInfo {
            samples_per_insert,
            min_diff,
            max_diff,
            min_size_to_sample,
            insert_stats: stats(info.inserts),
            sample_stats: stats(info.samples),
        }),
        // The binding made the bytes from a checked nest, so they decode.
        signature: config
            .signature
            .as_ref()
            .and_then(|signature| StructuredValue::decode(signature.structure.clone()).ok()),
        current_size: info.current_size as i64,
        num_episodes: info.num_episodes as i64,
        num_deleted_episodes: info.num_deleted_episodes as i64,
        num_unique_samples: info.num_unique_samples as i64,
        // There is no worker thread, because callers serve the table themselves. Only the wait times remain.
        table_worker_time: Some(TableWorkerTime {
            sleeping_ms: milliseconds(info.age_seconds),
            waiting_for_sampling_ms: milliseconds(info.insert_blocked_seconds),
            waiting_for_inserts_ms: milliseconds(info.sample_blocked_seconds),
            ..TableWorkerTime::default()
        }),
    }
}

/// Describes a table in a serialised message of the reference.
pub fn info_bytes(info: &TableInfo) -> Vec<u8> {
    table_info(info).encode_to_vec()
}

/// Reads a table from its description in the format of the reference: its options without the limit in bytes and the
/// seed, and the figures of the reference.
///
/// # Errors
/// [`Error::DataLoss`] if a selector or the signature is not valid.
pub fn read_table_info(info: schema::TableInfo) -> Result<TableInfo> {
    let selector = |role, options: Option<KeyDistributionOptions>| selector_of(role, options.unwrap_or_default());
    let limiter = info.rate_limiter_info.unwrap_or_default();
    let completed = |stats: Option<schema::RateLimiterCallStats>| stats.map_or(0, |stats| stats.completed);
    let times = info.table_worker_time.unwrap_or_default();
    let seconds = |milliseconds: i64| milliseconds as f64 / 1e3;
    let config = TableConfig {
        name: info.name,
        sampler: selector("sampler", info.sampler_options)?,
        remover: selector("remover", info.remover_options)?,
        max_size: info.max_size as u64,
        max_times_sampled: info.max_times_sampled,
        rate_limiter: RateLimiterConfig {
            samples_per_insert: limiter.samples_per_insert,
            min_size_to_sample: limiter.min_size_to_sample,
            min_diff: limiter.min_diff,
            max_diff: limiter.max_diff,
        },
        signature: info.signature.as_ref().map(signature_of).transpose()?.map(Arc::new),
        max_bytes: None,
        seed: None,
    };
    Ok(TableInfo {
        current_size: info.current_size as u64,
        num_episodes: info.num_episodes as u64,
        num_deleted_episodes: info.num_deleted_episodes as u64,
        num_unique_samples: info.num_unique_samples as u64,
        inserts: completed(limiter.insert_stats),
        samples: completed(limiter.sample_stats),
        age_seconds: seconds(times.sleeping_ms),
        insert_blocked_seconds: seconds(times.waiting_for_sampling_ms),
        sample_blocked_seconds: seconds(times.waiting_for_inserts_ms),
        ..TableInfo::new(config)
    })
}

/// Describes a selector in the message of the reference.
pub fn selector_options(kind: &SelectorKind) -> KeyDistributionOptions {
    let distribution = match *kind {
        SelectorKind::Fifo => Distribution::Fifo(true),
        SelectorKind::Lifo => Distribution::Lifo(true),
        SelectorKind::Uniform => Distribution::Uniform(true),
        SelectorKind::Prioritized { priority_exponent } => Distribution::Prioritized(Prioritized { priority_exponent }),
        SelectorKind::MinHeap => Distribution::Heap(Heap { min_heap: true }),
        SelectorKind::MaxHeap => Distribution::Heap(Heap { min_heap: false }),
    };
    KeyDistributionOptions { distribution: Some(distribution), is_deterministic: kind.is_deterministic() }
}

/// Reads a selector from serialised `KeyDistributionOptions`. `role` names the selector in errors.
///
/// # Errors
/// [`Error::DataLoss`] if the message does not parse or names an unknown selector.
pub fn read_selector(role: &str, message: &[u8]) -> Result<SelectorKind> {
    let options =
        KeyDistributionOptions::decode(message).map_err(|error| Error::DataLoss(format!("{role}: {error}")))?;
    selector_of(role, options)
}

fn selector_of(role: &str, options: KeyDistributionOptions) -> Result<SelectorKind> {
    Ok(match options.distribution {
        Some(Distribution::Fifo(true)) => SelectorKind::Fifo,
        Some(Distribution::Lifo(true)) => SelectorKind::Lifo,
        Some(Distribution::Uniform(true)) => SelectorKind::Uniform,
        Some(Distribution::Prioritized(options)) => {
            SelectorKind::Prioritized { priority_exponent: options.priority_exponent }
        }
        Some(Distribution::Heap(heap)) if heap.min_heap => SelectorKind::MinHeap,
        Some(Distribution::Heap(_)) => SelectorKind::MaxHeap,
        other => return Err(Error::DataLoss(format!("{role}: {other:?} is not a supported selector"))),
    })
}
