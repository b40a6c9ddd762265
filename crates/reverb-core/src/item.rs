//! Items before they enter a table, as a table shows them, and as it draws them.

use crate::{ItemKey, Trajectory};
use std::sync::Arc;

/// An item that is not in a table yet.
#[derive(Debug, Clone)]
pub struct NewItem {
    /// Key of the item, unique in its table.
    pub key: ItemKey,
    /// Priority, from which the selectors choose.
    pub priority: f64,
    /// Whether the item enters with [`Table::largest_priority`](crate::Table::largest_priority) of that moment, if that
    /// is above `priority`.
    pub takes_largest: bool,
    /// What the client knows of the table's largest priority at the other shards of a cluster. It counts for an item that
    /// takes the largest.
    pub others: Option<Box<LargestSeen>>,
    /// Number of draws so far: 0 except for restored items.
    pub times_sampled: i32,
    /// The data.
    pub trajectory: Trajectory,
}

/// The largest priority that tables have seen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LargestSeen {
    /// The largest finite priority of inserts and updates since the last reset. 0 before the first above 0.
    pub priority: f64,
    /// A number of one of the tables that rises with each of its resets.
    pub epoch: u64,
}

/// The priority that a caller gives to an item.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NewPriority {
    /// See [`NewItem::priority`].
    pub value: f64,
    /// See [`NewItem::takes_largest`].
    pub takes_largest: bool,
}

impl From<f64> for NewPriority {
    fn from(value: f64) -> Self {
        Self { value, takes_largest: false }
    }
}

impl NewItem {
    /// Whether both items have the same number of rows of the same chunk, of one form, and the same number of draws so far.
    pub(crate) fn is_like(&self, other: &NewItem) -> bool {
        match (&self.trajectory, &other.trajectory) {
            (
                Trajectory::Rows { chunk: a, length: rows, squeeze, .. },
                Trajectory::Rows { chunk: b, length: other_rows, squeeze: other_squeeze, .. },
            ) => {
                Arc::ptr_eq(a, b)
                    && (rows, squeeze) == (other_rows, other_squeeze)
                    && self.times_sampled == other.times_sampled
            }
            _ => false,
        }
    }

    /// Whether both items enter a table with the same priority.
    pub(crate) fn has_priority_of(&self, other: &NewItem) -> bool {
        let are_given = self.priority == other.priority && self.takes_largest == other.takes_largest;
        are_given && (!self.takes_largest || self.others == other.others)
    }
}

/// An item of a table, as it was when the caller asked for it.
#[derive(Debug, Clone)]
pub struct ItemView {
    /// Key of the item, unique in its table.
    pub key: ItemKey,
    /// Priority, from which the selectors choose.
    pub priority: f64,
    /// Number of draws of the item.
    pub times_sampled: i32,
    /// Time of the insert in nanoseconds since the Unix epoch.
    pub inserted_at: u64,
    /// The data.
    pub trajectory: Trajectory,
}

/// The number under which a table tracks a draw in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FlightNumber(u32);

impl FlightNumber {
    /// The number of draws that are not tracked.
    pub const NONE: Self = Self(u32::MAX);

    /// A table has fewer draws in flight than there are numbers: each keeps more than 64 bytes.
    pub fn new(number: u32) -> Self {
        debug_assert_ne!(number, u32::MAX);
        Self(number)
    }

    #[inline]
    pub fn get(self) -> Option<u32> {
        (self != Self::NONE).then_some(self.0)
    }
}

/// An item that was drawn, as it was at that moment.
#[derive(Debug, Clone)]
pub struct Drawn {
    /// Key of the item, unique in its table.
    pub key: ItemKey,
    /// Probability of the draw.
    pub probability: f64,
    /// Number of items in the table, including this one.
    pub table_size: i64,
    /// Priority of the item.
    pub priority: f64,
    /// Number of draws of the item, including this one.
    pub times_sampled: i32,
    /// Whether the draw had to wait for the rate limiter. A table does not wait, so its caller sets this.
    pub rate_limited: bool,
    /// Time of the insert in nanoseconds since the Unix epoch.
    pub inserted_at: u64,
    /// The data.
    pub trajectory: Trajectory,
    /// The epoch of the table: draws from before a reset cannot be given back.
    pub(crate) epoch: u64,
    /// Under which number the table remembers the draw until it is delivered or given back.
    pub(crate) in_flight: FlightNumber,
}

impl Drawn {
    /// Whether the table waits to hear that the draw was delivered or given back.
    #[inline]
    pub fn is_tracked(&self) -> bool {
        self.in_flight != FlightNumber::NONE
    }

    /// An item in the form of a draw that did not happen, so that it can be gathered. Giving it back changes nothing.
    pub fn peeked(item: ItemView, table_size: u64) -> Self {
        let ItemView { key, priority, times_sampled, inserted_at, trajectory } = item;
        let (probability, rate_limited, in_flight) = (1.0, false, FlightNumber::NONE);
        // No table reaches this epoch.
        let epoch = u64::MAX;
        Self {
            key,
            probability,
            table_size: table_size as i64,
            priority,
            times_sampled,
            rate_limited,
            inserted_at,
            trajectory,
            epoch,
            in_flight,
        }
    }
}
