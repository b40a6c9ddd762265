//! How columns of a writer are kept and cut into chunks.

use crate::{Error, Result};

/// Bytes of a full chunk whose length is not given: large enough that a chunk costs little beside its data, small enough
/// that one item keeps little else alive.
const AUTO_CHUNK_BYTES: usize = 64 << 10;
/// Rows of a full chunk whose length is not given.
const AUTO_CHUNK_ROWS: usize = 64;
/// Bytes of a full chunk whose length is given, unless one row is more: what is sent must fit into a message.
const MAX_CHUNK_BYTES: usize = 32 << 20;

/// How a column is kept and cut into chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnOptions {
    /// Values that stay available to new items.
    pub num_keep_alive_refs: u32,
    /// Rows of a chunk. `None`: as many as fit 64 KiB, at most 64, and a chunk that an item waits for is closed early.
    pub max_chunk_length: Option<u32>,
}

impl ColumnOptions {
    /// Checks the numbers.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] that names the number.
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

    /// Rows of a full chunk, where a row takes so many bytes.
    pub(super) fn rows_of_chunk(&self, row_bytes: usize) -> u32 {
        let fitting = |bytes: usize| (bytes / row_bytes.max(1)).max(1);
        match self.max_chunk_length {
            Some(length) => length.min(fitting(MAX_CHUNK_BYTES).min(u32::MAX as usize) as u32),
            None => fitting(AUTO_CHUNK_BYTES).min(AUTO_CHUNK_ROWS) as u32,
        }
    }
}
