//! The numbers by which a waiting insert or draw says what it waits for.

use super::tally::Sums;
use crate::words::{counted, listed, may_go, more};
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

impl Wait {
    /// Says what an insert of `count` items at a shard waits for, as the end of a sentence.
    pub fn of_insert(&self, count: u64) -> String {
        let missing = more(self.missing, "sample");
        self.sentence("this shard", &format!("{missing} until {}", may_go(count, "insert")))
    }

    /// Says what a draw of `count` samples waits for, as the end of a sentence.
    pub fn of_sample(&self, count: u64) -> String {
        let missing = match self.reason {
            WaitReason::Items => more(self.missing_items, "item"),
            _ => more(self.missing, "insert"),
        };
        self.sentence("this client", &format!("{missing} until {}", may_go(count, "sample")))
    }

    fn sentence(&self, member: &str, missing: &str) -> String {
        let reason = match (self.reason, self.age) {
            (WaitReason::Items | WaitReason::Room, _) => missing.to_owned(),
            (WaitReason::NotListed, _) => format!("the home of the cluster does not count {member} yet"),
            (WaitReason::NoHome, None) => format!("no shard has published its sums to {member} yet"),
            (WaitReason::NoHome, Some(age)) => {
                format!("no shard has published its sums to {member} for {:.1} s", age.as_secs_f64())
            }
        };
        let sums = self.sums.map_or_else(String::new, |Sums { inserts, samples, items }| {
            let (inserts, samples) = (counted(inserts, "insert"), counted(samples, "sample"));
            format!("; all shards together: {inserts}, {samples}, {}", counted(items, "item"))
        });
        let silent: Vec<_> = self.silent.iter().map(u32::to_string).collect();
        let silent = match &silent[..] {
            [] => String::new(),
            [one] => format!("; shard {one} is silent"),
            several => format!("; shards {} are silent", listed(several)),
        };
        format!("{reason}{sums}{silent}")
    }
}
