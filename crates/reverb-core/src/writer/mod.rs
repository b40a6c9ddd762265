//! The steps that a writer keeps, and how items are made of them.
//!
//! Steps go into a [`StepBuffer`], which copies each value once, into an open [`WriterChunk`]. A [`Selection`] refers
//! to values by chunk and row, so an item can be made while its chunks are still open. It can be sent to its table when
//! all of them are closed.

mod append_error;
mod chunk;
mod column;
mod item;
mod options;
mod patterned;
mod row_bytes;
mod selection;
mod steps;

pub use append_error::AppendError;
pub use chunk::{CellData, ChunkCompression, ChunkTemplate, Value, WriterChunk};
pub use column::WriterColumn;
pub use item::WriterItem;
pub(crate) use options::AUTO_CHUNK_ROWS;
pub use options::ColumnOptions;
pub use row_bytes::{ChunkMemory, LEAST_SHARED_BYTES, StreamChunks};
pub use selection::{CellRun, Selection};
pub use steps::{ColumnValue, StepBuffer};
