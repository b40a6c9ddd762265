//! The largest priorities of the tables of a cluster, as its shards have last told them.

use bytes::Bytes;
use parking_lot::Mutex;
use reverb_core::LargestSeen;
use std::collections::HashMap;

/// What the shards of a cluster have told a client.
#[derive(Debug, Default)]
pub struct ShardPriorities(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The cluster of the first shard. Those of others do not count.
    cluster: Option<String>,
    /// The id of the server that is each shard.
    servers: HashMap<u32, Bytes>,
    /// What each shard has told, by table.
    tables: HashMap<String, HashMap<u32, Told>>,
}

/// What a shard has told of a table.
#[derive(Debug)]
struct Told {
    seen: LargestSeen,
    /// Number of resets that the client has heard of.
    resets: u64,
}

impl ShardPriorities {
    /// Notes which server a shard is. Forgets what another one has told.
    pub fn set_server(&self, cluster: &str, shard: u32, server: &Bytes) {
        let mut state = self.0.lock();
        let is_of_cluster = state.cluster.get_or_insert_with(|| cluster.to_owned()) == cluster;
        if is_of_cluster && state.servers.get(&shard) != Some(server) {
            state.forget(shard);
            state.servers.insert(shard, server.clone());
        }
    }

    /// Forgets a shard, which is not one of the cluster any more.
    pub fn forget(&self, shard: u32) {
        self.0.lock().forget(shard);
    }

    /// Forgets a shard whose server was stopped for good, unless another server is that shard by now.
    pub fn end(&self, shard: u32, server: &Bytes) {
        let mut state = self.0.lock();
        if state.servers.get(&shard) == Some(server) {
            state.forget(shard);
        }
    }

    /// Notes what a server that is a shard has told of a table. Answers of several streams may come late.
    pub fn note(&self, shard: u32, server: &Bytes, table: &str, seen: LargestSeen) {
        let mut state = self.0.lock();
        if state.servers.get(&shard) != Some(server) || !(seen.priority.is_finite() && seen.priority >= 0.0) {
            return;
        }
        let of_shards = match state.tables.get_mut(table) {
            Some(of_shards) => of_shards,
            None => state.tables.entry(table.to_owned()).or_default(),
        };
        let Some(told) = of_shards.get_mut(&shard) else {
            let resets = of_shards.values().map(|told| told.resets).max().unwrap_or(0);
            of_shards.insert(shard, Told { seen, resets });
            return;
        };
        if seen.epoch < told.seen.epoch {
            return;
        }
        if seen.epoch == told.seen.epoch {
            // Within an epoch it only rises.
            told.seen.priority = told.seen.priority.max(seen.priority);
            return;
        }
        let resets = told.resets + 1;
        *told = Told { seen, resets };
        // A reset is one of all shards. What those have told that were not heard of since is older.
        for other in of_shards.values_mut().filter(|other| other.resets < resets) {
            other.seen.priority = 0.0;
        }
    }

    /// Returns the largest priority that the other shards have seen, with the epoch of the table of this shard. `None` if it
    /// is not above that of this shard.
    pub fn others(&self, shard: u32, table: &str) -> Option<LargestSeen> {
        let state = self.0.lock();
        let of_shards = state.tables.get(table)?;
        let own = of_shards.get(&shard)?.seen;
        let others = of_shards.iter().filter(|(other, _)| **other != shard);
        let priority = others.map(|(_, told)| told.seen.priority).fold(0.0, f64::max);
        (priority > own.priority).then_some(LargestSeen { priority, epoch: own.epoch })
    }
}

impl State {
    fn forget(&mut self, shard: u32) {
        self.servers.remove(&shard);
        for of_shards in self.tables.values_mut() {
            of_shards.remove(&shard);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Bytes = Bytes::from_static(b"server a");
    const B: Bytes = Bytes::from_static(b"server b");

    fn seen(priority: f64, epoch: u64) -> LargestSeen {
        LargestSeen { priority, epoch }
    }

    /// Two shards, whose tables have seen 5 and 2.
    fn two() -> ShardPriorities {
        let known = ShardPriorities::default();
        known.set_server("replay", 1, &A);
        known.set_server("replay", 2, &B);
        known.note(1, &A, "table", seen(5.0, 10));
        known.note(2, &B, "table", seen(2.0, 20));
        known
    }

    #[test]
    fn a_shard_is_told_what_others_have_seen_that_is_above_its_own() {
        let known = two();
        assert_eq!(known.others(2, "table"), Some(seen(5.0, 20)));
        assert_eq!(known.others(1, "table"), None);
        assert_eq!(known.others(2, "other"), None);
        assert_eq!(known.others(3, "table"), None, "its epoch is not known");
        known.note(2, &B, "table", seen(7.0, 20));
        assert_eq!(known.others(1, "table"), Some(seen(7.0, 10)));
    }

    #[test]
    fn the_end_of_a_server_forgets_no_newer_one_of_the_same_shard() {
        let known = two();
        known.set_server("replay", 1, &Bytes::from_static(b"server c"));
        known.note(1, &Bytes::from_static(b"server c"), "table", seen(4.0, 30));
        known.end(1, &A);
        assert_eq!(known.others(2, "table"), Some(seen(4.0, 20)));
        known.end(1, &Bytes::from_static(b"server c"));
        assert_eq!(known.others(2, "table"), None);
    }

    #[test]
    fn a_late_answer_of_before_a_raise_or_a_reset_changes_nothing() {
        let known = two();
        known.note(1, &A, "table", seen(3.0, 10));
        assert_eq!(known.others(2, "table"), Some(seen(5.0, 20)));
        known.note(2, &B, "table", seen(1.0, 21));
        known.note(1, &A, "table", seen(0.0, 11));
        known.note(1, &A, "table", seen(5.0, 10));
        assert_eq!(known.others(2, "table"), None);
    }

    #[test]
    fn a_reset_of_one_shard_makes_those_older_that_have_not_told_of_theirs() {
        let known = two();
        known.note(2, &B, "table", seen(0.0, 21));
        assert_eq!(known.others(2, "table"), None);
        known.note(1, &A, "table", seen(4.0, 12));
        assert_eq!(known.others(2, "table"), Some(seen(4.0, 21)), "the reset of the other was known before");
        known.note(1, &A, "table", seen(0.0, 13));
        known.note(1, &A, "table", seen(6.0, 13));
        known.note(2, &B, "table", seen(3.0, 22));
        assert_eq!(known.others(2, "table"), Some(seen(6.0, 22)));
    }

    #[test]
    fn a_shard_that_is_another_server_or_was_removed_is_forgotten() {
        let known = two();
        known.set_server("replay", 1, &A);
        assert_eq!(known.others(2, "table"), Some(seen(5.0, 20)));
        known.set_server("replay", 1, &Bytes::from_static(b"server c"));
        assert_eq!(known.others(2, "table"), None);
        known.note(1, &A, "table", seen(9.0, 99));
        assert_eq!(known.others(2, "table"), None, "it came late");
        let known = two();
        known.forget(1);
        known.note(1, &A, "table", seen(9.0, 99));
        assert_eq!(known.others(2, "table"), None);
    }

    #[test]
    fn a_shard_of_another_cluster_does_not_count() {
        let known = two();
        known.set_server("other", 3, &B);
        known.note(3, &B, "table", seen(9.0, 30));
        assert_eq!(known.others(1, "table"), None);
        assert_eq!(known.others(3, "table"), None);
    }

    #[test]
    fn numbers_that_are_no_priorities_are_ignored() {
        let known = two();
        for priority in [f64::NAN, f64::INFINITY, -1.0] {
            known.note(2, &B, "table", seen(priority, 99));
        }
        assert_eq!(known.others(2, "table"), Some(seen(5.0, 20)));
    }
}
