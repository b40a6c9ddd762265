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
        self.left_before(SystemTime::now())
    }

    fn left_before(&self, now: SystemTime) -> Vec<LeftClient> {
        let open = self.connections.list();
        let connected: HashSet<_> = open.iter().map(|peer| peer.process()).collect();
        let mut left: Vec<LeftClient> = Vec::new();
        let mut places: HashMap<(String, String), usize> = HashMap::new();
        for ClosedConnection { peer, at, how } in self.connections.closed_before(now).into_iter().rev() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Transport;
    use crate::tables_used::Place;
    use std::time::Duration;

    fn leave(replay: &Replay, name: &str, table: Place) {
        let peer = Arc::new(Peer::new(Transport::Tcp, "127.0.0.1:4711".into()));
        peer.introduce(name);
        peer.traffic.count_inserts(1, table);
        drop(replay.connections.add(&peer));
    }

    #[test]
    fn the_latest_clients_that_have_left_are_told() {
        let replay = Replay::new(Vec::new(), 1 << 20).unwrap();
        for number in 0..=MAX_LEFT {
            leave(&replay, &format!("actor.py (host:{number})"), Place(0));
        }
        let left = replay.left();
        assert_eq!(left.len(), MAX_LEFT);
        assert_eq!(left[0].peer.name(), format!("actor.py (host:{MAX_LEFT})"));
        assert_eq!(left[MAX_LEFT - 1].peer.name(), "actor.py (host:1)", "the first is forgotten");
    }

    #[test]
    fn clients_that_left_ten_minutes_ago_are_forgotten() {
        let replay = Replay::new(Vec::new(), 1 << 20).unwrap();
        leave(&replay, "actor.py (host:17)", Place(0));
        let at = replay.left()[0].at;
        assert_eq!(replay.left_before(at + Duration::from_millis(599_999)).len(), 1);
        assert_eq!(replay.left_before(at + Duration::from_secs(600)).len(), 0);
    }

    #[test]
    fn all_connections_of_a_client_that_has_left_say_what_it_did() {
        let replay = Replay::new(Vec::new(), 1 << 20).unwrap();
        [Place(3), Place(70)].into_iter().for_each(|table| leave(&replay, "actor.py (host:17)", table));
        let [left] = replay.left().try_into().unwrap();
        let places: Vec<_> = left.peers.iter().flat_map(|peer| peer.traffic.inserted.places()).collect();
        assert_eq!((left.inserts, places), (2, vec![70, 3]));
    }
}
