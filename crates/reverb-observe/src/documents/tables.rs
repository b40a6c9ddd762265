//! Describes the tables of a server.

use super::columns;
use super::limiter::limiter;
use super::schema::{FiguresDocument, TableDocument, TablesDocument, WaitingDocument};
use reverb_core::SelectorKind;
use reverb_service::{Replay, TableHandle, TableStatus};

/// Describes all tables.
pub fn tables(replay: &Replay) -> TablesDocument {
    TablesDocument {
        tables: replay.tables().iter().enumerate().map(|(number, table)| describe(number, table)).collect(),
    }
}

fn describe(number: usize, table: &TableHandle) -> TableDocument {
    let TableStatus { info, insert_wait, sample_wait, .. } = table.status();
    let config = &info.config;
    TableDocument {
        number,
        name: config.name.clone(),
        sampler: selector(&config.sampler),
        remover: selector(&config.remover),
        max_items: config.max_size,
        max_bytes: config.max_bytes,
        max_times_sampled: config.max_times_sampled,
        limiter: limiter(&info),
        waiting_inserts: WaitingDocument {
            count: info.waiting_inserts,
            longest_seconds: info.longest_insert_wait_seconds,
            blocked_seconds: info.insert_blocked_seconds,
            reason: insert_wait,
        },
        waiting_samples: WaitingDocument {
            count: info.waiting_samples,
            longest_seconds: info.longest_sample_wait_seconds,
            blocked_seconds: info.sample_blocked_seconds,
            reason: sample_wait,
        },
        signature: config.signature.as_deref().map(columns::of_signature),
        figures: FiguresDocument(info),
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
