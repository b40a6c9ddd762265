//! Describes the tables of a server.

use super::columns;
use super::limiter::limiter;
use super::schema::{TableDocument, TablesDocument, WaitingDocument};
use super::verdict::progress;
use reverb_core::{FIGURES, FigureValue, TableInfo};
use reverb_service::{Replay, TableHandle, TableStatus, Watched};
use serde_json::Value;

/// Describes all tables.
pub fn tables(replay: &Replay) -> TablesDocument {
    let watched = replay.facts.watched.lock().clone();
    let tables = replay.tables().iter().enumerate();
    TablesDocument { tables: tables.map(|(number, table)| describe(number, table, &watched)).collect() }
}

fn describe(number: usize, table: &TableHandle, watched: &Watched) -> TableDocument {
    let TableStatus { info, insert_wait, sample_wait, waiting, .. } = table.status();
    let config = &info.config;
    TableDocument {
        number,
        name: config.name.clone(),
        sampler: config.sampler.to_string(),
        remover: config.remover.to_string(),
        max_items: config.max_size,
        max_bytes: config.max_bytes,
        max_times_sampled: config.max_times_sampled,
        progress: progress(watched, number),
        limiter: limiter(&info, waiting),
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
        figures: figures(&info),
    }
}

fn figures(info: &TableInfo) -> Value {
    let shown = FIGURES.iter().filter(|figure| figure.metric.operation.is_none());
    let entries = shown.filter_map(|figure| {
        let value = match (figure.value)(info) {
            Some(FigureValue::Whole(value)) => value.into(),
            Some(FigureValue::Real(value)) => value.into(),
            Some(FigureValue::Removals(removals)) => removals.by_reason().into_iter().collect(),
            Some(FigureValue::Clients(counts)) => {
                counts.0.iter().map(|(name, count)| (name.as_str(), *count)).collect()
            }
            Some(FigureValue::Log2(_) | FigureValue::Waits(_)) => return None,
            None => Value::Null,
        };
        Some((figure.name, value))
    });
    entries.collect()
}
