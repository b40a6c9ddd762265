//! Describes a server, its clients, its checkpoints and its log.

use super::process;
use super::schema::{
    CheckpointDocument, CheckpointsDocument, ClientDocument, ClientsDocument, LogDocument, LogLineDocument,
    ProgressDocument, ServerDocument, WaitDocument, WaitsDocument,
};
use reverb_service::event_log::{self, LogLevel, LogLine};
use reverb_service::{Peer, Replay, SavedState, StoreProgress, StoreStatus, TableHandle, host_name};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

// limit (HTTP, metrics and logs): requests and draws that `/api/v1/waits` shows of a table | {} each | the first are
// shown
/// Maximum number of waiting inserts, and of waiting draws, that are shown of each table.
const MAX_WAITS: usize = 20;

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
        cpu_seconds: process::cpu_seconds(),
        buffer_pool_bytes: reverb_core::pooled_bytes() as u64,
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

/// Describes the requests that wait.
pub fn waits(replay: &Replay) -> WaitsDocument {
    let of_table = |(number, table): (usize, &TableHandle)| {
        let name = table.name().to_owned();
        table.waits(MAX_WAITS).into_iter().map(move |wait| WaitDocument {
            table: number,
            table_name: name.clone(),
            operation: wait.operation.name(),
            client: wait.peer.id,
            client_name: wait.peer.name().into(),
            address: wait.peer.address.as_str().into(),
            transport: wait.peer.road.name(),
            seconds: wait.waited.as_secs_f64(),
            reason: wait.reason,
        })
    };
    let mut waits: Vec<_> = replay.tables().iter().enumerate().flat_map(of_table).collect();
    waits.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    WaitsDocument { waits }
}

/// Describes the open connections.
pub fn clients(replay: &Replay) -> ClientsDocument {
    let client = |peer: &Arc<Peer>| ClientDocument {
        id: peer.id,
        name: peer.name().into(),
        address: peer.address.as_str().into(),
        transport: peer.road.name(),
        since: seconds(peer.since),
        streams: peer.traffic.streams.load(Relaxed),
        inserts: peer.traffic.inserts.load(Relaxed),
        samples: peer.traffic.samples.load(Relaxed),
        receive_bytes: peer.traffic.receive_bytes.load(Relaxed),
        transmit_bytes: peer.traffic.transmit_bytes.load(Relaxed),
    };
    let connected = replay.connections.list();
    ClientsDocument { clients: [replay.this_process()].into_iter().chain(&connected).map(client).collect() }
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
        checkpoints: status.saved.iter().map(checkpoint).collect(),
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
