//! Memory for the data of chunks.

use super::pages::{Block, Pages, page_bytes};
use bytes::Bytes;

/// Data below this size comes from the allocator: the system's calls would cost more than they save.
const LEAST_BYTES: usize = 64 << 10;
/// Data of fewer pages does, too, since half of the last one is lost.
const LEAST_PAGES: usize = 16;
/// The system is asked for addresses of this many bytes at a time.
const BLOCK_BYTES: usize = 32 << 20;

/// Makes room for the data of one chunk after another.
#[derive(Debug, Default)]
pub struct Memory {
    block: Option<Block>,
}

/// Data in the making.
#[derive(Debug)]
pub enum Data {
    /// From the allocator.
    Allocated(Vec<u8>),
    /// From the system.
    Mapped(Pages),
}

impl Memory {
    /// So many zeros.
    pub fn zeros(&mut self, len: usize) -> Data {
        // Measured on Linux. Other systems' allocators may know better.
        let is_large = cfg!(target_os = "linux") && len >= LEAST_BYTES.max(LEAST_PAGES * page_bytes());
        let mapped = if is_large { self.cut(len) } else { None };
        mapped.map_or_else(|| Data::Allocated(vec![0; len]), Data::Mapped)
    }

    fn cut(&mut self, len: usize) -> Option<Pages> {
        if let Some(pages) = self.block.as_mut().and_then(|block| block.cut(len)) {
            return Some(pages);
        }
        self.block = Block::new(len.max(BLOCK_BYTES));
        self.block.as_mut()?.cut(len)
    }
}

impl AsMut<[u8]> for Data {
    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Allocated(data) => data,
            Self::Mapped(data) => data,
        }
    }
}

impl From<Data> for Bytes {
    fn from(data: Data) -> Self {
        match data {
            Data::Allocated(data) => data.into(),
            Data::Mapped(data) => Self::from_owner(data),
        }
    }
}
