//! Limits that errors name.

// limit (Chunks and messages): bytes of a string column of one batch | {} | `InvalidArgumentError`
// limit (Chunks and messages): bytes that an item refers to, on every road and in checkpoints | {} |
// `ItemTooLargeError`; `DataLossError` in a checkpoint
/// Maximum number of bytes that an item refers to: the ends of the strings of a batch are 32-bit numbers. Rows that an
/// item refers to twice count twice.
pub const MAX_ITEM_BYTES: u64 = u32::MAX as u64;
// limit (Chunks and messages): columns of an item and their slices together, on every road and in checkpoints | {} |
// `InvalidArgumentError`; `DataLossError` in a checkpoint
/// Maximum number of columns of an item and of their slices. A slice may take two bytes in a message and takes about
/// thirty in memory.
pub const MAX_ITEM_SLICES: usize = 1 << 22;
