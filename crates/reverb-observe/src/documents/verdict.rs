//! Describes the verdict on a server, and on its tables.

use super::schema::{TableProgressDocument, TroubleDocument, VerdictDocument};
use reverb_service::{Level, Progress, Replay, TableVerdict, Trouble, Watched};

/// Describes the verdict of the latest look at a server.
pub fn verdict(replay: &Replay) -> VerdictDocument {
    let watched = replay.facts.watched.lock().clone();
    let verdict = &watched.verdict;
    let trouble = |trouble: &Trouble| TroubleDocument { kind: trouble.kind(), sentence: trouble.to_string() };
    VerdictDocument {
        state: verdict.progress.name(),
        level: verdict.level.name(),
        seconds: verdict.lasted.map(|lasted| lasted.as_secs_f64()),
        line: verdict.line.clone(),
        tables: verdict.tables.clone(),
        troubles: verdict.troubles.iter().map(trouble).collect(),
    }
}

/// Describes the progress of a table, by its number, at the latest look.
pub fn progress(watched: &Watched, table: usize) -> TableProgressDocument {
    let rates = watched.tables.get(table).copied().unwrap_or_default();
    // A table that was not looked at yet.
    let new = TableVerdict { progress: Progress::Idle, level: Level::Quiet, paused: None, cause: String::new() };
    let verdict = watched.verdict.of_tables.get(table).unwrap_or(&new);
    TableProgressDocument {
        state: verdict.progress.name(),
        level: verdict.level.name(),
        seconds: verdict.paused.map(|paused| paused.as_secs_f64()),
        sentence: verdict.cause.clone(),
        stall_after_seconds: rates.stall_after.as_secs_f64(),
        inserts_per_second: rates.inserts_per_second,
        samples_per_second: rates.samples_per_second,
        ratio: rates.ratio,
    }
}
