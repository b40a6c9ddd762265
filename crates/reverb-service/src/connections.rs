//! The connections of a server, as its watchers see them.

use crate::peer::{Peer, Transport};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

/// Time for which closed connections are remembered.
const REMEMBERED: Duration = Duration::from_secs(600);
// limit (HTTP, metrics and logs): closed connections that a server remembers | {}, for {REMEMBERED} | the oldest are
// forgotten
/// Maximum number of closed connections that are remembered. A client has up to two.
const MAX_CLOSED: usize = 1024;

/// The peers whose connections are open, and counts of all connections since the server was started.
#[derive(Debug, Default)]
pub struct Connections {
    registry: Mutex<Registry>,
    streams: [AtomicU64; StreamKind::ALL.len()],
}

#[derive(Debug, Default)]
struct Registry {
    /// By number, which is the order in which they connected.
    open: BTreeMap<u64, Arc<Peer>>,
    /// Number of connections over TCP and over the Unix socket so far.
    opened: [u64; 2],
    /// Bytes of those that are closed.
    closed_bytes: [Bytes; 2],
    /// The latest of those that are closed, oldest first.
    closed: VecDeque<ClosedConnection>,
}

/// A connection that has ended.
#[derive(Debug, Clone)]
pub struct ClosedConnection {
    /// Who had it.
    pub peer: Arc<Peer>,
    /// Time at which it ended.
    pub at: SystemTime,
    /// How it ended.
    pub how: Departure,
}

#[derive(Debug, Default, Clone, Copy)]
struct Bytes {
    received: u64,
    transmitted: u64,
}

/// How a client has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// It has closed its connections.
    Closed,
    /// Its connection broke: it was killed, has crashed, or the network has failed.
    Lost,
    /// It did not answer any more: it was suspended, or its machine is gone.
    Stopped,
}

impl Departure {
    /// Returns the name, for display.
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Lost => "lost",
            Self::Stopped => "stopped",
        }
    }
}

/// The kind of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamKind {
    /// A stream of inserts. A writer of dm-reverb has one.
    Insert,
    /// A stream of draws.
    Sample,
    /// The stream of a writer.
    Write,
}

impl StreamKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Insert, Self::Sample, Self::Write];

    /// Returns the name of the kind, for display.
    pub fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Sample => "sample",
            Self::Write => "write",
        }
    }
}

/// Counts of the connections over one transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransportTotals {
    /// The transport: TCP or the Unix socket.
    pub transport: Transport,
    /// Number of open connections.
    pub open: u64,
    /// Number of connections since the server was started.
    pub opened: u64,
    /// Bytes received over all of them.
    pub receive_bytes: u64,
    /// Bytes sent over all of them.
    pub transmit_bytes: u64,
}

/// A connection in the registry. It leaves the registry on drop, and its bytes stay in the totals.
#[derive(Debug)]
pub struct OpenConnection {
    connections: Arc<Connections>,
    peer: Arc<Peer>,
    /// How it ends, as far as is known.
    pub departure: Departure,
}

/// An open stream, which is counted until it is dropped.
#[derive(Debug)]
pub struct OpenStream {
    connections: Arc<Connections>,
    peer: Arc<Peer>,
    kind: StreamKind,
}

/// Returns the place of a transport in lists of both. Calls in the same process have no connection.
fn place(transport: Transport) -> usize {
    if transport == Transport::Unix { 1 } else { 0 }
}

impl Connections {
    /// Adds the peer of a new connection.
    pub fn add(self: &Arc<Self>, peer: &Arc<Peer>) -> OpenConnection {
        let mut registry = self.registry.lock();
        registry.opened[place(peer.road)] += 1;
        registry.open.insert(peer.id, peer.clone());
        OpenConnection { connections: self.clone(), peer: peer.clone(), departure: Departure::Stopped }
    }

    /// Counts a stream of a peer until the result is dropped.
    pub fn add_stream(self: &Arc<Self>, peer: &Arc<Peer>, kind: StreamKind) -> OpenStream {
        self.streams[kind as usize].fetch_add(1, Relaxed);
        peer.traffic.streams.fetch_add(1, Relaxed);
        OpenStream { connections: self.clone(), peer: peer.clone(), kind }
    }

    /// Returns the peers of all open connections, in the order in which they connected.
    pub fn list(&self) -> Vec<Arc<Peer>> {
        self.registry.lock().open.values().cloned().collect()
    }

    /// Returns the connections that ended in the last ten minutes and had told a name, oldest first.
    pub fn closed(&self) -> Vec<ClosedConnection> {
        self.closed_before(SystemTime::now())
    }

    /// As [`Connections::closed`], in the ten minutes before `now`.
    pub(crate) fn closed_before(&self, now: SystemTime) -> Vec<ClosedConnection> {
        let registry = self.registry.lock();
        let is_recent =
            |closed: &&ClosedConnection| now.duration_since(closed.at).is_ok_and(|elapsed| elapsed < REMEMBERED);
        registry.closed.iter().filter(is_recent).cloned().collect()
    }

    /// Returns the number of open streams of a kind.
    pub fn num_streams(&self, kind: StreamKind) -> u64 {
        self.streams[kind as usize].load(Relaxed)
    }

    /// Whether a stream is open.
    pub fn has_streams(&self) -> bool {
        self.streams.iter().any(|streams| streams.load(Relaxed) > 0)
    }

    /// Returns the counts of each transport: TCP, then the Unix socket. Only the number of open connections ever falls.
    pub fn totals(&self) -> [TransportTotals; 2] {
        let registry = self.registry.lock();
        let mut totals = [Transport::Tcp, Transport::Unix].map(|transport| {
            let Bytes { received, transmitted } = registry.closed_bytes[place(transport)];
            let opened = registry.opened[place(transport)];
            TransportTotals { transport, open: 0, opened, receive_bytes: received, transmit_bytes: transmitted }
        });
        for peer in registry.open.values() {
            let totals = &mut totals[place(peer.road)];
            totals.open += 1;
            totals.receive_bytes += peer.traffic.receive_bytes.load(Relaxed);
            totals.transmit_bytes += peer.traffic.transmit_bytes.load(Relaxed);
        }
        totals
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        // In one step, so that no reader misses the bytes or counts them twice.
        let mut registry = self.connections.registry.lock();
        registry.open.remove(&self.peer.id);
        let closed = &mut registry.closed_bytes[place(self.peer.road)];
        closed.received += self.peer.traffic.receive_bytes.load(Relaxed);
        closed.transmitted += self.peer.traffic.transmit_bytes.load(Relaxed);
        // Probes have no name.
        if !self.peer.name().is_empty() {
            if registry.closed.len() == MAX_CLOSED {
                registry.closed.pop_front();
            }
            let (peer, how) = (self.peer.clone(), self.departure);
            registry.closed.push_back(ClosedConnection { peer, at: SystemTime::now(), how });
        }
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.connections.streams[self.kind as usize].fetch_sub(1, Relaxed);
        self.peer.traffic.streams.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_survive_their_connections() {
        let connections = Arc::new(Connections::default());
        let peer = |transport| Arc::new(Peer::new(transport, String::new()));
        let (first, second, third) = (peer(Transport::Tcp), peer(Transport::Unix), peer(Transport::Tcp));
        let open = [&first, &second, &third].map(|peer| connections.add(peer));
        first.traffic.receive_bytes.fetch_add(7, Relaxed);
        second.traffic.transmit_bytes.fetch_add(5, Relaxed);
        third.traffic.receive_bytes.fetch_add(1, Relaxed);
        let before = connections.totals();
        assert_eq!(connections.list().iter().map(|peer| peer.id).collect::<Vec<_>>(), [first.id, second.id, third.id]);
        let [one, _two, _three] = open;
        drop(one);
        assert_eq!(connections.list().len(), 2, "the peer is still in use, but its connection is closed");
        let tcp = TransportTotals { open: 1, ..before[0] };
        assert_eq!(connections.totals(), [tcp, before[1]]);
        assert_eq!((tcp.opened, tcp.receive_bytes, before[1].transmit_bytes), (2, 8, 5));
    }

    #[test]
    fn closed_connections_are_remembered_if_they_had_a_name() {
        let connections = Arc::new(Connections::default());
        for (name, departure) in [("", Departure::Lost), ("actor", Departure::Lost), ("learner", Departure::Closed)] {
            let peer = Arc::new(Peer::new(Transport::Tcp, String::new()));
            peer.introduce(name);
            let mut open = connections.add(&peer);
            assert!(connections.closed().iter().all(|closed| closed.peer.name() != name), "it is open");
            open.departure = departure;
        }
        let told: Vec<_> =
            connections.closed().iter().map(|closed| (closed.peer.name().to_owned(), closed.how)).collect();
        assert_eq!(told, [("actor".into(), Departure::Lost), ("learner".into(), Departure::Closed)]);
        for _ in 0..2 * MAX_CLOSED {
            let peer = Arc::new(Peer::new(Transport::Tcp, String::new()));
            peer.introduce("many");
            drop(connections.add(&peer));
        }
        assert_eq!(connections.closed().len(), MAX_CLOSED);
    }

    #[test]
    fn streams_are_counted_while_they_are_open() {
        let connections = Arc::new(Connections::default());
        let peer = Arc::new(Peer::new(Transport::Tcp, String::new()));
        let streams =
            [StreamKind::Insert, StreamKind::Write, StreamKind::Write].map(|kind| connections.add_stream(&peer, kind));
        assert_eq!(StreamKind::ALL.map(|kind| connections.num_streams(kind)), [1, 0, 2]);
        assert_eq!(peer.traffic.streams.load(Relaxed), 3);
        drop(streams);
        assert_eq!(StreamKind::ALL.map(|kind| connections.num_streams(kind)), [0, 0, 0]);
        assert_eq!(peer.traffic.streams.load(Relaxed), 0);
    }
}
