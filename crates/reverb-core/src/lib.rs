//! What experience replay is: chunks of steps, items that refer to them, and tables of items.
//!
//! Nothing here waits, talks to a network, or knows Python. Data goes one way: a [`Chunk`] is filled
//! once and never changes; an item is a [`Trajectory`] over chunks; a [`Table`] keeps items, says
//! whether one may go in or out now, and draws them; [`gather`] copies what was drawn into a batch.

mod batch_info;
mod buffer;
mod chunk;
mod compression;
mod compressor;
mod copy;
mod error;
pub mod fork;
pub mod frames;
pub mod gather;
mod importance;
mod interleave;
mod key;
mod layout;
mod packed;
pub mod pattern;
mod prefetch;
mod rate_limiter;
mod repack;
pub mod selector;
mod signature;
mod slab;
mod table;
mod tensor;
mod trajectory;
mod usage;
pub mod writer;

pub use batch_info::BatchInfo;
pub use buffer::Buffer;
pub use chunk::{Chunk, ChunkView, EpisodeIds, StepRange, encode_strings};
pub use compression::{Codec, Encoding};
pub use compressor::{AutoCodec, Compression, Compressor};
pub use error::{Error, Result};
pub use importance::importance_weights;
pub use key::{ChunkKey, EpisodeId, ItemKey, random_key, random_keys};
pub use layout::{Column, Layout};
pub use packed::Unpack;
pub use rate_limiter::{RateLimiter, RateLimiterConfig};
pub use repack::{MovedRows, UsedRows, keep_rows, keep_rows_encoded};
pub use selector::SelectorKind;
pub use signature::Signature;
pub use table::{CopiedBatch, CopiedDraws, Drawn, ItemView, NewItem, Table, TableConfig, TableInfo, TableSnapshot};
pub use tensor::{DType, Shape, TensorSpec, shape_text};
pub use trajectory::{Slice, Trajectory, TrajectoryColumn};
pub use usage::{TableUsage, is_sparse};
