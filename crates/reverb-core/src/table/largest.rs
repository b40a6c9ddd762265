//! The largest priority of a table that is one of several, the shards of a cluster.

use super::contents::Table;
use crate::NewPriority;

/// The largest priority that tables have seen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LargestSeen {
    /// The largest finite priority of inserts and updates since the last reset. 0 before the first above 0.
    pub priority: f64,
    /// A number of one of the tables that rises with each of its resets.
    pub epoch: u64,
}

impl Table {
    /// Returns the largest priority that the table has seen.
    pub fn largest_seen(&self) -> LargestSeen {
        LargestSeen { priority: self.largest_priority, epoch: self.epoch }
    }

    /// Returns the priority of a new item that takes the largest of all shards. `others` is that of the other shards, as
    /// its client knew it when this table was in that epoch. If the table was reset since, so were the others, and it
    /// does not count.
    pub fn largest_of_all(&self, given: NewPriority, others: LargestSeen) -> NewPriority {
        if !given.takes_largest || others.epoch != self.epoch || others.priority <= 0.0 {
            return given;
        }
        // The table alone would say 1 before it has seen one, which may be more than that of the others.
        let takes_largest = self.largest_priority > 0.0 || self.config().check_takes_largest().is_err();
        NewPriority { value: given.value.max(others.priority), takes_largest }
    }
}
