//! Chunks of the reference (`deepmind.reverb.ChunkData`): TensorProto, raw Snappy, delta encoding, strings.
//!
//! Checkpoints use this format, and so do clients and servers of the reference. One message is one [`Chunk`], and its
//! tensors are the columns. A tensor of numbers is one block of raw Snappy. A tensor of strings consists of their
//! lengths as varints and then their bytes, without compression. Input may be hostile, so every allocation is bounded
//! by the limit or by the number of bytes received.

mod allocator;
mod decode;
mod delta;
mod encode;
mod packed;
mod snappy;

pub use decode::{ChunkDecoder, most_decoded_bytes};
pub use encode::ChunkEncoder;

use crate::wire::fields;
#[allow(unused_imports, reason = "documentation")]
use reverb_core::Chunk;
use reverb_core::Result;

/// Returns the key of a serialised `ChunkData` without decoding it.
///
/// # Errors
/// [`reverb_core::Error::DataLoss`] if the message does not parse.
pub fn key_of(message: &[u8]) -> Result<u64> {
    let mut key = 0;
    for field in fields(message) {
        if let (1, value) = field? {
            key = value.varint()?;
        }
    }
    Ok(key)
}
