//! What a writer keeps of its steps, and how items are made of them.
//!
//! Steps go into a [`StepBuffer`], which copies each value once, into an open [`WriterChunk`]. A [`Selection`] names
//! values by chunk and row, so an item can be made while its chunks are still open; it can go to its table when all of
//! them are closed.

mod append_error;
mod chunk;
mod item;
mod options;
mod patterned;
mod selection;
mod steps;

pub use append_error::AppendError;
pub use chunk::{CellData, ChunkCompression, DroppedChunks, Form, Value, WriterChunk};
pub use item::WriterItem;
pub use options::ColumnOptions;
pub use selection::{CellRun, Selection};
pub use steps::{ColumnValue, StepBuffer, WriterColumn};
