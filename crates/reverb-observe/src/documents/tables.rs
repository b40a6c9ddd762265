//! Describes the tables of a server.

use super::columns;
use super::limiter::limiter;
use super::schema::{RemovalsDocument, TableDocument, TablesDocument, WaitingDocument};
use reverb_core::{SelectorKind, TableInfo};
use reverb_service::{Replay, TableHandle, TableStatus};
use std::time::Duration;

/// Describes all tables.
pub fn tables(replay: &Replay) -> TablesDocument {
    TablesDocument {
        tables: replay.tables().iter().enumerate().map(|(number, table)| describe(number, table)).collect(),
    }
}

fn describe(number: usize, table: &TableHandle) -> TableDocument {
    let status = table.status();
    let waiting = |longest: Duration, count: usize, milliseconds: u64, reason: &Option<String>| WaitingDocument {
        count: count as u64,
        longest_seconds: longest.as_secs_f64(),
        blocked_seconds: milliseconds as f64 / 1e3,
        reason: reason.clone(),
    };
    let TableStatus { info, waited, .. } = &status;
    let waiting_inserts =
        waiting(status.longest_insert_wait, status.waiting_inserts, waited.inserts_ms, &status.insert_wait);
    let waiting_samples =
        waiting(status.longest_sample_wait, status.waiting_samples, waited.samples_ms, &status.sample_wait);
    let TableInfo { config, removed, counters, .. } = info;
    let time = |nanos: u64| (nanos > 0).then_some(nanos as f64 / 1e9);
    TableDocument {
        number,
        name: config.name.clone(),
        sampler: selector(&config.sampler),
        remover: selector(&config.remover),
        items: info.current_size,
        max_items: config.max_size,
        bytes: info.bytes,
        max_bytes: config.max_bytes,
        referenced_bytes: info.referenced_bytes,
        index_bytes: info.index_bytes,
        chunks: info.num_chunks,
        episodes: info.num_episodes,
        max_times_sampled: config.max_times_sampled,
        undelivered_samples: status.undelivered,
        inserts: info.inserts,
        samples: info.samples,
        unique_samples: info.num_unique_samples,
        removals: RemovalsDocument {
            max_size: removed.max_size,
            max_bytes: removed.max_bytes,
            max_times_sampled: removed.max_times_sampled,
            delete: removed.deleted,
            reset: removed.reset,
        },
        unsampled_removals: counters.unsampled_removals,
        priority_updates: counters.priority_updates,
        insert_bytes: counters.insert_bytes,
        sample_bytes: counters.sample_bytes,
        last_insert_at: time(counters.last_insert_nanos),
        last_sample_at: time(counters.last_sample_nanos),
        limiter: limiter(info),
        waiting_inserts,
        waiting_samples,
        signature: config.signature.as_deref().map(columns::of_signature),
    }
}

fn selector(kind: &SelectorKind) -> String {
    match kind {
        SelectorKind::Fifo => "fifo".into(),
        SelectorKind::Lifo => "lifo".into(),
        SelectorKind::Uniform => "uniform".into(),
        SelectorKind::MinHeap => "min_heap".into(),
        SelectorKind::MaxHeap => "max_heap".into(),
        SelectorKind::Prioritized { priority_exponent, .. } => format!("prioritized({priority_exponent})"),
    }
}
