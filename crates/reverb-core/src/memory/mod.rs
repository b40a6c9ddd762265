//! Memory of large chunks and batches, which is used again or comes directly from the system.

mod allocator;
mod buffer;
mod pages;
mod stock;

pub use allocator::Allocator;
pub use buffer::{ALIGN, Buffer, LentMemory};
pub use pages::{Block, Pages, mapped_bytes, page_bytes};
pub use stock::chunk_buffer;

/// Returns the size in bytes of the memory that this process keeps for later batches and chunks. Batches do not count while
/// another thread uses their pool.
pub fn pooled_bytes() -> usize {
    buffer::pooled_bytes() + stock::stocked_bytes()
}
