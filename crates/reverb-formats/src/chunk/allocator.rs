//! Allocates memory for the data of chunks.

use bytes::Bytes;
use reverb_core::memory::{Block, Pages, page_bytes};

/// Data below this size in bytes comes from the global allocator, because system calls would cost more than they save.
const LEAST_BYTES: usize = 64 << 10;
/// Data of fewer pages comes from there, too, because on average half of the last page is unused.
const LEAST_PAGES: usize = 16;
/// Size of the address ranges in bytes that are requested from the system.
const BLOCK_BYTES: usize = 32 << 20;

/// Allocates the data of chunks: small data by the global allocator, large data as pages of the system.
#[derive(Debug, Default)]
pub struct ChunkAllocator {
    block: Option<Block>,
}

/// The data of a chunk while it is being written.
#[derive(Debug)]
pub enum ChunkBuffer {
    /// Memory of the global allocator.
    Allocated(Vec<u8>),
    /// Pages of the system.
    Mapped(Pages),
}

impl ChunkAllocator {
    /// Allocates `len` zeroed bytes.
    pub fn zeros(&mut self, len: usize) -> ChunkBuffer {
        self.mapped(len).map_or_else(|| ChunkBuffer::Allocated(vec![0; len]), ChunkBuffer::Mapped)
    }

    /// As [`ChunkAllocator::zeros`], for a length that a file states: `None` if there is not enough memory.
    pub fn try_zeros(&mut self, len: usize) -> Option<ChunkBuffer> {
        if let Some(mapped) = self.mapped(len) {
            return Some(ChunkBuffer::Mapped(mapped));
        }
        if len < LEAST_BYTES {
            return Some(ChunkBuffer::Allocated(vec![0; len]));
        }
        let mut data = Vec::new();
        data.try_reserve_exact(len).ok()?;
        data.resize(len, 0);
        Some(ChunkBuffer::Allocated(data))
    }

    fn mapped(&mut self, len: usize) -> Option<Pages> {
        // This pays off on Linux, where it was measured. Allocators of other systems were not measured.
        let is_large = cfg!(target_os = "linux") && len >= LEAST_BYTES.max(LEAST_PAGES * page_bytes());
        if is_large { self.cut(len) } else { None }
    }

    fn cut(&mut self, len: usize) -> Option<Pages> {
        let mut pages = self.block.as_mut().and_then(|block| block.cut(len));
        if pages.is_none() {
            self.block = Block::new(len.max(BLOCK_BYTES));
            pages = self.block.as_mut()?.cut(len);
        }
        pages.iter_mut().for_each(Pages::fault);
        pages
    }
}

impl AsMut<[u8]> for ChunkBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Allocated(data) => data,
            Self::Mapped(data) => data,
        }
    }
}

impl From<ChunkBuffer> for Bytes {
    fn from(data: ChunkBuffer) -> Self {
        match data {
            ChunkBuffer::Allocated(data) => data.into(),
            ChunkBuffer::Mapped(data) => Self::from_owner(data),
        }
    }
}
