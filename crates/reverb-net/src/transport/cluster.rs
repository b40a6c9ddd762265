//! How a client uses several servers as one buffer.

use std::time::Duration;

/// What a client of a cluster was told beside the addresses of its shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterOptions {
    /// What becomes of calls while a shard is missing.
    pub on_shard_loss: OnShardLoss,
    /// Time after which a shard that does not answer is missing.
    pub shard_timeout: Duration,
    /// When a writer chooses its shard.
    pub placement: Placement,
}

/// What becomes of calls while a shard is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnShardLoss {
    /// They go on with the other shards.
    Continue,
    /// They wait for the shard.
    Wait,
    /// They fail, and name the shard.
    Raise,
}

/// When a writer chooses its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// At the start of each episode.
    Episode,
    /// Once.
    Writer,
}
