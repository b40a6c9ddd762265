//! Looks at a server each second: what its tables and clients have done since, who waits, and what that comes to.

use super::judge::judge;
use super::rates::{PeerRecord, TableRecord};
use super::state::{ClientState, LeftClient, ServerState, TableState, WaitState};
use super::words;
use crate::documents::{MAX_WAITS, memory_limit, resident_bytes};
use parking_lot::Mutex;
use reverb_service::{Level, Peer, Replay, TableHandle, TablesUsed, Trouble, Verdict, Watched};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};
use tokio::time::MissedTickBehavior;

/// Time between two looks.
const PERIOD: Duration = Duration::from_secs(1);

/// Looks at a server each second until it is closed, and logs what changes.
pub async fn watch(replay: Weak<Replay>) {
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let watcher = Arc::new(Mutex::new(Watcher::new(Instant::now())));
    loop {
        ticks.tick().await;
        let Some(replay) = replay.upgrade().filter(|replay| !replay.is_closed()) else { return };
        // Not here, because tables may be locked for a while.
        let watcher = watcher.clone();
        let look = move || watcher.lock().look(&replay, Instant::now());
        let _panicked = tokio::task::spawn_blocking(look).await;
    }
}

/// What was seen of a server so far.
#[derive(Debug)]
struct Watcher {
    started: Instant,
    tables: Vec<TableRecord>,
    peers: HashMap<u64, PeerRecord>,
    told: Verdict,
}

impl Watcher {
    fn new(started: Instant) -> Self {
        Self { started, tables: Vec::new(), peers: HashMap::new(), told: Verdict::default() }
    }

    fn look(&mut self, replay: &Replay, now: Instant) {
        self.tables.resize_with(replay.tables().len(), || TableRecord::new(self.started));
        let clients = Clients::new(replay);
        self.peers.retain(|id, _| clients.places.contains_key(id));
        for peer in clients.peers() {
            self.peers.entry(peer.id).or_insert_with(|| PeerRecord::new(now)).add(peer, now);
        }
        let tables: Vec<TableState> = replay
            .tables()
            .iter()
            .zip(&mut self.tables)
            .map(|(table, record)| look_at_table(table, record, &clients, now))
            .collect();
        let still = |peer: &Arc<Peer>| self.peers.get(&peer.id).map(|record| record.still(now));
        let clients = clients.states(still);
        let state = ServerState { tables, left: left(replay), troubles: troubles(replay), clients };
        let verdict = judge(&state);
        for (record, table) in self.tables.iter_mut().zip(&verdict.of_tables) {
            record.note(table);
        }
        if words::differs(&self.told, &verdict) {
            tell(&verdict);
            self.told = verdict.clone();
        }
        let rates = self.peers.iter().map(|(id, record)| (*id, record.rates(now, SystemTime::now()))).collect();
        let tables = self.tables.iter().map(TableRecord::rates).collect();
        *replay.facts.watched.lock() = Arc::new(Watched { verdict, tables, peers: rates });
    }
}

/// The clients of a server by process, and the place of each peer among them.
struct Clients {
    processes: Vec<Vec<Arc<Peer>>>,
    places: HashMap<u64, usize>,
    /// The peers of connections that have ended lately. Those of a process that is connected say what it has done.
    closed: Vec<Arc<Peer>>,
}

impl Clients {
    fn new(replay: &Replay) -> Self {
        let processes = replay.processes();
        let place = |(place, peers): (usize, &Vec<Arc<Peer>>)| peers.iter().map(move |peer| (peer.id, place)).collect();
        let places = processes.iter().enumerate().flat_map::<Vec<_>, _>(place).collect();
        let closed = replay.connections.closed().into_iter().map(|closed| closed.peer).collect();
        Self { processes, places, closed }
    }

    fn peers(&self) -> impl Iterator<Item = &Arc<Peer>> {
        self.processes.iter().flatten()
    }

    /// Describes the clients. `still` says how long a peer has neither inserted nor drawn.
    fn states(&self, still: impl Fn(&Arc<Peer>) -> Option<Duration>) -> Vec<ClientState> {
        let mut closed: HashMap<_, Vec<_>> = HashMap::new();
        self.closed.iter().for_each(|peer| closed.entry(peer.process()).or_default().push(peer));
        let state = |peers: &Vec<Arc<Peer>>| {
            let all = || peers.iter().chain(closed.get(&peers[0].process()).into_iter().flatten().copied());
            let since = all().map(|peer| peer.since).min();
            ClientState {
                program: peers[0].program().into(),
                inserted: places(all(), |peer| &peer.traffic.inserted),
                drawn: places(all(), |peer| &peer.traffic.drawn),
                connected: since.and_then(|since| since.elapsed().ok()).unwrap_or_default(),
                still: peers.iter().filter_map(&still).min().unwrap_or_default(),
                only_looks: peers.iter().any(|peer| peer.traffic.looks.load(Relaxed) > 0),
            }
        };
        self.processes.iter().map(state).collect()
    }
}

/// The places of the tables that one of these peers has used in one way.
fn places<'a>(peers: impl Iterator<Item = &'a Arc<Peer>>, used: fn(&Peer) -> &TablesUsed) -> BTreeSet<usize> {
    peers.flat_map(|peer| used(peer).places()).collect()
}

fn look_at_table(table: &TableHandle, record: &mut TableRecord, clients: &Clients, now: Instant) -> TableState {
    let (mut state, inserts, samples) = table.with_table(|table| {
        let (inserts, samples) = table.totals();
        (TableState::new(&table.limiter_view(), inserts, samples), inserts, samples)
    });
    record.add(inserts, samples, now);
    record.set_stall_after(table.stall_after());
    let rates = record.rates();
    state.still = record.still(now);
    (state.inserts_per_second, state.samples_per_second) = (rates.inserts_per_second, rates.samples_per_second);
    (state.ratio, state.stall_after) = (rates.ratio, rates.stall_after);
    let waits = table.waits(MAX_WAITS).into_iter().filter_map(|wait| {
        // A peer whose connection has just ended is not a client any more.
        let client = *clients.places.get(&wait.peer.id)?;
        Some(WaitState { client, operation: wait.operation, kind: wait.kind, waited: wait.waited })
    });
    state.waits = waits.collect();
    state
}

fn left(replay: &Replay) -> Vec<LeftClient> {
    let client = |left: &reverb_service::LeftClient| LeftClient {
        program: left.peer.program().into(),
        inserted: places(left.peers.iter(), |peer| &peer.traffic.inserted),
        drawn: places(left.peers.iter(), |peer| &peer.traffic.drawn),
        ago: left.at.elapsed().unwrap_or_default(),
        how: left.how,
    };
    replay.left().iter().map(client).collect()
}

fn troubles(replay: &Replay) -> Vec<Trouble> {
    let failure = replay.store().and_then(|store| store.failure()).map(Trouble::SaveFailed);
    let log = replay.store().and_then(|store| store.log());
    let log = log.iter().flat_map(Trouble::of_log);
    let memory = resident_bytes().zip(memory_limit()).filter(|(used, limit)| used / 9 >= limit / 10);
    let memory = memory.map(|(used, limit)| Trouble::Memory { used, limit });
    failure.into_iter().chain(log).chain(memory).collect()
}

fn tell(verdict: &Verdict) {
    if verdict.level >= Level::Warning {
        tracing::warn!("{}", verdict.line);
    } else {
        tracing::info!("{}", verdict.line);
    }
}
