//! The bytes of a segment: its header, and the frames behind it. All numbers are little endian.
//!
//! | header of a segment | bytes |
//! |---|---|
//! | `RVRBLOG` and the version of the format | 8 |
//! | id of the log, boot id of the system | 16, 16 |
//! | epoch, number of the segment in it, LSN of its first frame | 8, 8, 8 |
//! | CRC32C of the above | 4 |
//!
//! | frame | bytes |
//! |---|---|
//! | magic, number of bytes of the payload | 4, 4 |
//! | LSN, the LSN through which all was synced when this frame was written | 8, 8 |
//! | id of the log | 16 |
//! | CRC32C of the payload, CRC32C of the above | 4, 4 |
//! | payload; zeros to a multiple of 8 | |
//!
//! LSNs count frames. A frame without a payload is a mark: it says what was synced, and no more. Behind the last frame of
//! a segment there are zeros, because segments are allocated ahead and never used twice. Both checksums of a frame stand
//! in its header, so that a header can be trusted, and heard, where its payload is damaged.

use reverb_core::{Error, Result};
use std::path::Path;

/// An id of 128 bits: of a log, or of a boot of a system.
pub type Id = [u8; 16];

/// Number of bytes before the first frame of a segment.
pub const SEGMENT_HEADER_BYTES: usize = 72;
/// Number of bytes before the payload of a frame.
pub const FRAME_HEADER_BYTES: usize = 48;
/// Frames begin at multiples of this number of bytes.
pub const ALIGNMENT: u64 = 8;
/// Number of LSNs that a log leaves out where it goes on behind a failure. No epochs between two checkpoints have as many
/// frames.
pub const GAP: u64 = 1 << 32;

const SEGMENT_MAGIC: &[u8; 7] = b"RVRBLOG";
const VERSION: u8 = 1;
/// The first bytes of a frame.
pub const FRAME_MAGIC: [u8; 4] = *b"RvFr";

/// What a segment says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Id of the log.
    pub log_id: Id,
    /// Id of the boot of the system whose server has written the segment.
    pub boot_id: Id,
    /// The epoch.
    pub epoch: u64,
    /// Number of the segment in its epoch, from 0.
    pub number: u64,
    /// LSN of the first frame.
    pub first_lsn: u64,
}

impl SegmentHeader {
    /// Returns the bytes of the header.
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        bytes[..7].copy_from_slice(SEGMENT_MAGIC);
        bytes[7] = VERSION;
        bytes[8..24].copy_from_slice(&self.log_id);
        bytes[24..40].copy_from_slice(&self.boot_id);
        bytes[40..48].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.number.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.first_lsn.to_le_bytes());
        let sum = crc32c::crc32c(&bytes[..64]);
        bytes[64..68].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes a header. `None` if the bytes are not one.
    ///
    /// # Errors
    /// [`Error::DataLoss`] if a later version of this package has written it.
    pub fn decode(bytes: &[u8], path: &Path) -> Result<Option<Self>> {
        let is_whole = bytes.len() >= SEGMENT_HEADER_BYTES
            && bytes.starts_with(SEGMENT_MAGIC)
            && crc32c::crc32c(&bytes[..64]) == u32::from_le_bytes(array(bytes, 64))
            && bytes[68..SEGMENT_HEADER_BYTES] == [0; 4];
        if !is_whole {
            return Ok(None);
        }
        if bytes[7] != VERSION {
            let (path, version) = (path.display(), bytes[7]);
            return Err(Error::DataLoss(format!("{path} has format {version}; this version reads format {VERSION}")));
        }
        Ok(Some(Self {
            log_id: array(bytes, 8),
            boot_id: array(bytes, 24),
            epoch: u64::from_le_bytes(array(bytes, 40)),
            number: u64::from_le_bytes(array(bytes, 48)),
            first_lsn: u64::from_le_bytes(array(bytes, 56)),
        }))
    }
}

/// What a frame says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// Number of bytes of the payload.
    pub length: u32,
    /// Number of the frame.
    pub lsn: u64,
    /// LSN through which all frames were synced when this one was written.
    pub synced_through: u64,
    /// Id of the log.
    pub log_id: Id,
    /// CRC32C of the payload.
    pub payload_sum: u32,
}

impl FrameHeader {
    /// Returns the bytes of the header.
    pub fn encode(&self) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        bytes[..4].copy_from_slice(&FRAME_MAGIC);
        bytes[4..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.lsn.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.synced_through.to_le_bytes());
        bytes[24..40].copy_from_slice(&self.log_id);
        bytes[40..44].copy_from_slice(&self.payload_sum.to_le_bytes());
        let sum = crc32c::crc32c(&bytes[..44]);
        bytes[44..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes a header. `None` if the bytes are not one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let is_whole = bytes.len() >= FRAME_HEADER_BYTES
            && bytes.starts_with(&FRAME_MAGIC)
            && crc32c::crc32c(&bytes[..44]) == u32::from_le_bytes(array(bytes, 44));
        is_whole.then(|| Self {
            length: u32::from_le_bytes(array(bytes, 4)),
            lsn: u64::from_le_bytes(array(bytes, 8)),
            synced_through: u64::from_le_bytes(array(bytes, 16)),
            log_id: array(bytes, 24),
            payload_sum: u32::from_le_bytes(array(bytes, 40)),
        })
    }

    /// Number of bytes of the whole frame, without the zeros behind it.
    pub fn frame_bytes(&self) -> u64 {
        FRAME_HEADER_BYTES as u64 + u64::from(self.length)
    }
}

/// Whether all bytes are zeros. Most of what lies behind the last frame is.
pub fn is_zero(bytes: &[u8]) -> bool {
    const ZEROS: [u8; 1 << 12] = [0; 1 << 12];
    bytes.chunks(ZEROS.len()).all(|chunk| *chunk == ZEROS[..chunk.len()])
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the caller has checked the length")
}

/// Returns the id of this boot of the system. `None` where the system does not have one.
pub fn boot_id() -> Option<Id> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    u128::from_str_radix(&text.trim().replace('-', ""), 16).ok().map(u128::to_be_bytes)
}
