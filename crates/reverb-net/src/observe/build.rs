//! Makes the documents from the state of a server.

use super::documents::{
    CheckpointDocument, CheckpointsDocument, ClientDocument, ClientsDocument, LimiterDocument, ProgressDocument,
    RemovalsDocument, ServerDocument, TableDocument, TablesDocument, WaitDocument, WaitingDocument, WaitsDocument,
};
use reverb_core::{RateLimiter, SelectorKind, TableInfo};
use reverb_service::{Operation, Peer, Replay, ServerFacts, StoreProgress, StoreStatus, TableStatus};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

/// Maximum number of waiting inserts, and of waiting draws, that are shown of each table.
const MAX_WAITS: usize = 20;

/// Converts a time to seconds since the Unix epoch.
pub fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Describes the server.
pub fn server(replay: &Replay, facts: &ServerFacts) -> ServerDocument {
    let store = store_status(replay);
    let peers = replay.connections().list();
    let sum = |count: fn(&Peer) -> &AtomicU64| peers.iter().map(|peer| count(peer).load(Relaxed)).sum();
    let grpc = facts.grpc.get();
    let mut addresses = Vec::new();
    if let Some((host, port, unix_path)) = grpc {
        addresses.push(std::net::SocketAddr::new(*host, *port).to_string());
        addresses.extend(unix_path.iter().map(|path| format!("unix:{}", path.display())));
    }
    ServerDocument {
        version: env!("CARGO_PKG_VERSION").into(),
        server_id: replay.id().iter().map(|byte| format!("{byte:02x}")).collect(),
        state: match (replay.is_closed(), grpc) {
            (true, _) => "stopping",
            (false, None) => "loading",
            (false, Some(_)) => "serving",
        },
        loading: store.loading.as_ref().map(progress),
        hostname: String::new(),
        pid: std::process::id(),
        addresses,
        dashboard_url: facts.dashboard_url.get().cloned(),
        started_at: seconds(facts.started_at),
        now: seconds(SystemTime::now()),
        resident_bytes: None,
        cpu_seconds: None,
        buffer_pool_bytes: 0,
        connections: peers.len() as u64,
        receive_bytes: sum(|peer| &peer.traffic.receive_bytes),
        transmit_bytes: sum(|peer| &peer.traffic.transmit_bytes),
    }
}

/// Describes all tables.
pub fn tables(replay: &Replay) -> TablesDocument {
    let tables = replay.status().iter().enumerate().map(|(number, status)| table(number, status)).collect();
    TablesDocument { tables }
}

fn table(number: usize, status: &TableStatus) -> TableDocument {
    let TableInfo { config, removed, counters, .. } = &status.info;
    let time = |nanos: u64| (nanos > 0).then_some(nanos as f64 / 1e9);
    let waiting = |count: usize, milliseconds: u64, reason: &Option<String>| WaitingDocument {
        count: count as u64,
        longest_seconds: 0.0,
        blocked_seconds: milliseconds as f64 / 1e3,
        reason: reason.clone(),
    };
    TableDocument {
        number,
        name: config.name.clone(),
        sampler: selector(&config.sampler),
        remover: selector(&config.remover),
        items: status.info.current_size,
        max_items: config.max_size,
        bytes: status.info.bytes,
        max_bytes: config.max_bytes,
        referenced_bytes: 0,
        index_bytes: 0,
        chunks: 0,
        episodes: status.info.num_episodes,
        max_times_sampled: config.max_times_sampled,
        undelivered_samples: status.undelivered,
        inserts: status.info.inserts,
        samples: status.info.samples,
        unique_samples: status.info.num_unique_samples,
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
        limiter: limiter(&status.info.limiter()),
        waiting_inserts: waiting(status.waiting_inserts, status.waited.inserts_ms, &status.insert_wait),
        waiting_samples: waiting(status.waiting_samples, status.waited.samples_ms, &status.sample_wait),
        signature: None,
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

fn limiter(limiter: &RateLimiter) -> LimiterDocument {
    let config = &limiter.config;
    let bound = |value: f64| (value.abs() < f64::MAX).then_some(value);
    LimiterDocument {
        kind: "ratio",
        samples_per_insert: config.samples_per_insert,
        min_size: config.min_size_to_sample,
        diff: limiter.inserts as f64 * config.samples_per_insert - limiter.samples as f64,
        min_diff: bound(config.min_diff),
        max_diff: bound(config.max_diff),
        inserts_allowed: None,
        samples_allowed: None,
        sentence: String::new(),
    }
}

/// Describes the requests that wait.
pub fn waits(replay: &Replay) -> WaitsDocument {
    let of_table = |(number, table): (usize, &reverb_service::TableHandle)| {
        let name = table.name().to_owned();
        table.waits(MAX_WAITS).into_iter().map(move |wait| WaitDocument {
            table: number,
            table_name: name.clone(),
            operation: match wait.operation {
                Operation::Insert => "insert",
                Operation::Sample => "sample",
            },
            client: wait.peer.id(),
            client_name: wait.peer.name().into(),
            address: wait.peer.address().into(),
            transport: wait.peer.road().name(),
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
    let client = |peer: &std::sync::Arc<Peer>| ClientDocument {
        id: peer.id(),
        name: peer.name().into(),
        address: peer.address().into(),
        transport: peer.road().name(),
        since: seconds(peer.since()),
        streams: peer.traffic.streams.load(Relaxed),
        inserts: peer.traffic.inserts.load(Relaxed),
        samples: peer.traffic.samples.load(Relaxed),
        receive_bytes: peer.traffic.receive_bytes.load(Relaxed),
        transmit_bytes: peer.traffic.transmit_bytes.load(Relaxed),
    };
    ClientsDocument { clients: replay.connections().list().iter().map(client).collect() }
}

/// Describes the checkpoints.
pub fn checkpoints(replay: &Replay) -> CheckpointsDocument {
    let status = store_status(replay);
    let checkpoint = |saved: &reverb_service::SavedState| CheckpointDocument {
        path: saved.path.display().to_string(),
        saved_at: seconds(saved.saved_at),
        size_bytes: saved.size_bytes,
        duration_seconds: saved.duration.map(|duration| duration.as_secs_f64()),
        is_verified: saved.is_verified,
    };
    CheckpointsDocument {
        path: status.path.display().to_string(),
        interval_seconds: replay.store().and_then(|store| store.interval()).map(|interval| interval.as_secs_f64()),
        next_due_at: status.next_due.map(seconds),
        saving: status.saving.as_ref().map(progress),
        saves_ok: status.saves_ok,
        saves_failed: status.saves_failed,
        last_error: status.last_error.clone(),
        restored_from: status.restored_from.as_ref().map(|path| path.display().to_string()),
        checkpoints: status.saved.iter().map(checkpoint).collect(),
    }
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
