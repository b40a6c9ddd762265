//! The numbers by which a waiting insert or draw says what it waits for.

use super::tally::Sums;
use std::time::Duration;

/// Why a member stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitReason {
    /// No publication lives: the home is lost, or cut off, or none was there yet.
    NoHome,
    /// The home does not hear this member, or has heard it for the first time a moment ago.
    NotListed,
    /// The shards have too few items for the first sample.
    Items,
    /// The member's share of the room is too small.
    Room,
}

/// What an insert or a draw waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// Why it waits.
    pub reason: WaitReason,
    /// The last published sums; `None` if nothing was ever published to this member.
    pub sums: Option<Sums>,
    /// How old these are: the time since they arrived.
    pub age: Option<Duration>,
    /// Number of inserts, or samples, of this member that the sums do not contain yet.
    pub own_use: u64,
    /// Number of samples that an insert lacks, or of inserts that a draw lacks, if nothing else happens and no other
    /// member uses its share. 0 where the reason is another.
    pub missing: u64,
    /// Number of items that the shards lack before the first sample.
    pub missing_items: u64,
    /// The shards that the home does not hear, by the last publication.
    pub silent: Vec<u32>,
}
