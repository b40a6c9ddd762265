//! What a writer keeps of its steps, and how items are made of them.
//!
//! Steps go into a [`StepBuffer`], which copies each value once, into an open [`WriterChunk`]. A [`Selection`] names
//! values by chunk and row, so an item can be made while its chunks are still open; it can go to its table when all of
//! them are closed.

mod chunk;
mod item;
mod patterned;
mod selection;
mod steps;

pub use chunk::{CellData, DroppedChunks, Form, Value, WriterChunk};
pub use item::WriterItem;
pub use selection::{CellRun, Selection};
pub use steps::{AppendError, ColumnOptions, ColumnValue, StepBuffer, WriterColumn};
