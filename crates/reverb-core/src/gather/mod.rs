//! Gathers drawn items into one batch: every column in one contiguous block, all columns in one buffer.

mod alike;
mod columns;
mod cursor;
mod decode;
mod gatherer;
mod layout;
mod plan;
mod rows;
#[cfg(test)]
mod tests;

pub(crate) use alike::AlikeRows;
pub(crate) use cursor::END_BYTES;
pub use decode::decoded_bytes;
pub use gatherer::{Gatherer, Mismatch};
pub use layout::{BatchColumn, BatchLayout};
pub(crate) use rows::ReadableRows;
