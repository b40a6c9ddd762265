//! Options for the columns of a writer.

use crate::{Error, Result};

// limit (Writers): rows of a chunk whose length is not given | {}, {AUTO_CHUNK_ROWS} steps | the next chunk
/// Size in bytes of a full chunk without a given length: so large that the chunk itself costs little beside its data,
/// and so small that one item keeps little other data alive.
const AUTO_CHUNK_BYTES: usize = 64 << 10;
/// Maximum number of rows of a full chunk without a given length.
pub(crate) const AUTO_CHUNK_ROWS: usize = 64;
/// Size in bytes of a full chunk with a given length, unless one row is larger: a chunk must fit into a message.
const MAX_FULL_CHUNK_BYTES: usize = 32 << 20;

/// Options for a column: how many values are kept, and how long its chunks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnOptions {
    /// Number of values that stay available to new items.
    pub num_keep_alive_refs: u32,
    /// Number of rows of a chunk. With `None`, a chunk has as many rows as fit into 64 KiB, at most 64, and is closed
    /// early if an item waits for it.
    pub max_chunk_length: Option<u32>,
}

impl ColumnOptions {
    /// Checks that the numbers are valid.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], which names the invalid number.
    pub fn check(&self) -> Result<()> {
        let Self { num_keep_alive_refs, max_chunk_length } = *self;
        if num_keep_alive_refs == 0 {
            return Err(Error::invalid("num_keep_alive_refs (0) must be a positive integer"));
        }
        match max_chunk_length {
            Some(length) if length == 0 || length > num_keep_alive_refs => Err(Error::invalid(format!(
                "max_chunk_length ({length}) must be None or a positive integer <= num_keep_alive_refs \
                 ({num_keep_alive_refs})"
            ))),
            _ => Ok(()),
        }
    }

    /// Number of rows of a full chunk whose rows have this size.
    pub(super) fn rows_of_chunk(&self, row_bytes: usize) -> u32 {
        let fitting = |bytes: usize| (bytes / row_bytes.max(1)).max(1);
        match self.max_chunk_length {
            Some(length) => length.min(fitting(MAX_FULL_CHUNK_BYTES).min(u32::MAX as usize) as u32),
            None => fitting(AUTO_CHUNK_BYTES).min(AUTO_CHUNK_ROWS) as u32,
        }
    }
}
