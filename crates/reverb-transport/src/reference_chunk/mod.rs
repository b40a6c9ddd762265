//! The reference's chunks (`deepmind.reverb.ChunkData`): TensorProto, raw Snappy, delta code, strings.
//!
//! Spoken in checkpoints, and with clients and servers of the reference. One message is one [`Chunk`]; its tensors are
//! the columns. Numbers are one block of raw Snappy a tensor; strings are their lengths as varints and then their bytes,
//! not compressed. What is decoded is hostile: nothing is allocated that the limit, or what has arrived, does not cover.

mod decode;
mod delta;
mod encode;
mod memory;
mod packed;
mod pages;
mod snappy;
pub(crate) mod wire;

pub use decode::ChunkDecoder;
pub use encode::ChunkEncoder;
pub use pages::held as held_pages;

#[allow(unused_imports, reason = "documentation")]
use reverb_core::Chunk;
