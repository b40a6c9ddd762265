//! Describes a server, its clients, its checkpoints and its log.

use super::process;
use super::schema::{
    CheckpointDocument, CheckpointsDocument, LogDocument, LogLineDocument, ProgressDocument, ServerDocument,
    StoreLogDocument,
};
use reverb_service::event_log::{self, LogLevel, LogLine};
use reverb_service::{Replay, SavedState, StoreLog, StoreProgress, StoreStatus, host_name};
use std::time::{SystemTime, UNIX_EPOCH};

/// Converts a time to seconds since the Unix epoch.
pub fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Describes the server.
pub fn server(replay: &Replay) -> ServerDocument {
    let facts = &replay.facts;
    let store = store_status(replay);
    let connections = replay.connections.totals().iter().map(|total| total.open).sum();
    let (receive_bytes, transmit_bytes) = traffic(replay);
    let addresses = facts.addresses.get();
    ServerDocument {
        version: env!("CARGO_PKG_VERSION").into(),
        server_id: replay.id().iter().map(|byte| format!("{byte:02x}")).collect(),
        state: match (replay.is_closed(), addresses) {
            (true, _) => "stopping",
            (false, None) => "loading",
            (false, Some(_)) => "serving",
        },
        loading: store.loading.as_ref().map(progress),
        hostname: host_name(),
        pid: std::process::id(),
        addresses: addresses.cloned().unwrap_or_default(),
        dashboard_url: facts.dashboard_url.get().cloned(),
        started_at: seconds(facts.started_at),
        now: seconds(SystemTime::now()),
        resident_bytes: process::resident_bytes(),
        memory_limit_bytes: process::memory_limit(),
        cpu_seconds: process::cpu_seconds(),
        buffer_pool_bytes: reverb_core::pooled_bytes() as u64,
        shared_bytes: replay.shared.used(),
        connections,
        receive_bytes,
        transmit_bytes,
    }
}

/// Returns the numbers of bytes received and sent over all connections.
pub fn traffic(replay: &Replay) -> (u64, u64) {
    let totals = replay.connections.totals();
    (totals.iter().map(|total| total.receive_bytes).sum(), totals.iter().map(|total| total.transmit_bytes).sum())
}

/// Describes the checkpoints.
pub fn checkpoints(replay: &Replay) -> CheckpointsDocument {
    let status = store_status(replay);
    let next_save = *replay.facts.next_save.lock();
    let checkpoint = |saved: &SavedState| CheckpointDocument {
        path: saved.path.display().to_string(),
        saved_at: seconds(saved.saved_at),
        size_bytes: saved.size_bytes,
        duration_seconds: saved.duration.map(|duration| duration.as_secs_f64()),
        is_verified: saved.is_verified,
    };
    CheckpointsDocument {
        path: status.path.display().to_string(),
        interval_seconds: replay.store().and_then(|store| store.interval()).map(|interval| interval.as_secs_f64()),
        next_due_at: next_save.map(seconds),
        saving: status.saving.as_ref().map(progress),
        saves_ok: status.saves_ok,
        saves_failed: status.saves_failed,
        last_error: status.last_error.clone(),
        restored_from: status.restored_from.as_ref().map(|path| path.display().to_string()),
        restored_saved_at: status.restored_saved_at.map(seconds),
        checkpoints: status.saved.iter().map(checkpoint).collect(),
        log: status.log.as_ref().map(store_log),
    }
}

fn store_log(log: &StoreLog) -> StoreLogDocument {
    StoreLogDocument {
        mode: log.mode.name(),
        size_bytes: log.size_bytes,
        sync_age_seconds: log.sync_age.as_secs_f64(),
        sync_interval_seconds: log.sync_interval.as_secs_f64(),
        is_disk_low: log.is_low,
        failure: log.failure.clone(),
    }
}

/// Returns the log lines with numbers above `since`.
pub fn log(since: u64) -> LogDocument {
    let line = |line: LogLine| LogLineDocument {
        number: line.number,
        at: seconds(line.at),
        level: match line.level {
            LogLevel::Info => "info",
            LogLevel::Warning => "warning",
            LogLevel::Error => "error",
        },
        message: line.message,
    };
    let lines: Vec<_> = event_log::lines_since(since).into_iter().map(line).collect();
    LogDocument { next: lines.last().map_or_else(event_log::last_number, |line| line.number), lines }
}

fn store_status(replay: &Replay) -> StoreStatus {
    replay.store().map(|store| store.status()).unwrap_or_default()
}

fn progress(progress: &StoreProgress) -> ProgressDocument {
    ProgressDocument {
        path: progress.path.display().to_string(),
        since: seconds(progress.since),
        done_bytes: progress.done_bytes,
        total_bytes: (progress.total_bytes > 0).then_some(progress.total_bytes),
    }
}
