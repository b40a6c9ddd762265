//! What members tell each other.

use super::tally::{Incarnation, Sums, Tally};
use std::collections::BTreeSet;

/// Who takes part: a shard, which inserts, or a learner, which samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberId {
    /// A shard, by its id.
    Shard(u32),
    /// A learner, by a random number.
    Learner(u64),
}

/// Which home published. The greater one is newer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation {
    /// One more than any number that the home had seen when it became the home.
    pub number: u64,
    /// The home.
    pub home: Incarnation,
}

/// What the home says every [`PUBLISH_EVERY`](super::config::PUBLISH_EVERY).
#[derive(Debug, Clone, PartialEq)]
pub struct Publication {
    /// Who publishes.
    pub generation: Generation,
    /// The number of the publication in its generation.
    pub sequence: u64,
    /// The counts that the sums are made of.
    pub tally: Tally,
    /// What all have counted.
    pub sums: Sums,
    /// By how much inserts may raise `inserts × samples_per_insert - samples`.
    pub insert_room: f64,
    /// By how much samples may lower it.
    pub sample_room: f64,
    /// Number of items that may be inserted whatever the ratio says, until there are `min_size_to_sample`.
    pub refill_room: u64,
    /// Number of members by which each side's room is divided.
    pub holders: Holders,
    /// Who may use a share. The others have joined a moment ago, or are not heard by the home.
    pub listed: BTreeSet<MemberId>,
    /// The shards of the map that the home does not hear.
    pub silent: Vec<u32>,
}

/// Number of members of each side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Holders {
    /// Those who insert.
    pub shards: u64,
    /// Those who sample.
    pub learners: u64,
}

/// What a member tells the home, and a member without a home all shards.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Who reports.
    pub from: MemberId,
    /// What the member knows.
    pub tally: Tally,
    /// The newest generation that the member has seen.
    pub newest: Option<Generation>,
    /// Whether a publication of that generation lives at the member.
    pub has_home: bool,
    /// Number of samples that a learner waits for; 0 if it does not wait.
    pub wants: u64,
}

/// What a shard answers when it has counted samples of a learner.
#[derive(Debug, Clone, PartialEq)]
pub struct Counted {
    /// The incarnation that has counted them.
    pub incarnation: Incarnation,
    /// What the shard knows, with these samples.
    pub tally: Tally,
}
