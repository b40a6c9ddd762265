//! The clients of a server, by process: those that are connected, and those that have left.

use crate::connections::{ClosedConnection, Departure};
use crate::peer::Peer;
use crate::replay::Replay;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::SystemTime;

// limit (HTTP, metrics and logs): clients that have left and are shown | {} | the latest are shown
/// Maximum number of clients that have left and are shown.
const MAX_LEFT: usize = 256;

/// A client that has left: none of the connections of its process is open any more.
#[derive(Debug, Clone)]
pub struct LeftClient {
    /// The peer of the last of its connections.
    pub peer: Arc<Peer>,
    /// Time at which the first of those that are remembered was opened.
    pub since: SystemTime,
    /// Time at which the last one ended.
    pub at: SystemTime,
    /// How that ended.
    pub how: Departure,
    /// Items that it inserted.
    pub inserts: u64,
    /// Items that it drew.
    pub samples: u64,
    /// All that are remembered of its connections.
    pub peers: Vec<Arc<Peer>>,
}

impl Replay {
    /// Returns the connected clients: the peers of each process, in the order in which their first one connected. The
    /// server's own process is one if a client in it is used.
    pub fn processes(&self) -> Vec<Vec<Arc<Peer>>> {
        let here = self.this_process();
        let traffic = &here.traffic;
        let is_used = self.has_client_here() || traffic.inserts.load(Relaxed) + traffic.samples.load(Relaxed) > 0;
        let mut processes: Vec<Vec<Arc<Peer>>> = Vec::new();
        let mut places = HashMap::new();
        let peers = is_used.then(|| here.clone()).into_iter().chain(self.connections.list());
        // One that has not said its name may be a probe.
        for peer in peers.filter(|peer| !peer.name().is_empty()) {
            let (name, machine) = peer.process();
            let place = *places.entry((name.to_owned(), machine.to_owned())).or_insert(processes.len());
            match processes.get_mut(place) {
                Some(process) => process.push(peer),
                None => processes.push(vec![peer]),
            }
        }
        processes
    }

    /// Returns the clients that have left in the last ten minutes, the latest first.
    pub fn left(&self) -> Vec<LeftClient> {
        let open = self.connections.list();
        let connected: HashSet<_> = open.iter().map(|peer| peer.process()).collect();
        let mut left: Vec<LeftClient> = Vec::new();
        let mut places: HashMap<(String, String), usize> = HashMap::new();
        for ClosedConnection { peer, at, how } in self.connections.closed().into_iter().rev() {
            let (name, machine) = peer.process();
            if connected.contains(&(name, machine)) {
                continue;
            }
            let place = *places.entry((name.to_owned(), machine.to_owned())).or_insert(left.len());
            let (inserts, samples) = (peer.traffic.inserts.load(Relaxed), peer.traffic.samples.load(Relaxed));
            if let Some(client) = left.get_mut(place) {
                client.since = client.since.min(peer.since);
                client.inserts += inserts;
                client.samples += samples;
                client.peers.push(peer);
            } else {
                let peers = vec![peer.clone()];
                left.push(LeftClient { since: peer.since, peer, at, how, inserts, samples, peers });
            }
        }
        left.truncate(MAX_LEFT);
        left
    }
}
