//! What a client knows of its cluster from earlier rounds.

use super::first::First;
use super::room::Rooms;
use crate::client::join::{Asking, ends_now};
use crate::replay_v1::proto::Shard;
use crate::transport::cluster::ClusterOptions;
use parking_lot::Mutex;
use reverb_core::{Error, Race};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

/// What a client was told of its cluster, and what it has learnt.
#[derive(Debug)]
pub struct Cluster {
    /// What the client was told.
    pub options: ClusterOptions,
    /// The limiters that the shards keep together.
    pub rooms: Rooms,
    /// A shard of the cluster, with its address: the first that was seen while all servers agreed on the cluster.
    pub first: Arc<First>,
    known: Mutex<Known>,
}

/// Counts of all draws of a client of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of rounds in which all shards have answered.
    pub rounds: u64,
    /// Number of arrivals that went back to their shards, because others were earlier.
    pub spare_arrivals: u64,
    /// The shards that were missing in the last round, by their addresses.
    pub missing: Vec<Arc<str>>,
    /// Those that are connected, but have not answered in time, nor since.
    pub slow: Vec<Arc<str>>,
}

/// A call whose answer says that a shard is back.
pub struct Probe(pub Asking<'static, ()>);

impl Probe {
    fn is_answered(&mut self) -> bool {
        ends_now(self.0.as_mut())
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Probe")
    }
}

#[derive(Debug, Default)]
struct Known {
    /// The last sums of the weights and sizes of each table.
    sums: HashMap<String, (f64, u64)>,
    counts: Counts,
    /// The shards that have not answered, and what ends when one is back.
    silent: BTreeMap<Arc<str>, Probe>,
    /// The last shard at each address.
    shards: HashMap<Arc<str>, u32>,
    /// All addresses, also those of lost shards.
    addresses: Vec<Arc<str>>,
    /// The servers that were seen, in the order in which they were.
    seen: Vec<Vec<u8>>,
    /// Servers whose refusal was reported.
    refused: HashSet<Vec<u8>>,
    /// Shards whose servers have said that they were stopped for good.
    stopped: HashSet<Arc<str>>,
}

impl Cluster {
    /// Makes what is known before the first round.
    pub fn new(options: ClusterOptions) -> Self {
        let first = Arc::<First>::default();
        Self { options, rooms: Rooms::new(first.clone()), first, known: Mutex::default() }
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        let known = self.known.lock();
        Counts { slow: known.silent.keys().cloned().collect(), ..known.counts.clone() }
    }

    /// Returns the race for so many items of a table. Without sums, it is the longest: every shard is cut at the limit.
    pub fn race(&self, table: &str, wanted: usize) -> Race {
        let sums = self.known.lock().sums.get(table).copied();
        let race = sums.and_then(|(weight, size)| Race::new(wanted, weight, size));
        bounded(race.unwrap_or(Race { interval: f64::MAX, limit: wanted, by_size: false }))
    }

    /// Notes a round in which all shards have answered.
    pub fn note_round(&self, table: &str, sums: (f64, u64), spare_arrivals: u64) {
        let mut known = self.known.lock();
        known.counts.rounds += 1;
        known.counts.spare_arrivals += spare_arrivals;
        match known.sums.get_mut(table) {
            Some(last) => *last = sums,
            None => drop(known.sums.insert(table.to_owned(), sums)),
        }
    }

    /// Notes which shards are missing. Returns those that were not before.
    pub fn note_missing(&self, missing: Vec<Arc<str>>) -> Vec<Arc<str>> {
        let mut known = self.known.lock();
        let new = missing.iter().filter(|peer| !known.counts.missing.contains(peer)).cloned().collect();
        known.counts.missing = missing;
        new
    }

    /// Notes that a shard has not answered in time.
    pub fn add_silent(&self, peer: &Arc<str>, mut probe: Probe) {
        // Sends what it asks.
        probe.is_answered();
        let replaced = self.known.lock().silent.insert(peer.clone(), probe);
        drop(replaced);
    }

    /// Whether a shard has still not answered.
    pub fn is_silent(&self, peer: &Arc<str>) -> bool {
        let mut known = self.known.lock();
        let is_silent = known.silent.get_mut(peer).is_some_and(|probe| !probe.is_answered());
        let answered = if is_silent { None } else { known.silent.remove(peer) };
        drop(known);
        drop(answered);
        is_silent
    }

    /// Notes all addresses of the cluster.
    pub fn set_addresses(&self, addresses: Vec<Arc<str>>) {
        self.known.lock().addresses = addresses;
    }

    /// Notes a shard that is connected. Returns how many servers were seen before its own was.
    pub fn see(&self, peer: &Arc<str>, shard: &Shard, server: &[u8]) -> usize {
        let mut known = self.known.lock();
        known.stopped.remove(peer);
        if known.shards.get(peer) != Some(&shard.id) {
            known.shards.insert(peer.clone(), shard.id);
        }
        known.seen.iter().position(|seen| seen == server).unwrap_or_else(|| {
            known.seen.push(server.to_vec());
            known.seen.len() - 1
        })
    }

    /// Whether a server is refused for the first time.
    pub fn is_new_refusal(&self, server: &[u8]) -> bool {
        self.known.lock().refused.insert(server.to_vec())
    }

    /// Notes that the server of a shard was stopped for good.
    pub fn set_stopped(&self, peer: &Arc<str>) {
        self.known.lock().stopped.insert(peer.clone());
    }

    /// Whether the servers of all shards were stopped for good.
    pub fn is_stopped(&self) -> bool {
        let known = self.known.lock();
        !known.addresses.is_empty() && known.addresses.iter().all(|peer| known.stopped.contains(peer))
    }

    /// Returns the number of the shard that was seen last at an address.
    pub fn id(&self, peer: &str) -> Option<u32> {
        self.known.lock().shards.get(peer).copied()
    }

    /// Says which shards are missing, and why.
    pub fn names(&self, missing: &[(Arc<str>, Error)]) -> String {
        let names = missing.iter().map(|(peer, error)| format!("{} is missing: {error}", self.name(peer)));
        names.collect::<Vec<_>>().join("; ")
    }

    /// Names the shard at an address.
    pub fn name(&self, peer: &str) -> String {
        match self.known.lock().shards.get(peer) {
            Some(id) => format!("shard {id} at {peer}"),
            None => format!("the shard at {peer}"),
        }
    }
}

/// The same race, with an interval that a server takes. What an interval is decides only how many arrivals come.
pub fn bounded(race: Race) -> Race {
    Race { interval: race.interval.clamp(f64::MIN_POSITIVE, f64::MAX), ..race }
}
