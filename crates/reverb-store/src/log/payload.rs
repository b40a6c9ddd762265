//! The payload of a frame.

use bytes::Bytes;
use reverb_core::Result;
use std::io::IoSlice;

/// Capacity in bytes that a payload keeps for the next one.
const KEPT_BYTES: usize = 1 << 20;

/// Bytes that become one frame: some that it owns, and pieces that are written straight from the memory of others.
#[derive(Debug, Default)]
pub struct Payload {
    own: Vec<u8>,
    /// Pieces, each with the number of own bytes before it.
    pieces: Vec<(usize, Bytes)>,
}

impl Payload {
    /// The bytes at the end that the payload owns. Encoders append to them.
    pub fn own(&mut self) -> &mut Vec<u8> {
        &mut self.own
    }

    /// Appends a piece without a copy.
    pub fn put_piece(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.pieces.push((self.own.len(), piece));
        }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.own.len() + self.pieces.iter().map(|(_, piece)| piece.len()).sum::<usize>()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.own.is_empty() && self.pieces.is_empty()
    }

    /// Returns a copy of all bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.slices().collect::<Vec<_>>().concat()
    }

    /// Removes all bytes.
    pub(super) fn clear(&mut self) {
        self.own.clear();
        self.own.shrink_to(KEPT_BYTES);
        self.pieces.clear();
        self.pieces.shrink_to(KEPT_BYTES / size_of::<(usize, Bytes)>());
    }

    /// All bytes in order.
    pub(super) fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.pieces.iter().map(|(at, _)| *at));
        let ends = self.pieces.iter().map(|(at, _)| *at).chain([self.own.len()]);
        let pieces = self.pieces.iter().map(|(_, piece)| &piece[..]).chain([&[][..]]);
        let own = starts.zip(ends).map(|(start, end)| &self.own[start..end]);
        own.zip(pieces).flat_map(<[&[u8]; 2]>::from).filter(|slice| !slice.is_empty())
    }

    /// CRC32C of all bytes.
    pub(super) fn checksum(&self) -> u32 {
        self.slices().fold(0, crc32c::crc32c_append)
    }

    /// All bytes, between a few others.
    pub(super) fn io_slices<'a>(&'a self, before: &[&'a [u8]], after: &'a [u8]) -> Vec<IoSlice<'a>> {
        let all = before.iter().copied().chain(self.slices()).chain([after]);
        all.filter(|slice| !slice.is_empty()).map(IoSlice::new).collect()
    }
}

/// Where what is to be written was noted.
pub trait Source {
    /// Moves all that was noted so far into the payload.
    ///
    /// # Errors
    /// What was noted cannot be written. The log is closed.
    fn drain(&self, payload: &mut Payload) -> Result<()>;
}
