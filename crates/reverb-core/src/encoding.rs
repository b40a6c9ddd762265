//! The encodings that the bytes of a chunk can have.

use crate::DType;

/// A codec for the bytes of a chunk. The numbers are those of the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Codec {
    /// The LZ4 block format.
    Lz4 = 1,
    /// Zstandard frames.
    Zstd = 2,
}

impl Codec {
    /// The name that users pass.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

/// The encoding of a chunk's data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoding {
    /// The codec that is applied last.
    pub codec: Codec,
    /// For each column, whether its rows after the first are stored as differences from the row before.
    pub delta: Box<[bool]>,
}

/// Whether rows of this type can be stored as differences: integers can, because they wrap.
pub fn takes_delta(dtype: DType) -> bool {
    use DType::{Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    matches!(dtype, Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64)
}
