//! Describes the clients of a server, by process, and the requests that wait.

use super::schema::{
    ClientDocument, ClientWaitDocument, ClientsDocument, LeftClientDocument, WaitDocument, WaitsDocument,
};
use super::server::seconds;
use reverb_service::{LeftClient, Peer, Replay, TableHandle, Transport, Watched};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

// limit (HTTP, metrics and logs): requests and draws that `/api/v1/waits` shows of a table | {} each | the first are
// shown
/// Maximum number of waiting inserts, and of waiting draws, that are shown of each table one by one.
const MAX_SHOWN: usize = 20;
// limit (HTTP, metrics and logs): requests and draws that a verdict and `/api/v1/clients` look at, of each table |
// {} each | the first are looked at
/// Maximum number of waiting inserts, and of waiting draws, that are looked at of each table.
pub const MAX_WAITS: usize = 4096;

/// Describes the requests that wait.
pub fn waits(replay: &Replay) -> WaitsDocument {
    waits_of(replay, &replay.processes(), MAX_SHOWN)
}

fn waits_of(replay: &Replay, processes: &[Vec<Arc<Peer>>], limit: usize) -> WaitsDocument {
    let numbers = |peers: &Vec<Arc<Peer>>| peers.iter().map(|peer| (peer.id, peers[0].id)).collect::<Vec<_>>();
    let first: HashMap<u64, u64> = processes.iter().flat_map(numbers).collect();
    let of_table = |(number, table): (usize, &TableHandle)| {
        let (name, first) = (table.name().to_owned(), &first);
        table.waits(limit).into_iter().map(move |wait| WaitDocument {
            table: number,
            table_name: name.clone(),
            operation: wait.operation.name(),
            kind: wait.kind.name(),
            client: first.get(&wait.peer.id).copied().unwrap_or(wait.peer.id),
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

/// Describes the clients that are connected, and those that have left.
pub fn clients(replay: &Replay) -> ClientsDocument {
    let processes = replay.processes();
    let waits = waits_of(replay, &processes, MAX_WAITS).waits;
    let watched = replay.facts.watched.lock().clone();
    let clients = processes.iter().map(|peers| client(peers, &waits, &watched)).collect();
    ClientsDocument { clients, left: replay.left().iter().map(left).collect() }
}

fn client(peers: &[Arc<Peer>], waits: &[WaitDocument], watched: &Watched) -> ClientDocument {
    // A connection that has made no call has shown nothing, and neither has the way within the server's process.
    let (first, identity) = (&peers[0], peers.iter().find_map(|peer| peer.identity()));
    let sum = |count: fn(&Peer) -> &AtomicU64| peers.iter().map(|peer| count(peer).load(Relaxed)).sum::<u64>();
    let (inserts, samples) = (sum(|peer| &peer.traffic.inserts), sum(|peer| &peer.traffic.samples));
    let rates = || peers.iter().filter_map(|peer| watched.peers.get(&peer.id));
    let waits = waits_of_client(first.id, waits);
    let waits_to = |operation| waits.iter().any(|wait| wait.operation == operation);
    ClientDocument {
        id: first.id,
        name: first.name().into(),
        program: first.program().into(),
        address: first.address.as_str().into(),
        token: identity.as_ref().and_then(|identity| identity.token.clone()).unwrap_or_default(),
        may: identity.map_or("", |identity| identity.role),
        transport: first.road.name(),
        since: peers.iter().map(|peer| seconds(peer.since)).fold(f64::INFINITY, f64::min),
        connections: peers.iter().filter(|peer| peer.road != Transport::SameProcess).count() as u64,
        streams: sum(|peer| &peer.traffic.streams),
        role: role(inserts > 0 || waits_to("insert"), samples > 0 || waits_to("sample")),
        inserts,
        samples,
        inserts_per_second: rates().map(|rates| rates.inserts_per_second).sum(),
        samples_per_second: rates().map(|rates| rates.samples_per_second).sum(),
        last_seen: rates().map(|rates| rates.last_seen).max().map(seconds),
        receive_bytes: sum(|peer| &peer.traffic.receive_bytes),
        transmit_bytes: sum(|peer| &peer.traffic.transmit_bytes),
        shared_bytes: sum(|peer| &peer.traffic.shared_bytes),
        waits,
    }
}

/// The requests of a client as one for each table, operation and kind. They are given longest first.
fn waits_of_client(client: u64, waits: &[WaitDocument]) -> Vec<ClientWaitDocument> {
    let mut told: Vec<ClientWaitDocument> = Vec::new();
    for wait in waits.iter().filter(|wait| wait.client == client) {
        let is_same = |one: &&mut ClientWaitDocument| {
            (one.table, one.operation, one.kind) == (wait.table, wait.operation, wait.kind)
        };
        match told.iter_mut().find(is_same) {
            Some(same) => same.count += 1,
            None => told.push(ClientWaitDocument {
                table: wait.table,
                table_name: wait.table_name.clone(),
                operation: wait.operation,
                kind: wait.kind,
                count: 1,
                seconds: wait.seconds,
                reason: wait.reason.clone(),
            }),
        }
    }
    told
}

fn left(client: &LeftClient) -> LeftClientDocument {
    LeftClientDocument {
        name: client.peer.name().into(),
        program: client.peer.program().into(),
        address: client.peer.address.as_str().into(),
        transport: client.peer.road.name(),
        role: role(client.inserts > 0, client.samples > 0),
        inserts: client.inserts,
        samples: client.samples,
        since: seconds(client.since),
        at: seconds(client.at),
        how: client.how.name(),
    }
}

fn role(inserts: bool, draws: bool) -> &'static str {
    match (inserts, draws) {
        (true, true) => "both",
        (true, false) => "writes",
        (false, true) => "draws",
        (false, false) => "none",
    }
}
