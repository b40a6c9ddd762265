//! The largest priority of a table that is one of several, the shards of a cluster.

use super::contents::Table;
use crate::LargestSeen;

impl Table {
    /// Returns the largest priority that the table has seen.
    pub fn largest_seen(&self) -> LargestSeen {
        LargestSeen { priority: self.largest_priority, epoch: self.epoch }
    }

    /// Returns the largest priority of this table and of the other shards. `others` is that of those, as the client of an
    /// item knew it when this table was in that epoch. If the table was reset since, so were the others, and it does not
    /// count.
    pub(super) fn largest_beside(&self, others: Option<&LargestSeen>) -> f64 {
        match others {
            // The table alone would say 1 before it has seen one, which may be more than that of the others.
            Some(others) if others.epoch == self.epoch && others.priority > 0.0 => {
                self.largest_priority.max(others.priority)
            }
            _ => self.largest_priority(),
        }
    }
}
