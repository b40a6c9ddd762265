//! Effects: what calls have done to a table, in the order in which they did it.
//!
//! A table can be made again from an earlier state of it and the effects since then: see [`Replay`](crate::Replay). The
//! states are those that a checkpoint saves: draws in flight have not been made. So a draw has no effect, and its
//! receipt has one: [`Effect::Gone`] or [`Effect::Count`].
//!
//! The time of the insert tells an item from another one with the same key.

use crate::table::RemovalReason;
use crate::{ItemKey, ItemView, TableChanges};
use std::sync::Arc;

/// One effect of a call.
#[derive(Debug, Clone)]
pub enum Effect {
    /// An item has entered the table, with the priority that it has there. If another item with the key waits for its
    /// draws in flight, the newer of the two is in the table.
    Put(ItemView),
    /// An item has left the table for good.
    Gone {
        /// Key of the item.
        key: ItemKey,
        /// Time of its insert.
        inserted_at: u64,
        /// The reason.
        reason: RemovalReason,
    },
    /// Of several items with this key, this one is in the table from now on.
    Back {
        /// Key of the item.
        key: ItemKey,
        /// Time of its insert.
        inserted_at: u64,
    },
    /// The items of the table with these keys have new priorities, one after another: each comes after the others of its
    /// priority.
    Priorities(Vec<(ItemKey, f64)>),
    /// An item that draws in flight have taken has a new priority. It keeps its place among the others.
    FlightPriority {
        /// Key of the item.
        key: ItemKey,
        /// Time of its insert.
        inserted_at: u64,
        /// The new priority.
        priority: f64,
    },
    /// An item was drawn so many times. Only tables with `max_times_sampled` note this.
    Count {
        /// Key of the item.
        key: ItemKey,
        /// Time of its insert.
        inserted_at: u64,
        /// Number of draws that were received.
        times_sampled: i32,
    },
    /// All items have left, and the counts were cleared.
    Reset,
    /// Options were changed.
    Options(Box<TableChanges>),
    /// The counts of the table after all effects before this one.
    Counters(Counters),
    /// The item that was inserted just before was the one to which its writer gave this number. It is an effect on the
    /// ledger of the writer, which no table has.
    Wrote {
        /// The writer.
        writer: Arc<WriterId>,
        /// The number.
        sequence: u64,
    },
}

/// A writer: whom it belongs to, and the id that it gave itself. Another owner cannot take its place, and learns nothing
/// of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WriterId {
    /// The name of the token of the owner; `None` where the server asks for none.
    pub owner: Option<Arc<str>>,
    /// The id.
    pub id: u64,
}

/// The counts of a table that a checkpoint has too. Draws in flight do not count.
///
/// Effects do not tell which items draws in flight have taken. So two of the counts are given as sums with what the table
/// has now, which are the same whether these items are in the table or not.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Counters {
    /// Number of inserts that the rate limiter has counted.
    pub inserts: i64,
    /// Number of samples that the rate limiter has counted.
    pub samples: i64,
    /// Number of removals that the rate limiter has counted, and of items in the table.
    pub deletes_and_items: i64,
    /// Number of episodes that have left the table or are in it.
    pub num_episodes: u64,
    /// Number of items that were drawn at least once.
    pub num_unique_samples: u64,
    /// The largest finite priority above 0 since the last reset; 0 before the first.
    pub largest_priority: f64,
}

/// How safe effects must be before an answer tells of them. Each is safer than those before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Confirmation {
    /// No answer waits for them.
    #[default]
    Nothing,
    /// They survive the end of the process.
    Written,
    /// They survive a loss of power, if the server promises that.
    Synced,
}

impl Effect {
    /// How safe the effect must be before an answer tells of it.
    pub fn confirmation(&self) -> Confirmation {
        match self {
            Self::Put(_) | Self::Reset | Self::Options(_) | Self::Wrote { .. } => Confirmation::Synced,
            Self::Gone { reason: RemovalReason::Delete, .. } => Confirmation::Synced,
            // Evictions come with the insert that has caused them, which asks for more. The others are receipts.
            Self::Gone { .. } | Self::Priorities(_) | Self::FlightPriority { .. } | Self::Count { .. } => {
                Confirmation::Written
            }
            Self::Back { .. } | Self::Counters(_) => Confirmation::Nothing,
        }
    }
}
