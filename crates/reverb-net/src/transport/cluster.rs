//! How a client uses several servers as one buffer.

use std::time::Duration;

// limit (Connections and calls): time for which a call waits for a missing shard of a cluster that is used with
// `on_shard_loss="wait"` | {}, or until its deadline | `UnavailableError`
/// Maximum time for which a call waits for a missing shard.
const LOSS_TIME: Duration = Duration::from_secs(300);

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

impl OnShardLoss {
    /// Returns the time for which a call waits for a missing shard. `None` if it does not wait.
    pub fn patience(self) -> Option<Duration> {
        (self == Self::Wait).then_some(LOSS_TIME)
    }
}

/// When a writer chooses its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// At the start of each episode.
    Episode,
    /// Once.
    Writer,
}
