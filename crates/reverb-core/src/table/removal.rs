//! The reasons for which items leave a table.

/// The reason for which an item leaves a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalReason {
    /// The table holds more items than `max_size`.
    MaxSize,
    /// The table keeps more bytes alive than `max_bytes`.
    MaxBytes,
    /// The item was drawn `max_times_sampled` times.
    MaxTimesSampled,
    /// A caller deleted the item by its key.
    Delete,
    /// The table was reset.
    Reset,
}

/// Number of items that left a table, by reason.
///
/// The counts start at 0 with a new table. A checkpoint does not contain them, so they also start at 0 with a restored
/// table. A reset does not clear them. An item that comes back, because the draw that removed it is given back, stays
/// counted, and `returned_items` of [`TableInfo`](super::figures::TableInfo) counts its return. Over the life of a table,
/// the number of items that were inserted under a new key, were restored or came back equals the number of items in the
/// table plus [`RemovalCounts::total`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemovalCounts {
    /// Items that the remover chose because the table was over `max_size`.
    pub max_size: u64,
    /// Items that the remover chose because the table was over `max_bytes`.
    pub max_bytes: u64,
    /// Items that were drawn `max_times_sampled` times.
    pub max_times_sampled: u64,
    /// Items that a caller deleted by key.
    pub deleted: u64,
    /// Items that were in the table when it was reset.
    pub reset: u64,
}

impl RemovalCounts {
    /// Number of items that left the table for any reason.
    pub fn total(&self) -> u64 {
        self.by_reason().iter().map(|(_, count)| count).sum()
    }

    /// The counts with the names of their reasons, as in documents and metrics.
    pub fn by_reason(&self) -> [(&'static str, u64); 5] {
        let Self { max_size, max_bytes, max_times_sampled, deleted, reset } = *self;
        [
            ("max_size", max_size),
            ("max_bytes", max_bytes),
            ("max_times_sampled", max_times_sampled),
            ("delete", deleted),
            ("reset", reset),
        ]
    }

    /// The counts, in the same order.
    pub(super) fn by_reason_mut(&mut self) -> [&mut u64; 5] {
        let Self { max_size, max_bytes, max_times_sampled, deleted, reset } = self;
        [max_size, max_bytes, max_times_sampled, deleted, reset]
    }

    /// The count of a reason, for changes.
    #[inline]
    pub(super) fn of(&mut self, reason: RemovalReason) -> &mut u64 {
        match reason {
            RemovalReason::MaxSize => &mut self.max_size,
            RemovalReason::MaxBytes => &mut self.max_bytes,
            RemovalReason::MaxTimesSampled => &mut self.max_times_sampled,
            RemovalReason::Delete => &mut self.deleted,
            RemovalReason::Reset => &mut self.reset,
        }
    }
}
