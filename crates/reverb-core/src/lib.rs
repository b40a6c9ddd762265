//! What experience replay is: chunks of steps, items that refer to them, and tables of items.
//!
//! Nothing here waits, talks to a network, or knows Python. Data goes one way. A [`Chunk`] is filled once and then
//! never changes. An item is a [`Trajectory`] over chunks. A [`Table`] holds items, decides whether one may enter or
//! leave now, and draws them. [`gather`] copies drawn items into a batch.

mod batch_info;
mod chunk;
mod column;
mod compression;
mod compressor;
mod copy;
mod effect;
mod encoding;
mod error;
pub mod fork;
pub mod frames;
pub mod gather;
mod importance;
mod item;
mod item_size;
mod key;
mod layout;
mod limits;
pub mod memory;
mod merge;
mod mismatch;
mod packed;
pub mod pattern;
mod prefetch;
pub mod published_room;
mod race;
mod rate_limiter;
mod recent_layouts;
mod repack;
pub mod selector;
mod signature;
mod slab;
mod table;
mod tensor;
mod trajectory;
mod usage;
pub mod words;
pub mod writer;

pub use batch_info::BatchInfo;
pub use chunk::{Chunk, ChunkView, EpisodeIds, StepRange, encode_strings};
pub use column::Column;
pub use compressor::{AutoCodec, Compression, Compressor};
pub use effect::{Confirmation, Counters, Effect, WriterId};
pub use encoding::{Codec, Encoding};
pub use error::{Error, Result};
pub use importance::importance_weights;
pub use item::{Drawn, ItemView, LargestSeen, NewItem, NewPriority};
pub use key::{
    ChunkKey, EpisodeId, ItemKey, ItemKeys, KeySlots, MAX_SHARDS, NUM_SLOTS, item_key_in, item_keys_in, random_key,
};
pub use layout::Layout;
pub use limits::{MAX_ITEM_BYTES, MAX_ITEM_SLICES};
pub use memory::{Buffer, LentMemory, pooled_bytes};
pub use merge::{ShardBatch, merge_batches};
pub use packed::Unpack;
pub use race::{AfterRound, Race, RaceArrival, RaceReport, RaceRound, RaceWinner};
pub use rate_limiter::{RateLimiter, RateLimiterConfig};
pub use recent_layouts::RecentLayouts;
pub use repack::{MovedRows, UsedRows, keep_rows, keep_rows_encoded};
pub use selector::SelectorKind;
pub use signature::{ArrayType, Signature};
pub use table::{
    ClientCounts, CopiedBatch, CopiedDraws, Delivery, DrawnSlot, FIGURES, Figure, FigureValue, ItemNumbers, ItemPages,
    LOG2_BUCKETS, LimiterKind, LimiterView, Log2Histogram, Metric, MetricKind, OldContents, OldCounts, PeekSearch,
    RemovalCounts, RemovalReason, Replay, Shrinking, Table, TableChanges, TableConfig, TableInfo, TableSnapshot,
    WAIT_BOUNDS, WaitHistogram, WaitingBatches,
};
pub use tensor::{DType, Shape, TensorSpec, shape_text};
pub use trajectory::{Slice, Trajectory, TrajectoryColumn};
pub use usage::TableUsage;
