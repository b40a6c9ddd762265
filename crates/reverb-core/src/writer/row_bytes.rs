//! The bytes of an open chunk, and where its writer gets memory for them.

use crate::memory::chunk_buffer;
use crate::{Buffer, ChunkKey};
use bytes::Bytes;
use parking_lot::Mutex;
use std::fmt::Debug;
use std::sync::Arc;

/// Smallest data of a chunk or a batch in bytes that is worth memory which two processes of this host share. Full chunks of
/// automatic length have more, unless their rows are below 512 bytes.
pub const LEAST_SHARED_BYTES: usize = 32 << 10;

/// Gives memory for the data of chunks, which a server of this host can read.
pub trait ChunkMemory: Debug + Send + Sync {
    /// Returns a buffer of so many bytes, all of them initialised, if there is one.
    fn take(&self, bytes: usize) -> Option<Buffer>;
}

/// What the chunks of a writer and its stream tell each other.
#[derive(Debug, Clone, Default)]
pub struct StreamChunks(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    dropped: Mutex<Vec<ChunkKey>>,
    memory: Mutex<Option<Arc<dyn ChunkMemory>>>,
}

impl StreamChunks {
    /// Notes that the last references to chunks that were sent are gone.
    pub fn drop_chunks(&self, keys: &[ChunkKey]) {
        self.0.dropped.lock().extend_from_slice(keys);
    }

    /// Takes the chunks whose last references are gone since the last call.
    pub fn take_dropped(&self) -> Vec<ChunkKey> {
        std::mem::take(&mut *self.0.dropped.lock())
    }

    /// Sets where the data of later chunks lies.
    pub fn set_memory(&self, memory: Option<Arc<dyn ChunkMemory>>) {
        *self.0.memory.lock() = memory;
    }

    fn buffer(&self, bytes: usize) -> Option<Buffer> {
        let memory = self.0.memory.lock().clone();
        memory.and_then(|memory| memory.take(bytes))
    }
}

/// The numbers of an open chunk, arranged as in a full one.
#[derive(Debug)]
pub enum RowBytes {
    /// Of this process. Those of one row only as far as they were put.
    Own(Vec<u8>),
    /// Pages of this process.
    Paged(Buffer),
    /// Where a server can read them.
    Shared(Buffer),
}

impl RowBytes {
    /// Makes room for a full chunk of so many bytes. `gaps` are between its columns.
    pub fn new(
        stream: Option<&StreamChunks>,
        bytes: usize,
        is_one_row: bool,
        gaps: impl Iterator<Item = (usize, usize)>,
    ) -> Self {
        let shared = stream.filter(|_| bytes >= LEAST_SHARED_BYTES).and_then(|stream| stream.buffer(bytes));
        if let Some(mut rows) = shared.map(Self::Shared).or_else(|| chunk_buffer(bytes).map(Self::Paged)) {
            // Earlier chunks may have left something there.
            gaps.for_each(|(start, end)| rows.filled_mut()[start..end].fill(0));
            return rows;
        }
        // One row fills it from the front. More write into each column by turns.
        Self::Own(if is_one_row { Vec::with_capacity(bytes) } else { vec![0; bytes] })
    }

    /// The bytes, for writing.
    fn filled_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Paged(buffer) | Self::Shared(buffer) => buffer.initialised_mut(),
        }
    }

    /// Puts values at their place.
    pub fn put(&mut self, start: usize, values: &[u8]) {
        match self {
            // Only what lies between columns is zeroed.
            Self::Own(bytes) if bytes.len() < start + values.len() => {
                bytes.resize(start, 0);
                bytes.extend_from_slice(values);
            }
            rows => rows.filled_mut()[start..start + values.len()].copy_from_slice(values),
        }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            // SAFETY: the memory was initialised when it was lent.
            Self::Paged(buffer) | Self::Shared(buffer) => unsafe { buffer.as_bytes() },
        }
    }

    /// Takes the bytes, of which `arrange` moves those of fewer rows together, and keeps the first `len`.
    pub fn finish(&mut self, full: usize, len: usize, arrange: impl FnOnce(&mut [u8])) -> Bytes {
        match std::mem::replace(self, Self::Own(Vec::new())) {
            Self::Own(mut bytes) => {
                bytes.resize(full, 0);
                arrange(&mut bytes);
                if len < full {
                    bytes.truncate(len);
                    bytes.shrink_to_fit();
                }
                bytes.into()
            }
            Self::Paged(buffer) if len < full => copy_of(buffer, len, arrange),
            // It will travel over the socket.
            Self::Shared(buffer) if len < LEAST_SHARED_BYTES => copy_of(buffer, len, arrange),
            Self::Paged(mut buffer) | Self::Shared(mut buffer) => {
                arrange(buffer.initialised_mut());
                // SAFETY: the memory was initialised when it was lent.
                unsafe { buffer.into_bytes() }.slice(..len)
            }
        }
    }
}

/// Copies the first bytes of a chunk that was closed early: it may live long, and other chunks can use the memory.
fn copy_of(mut buffer: Buffer, len: usize, arrange: impl FnOnce(&mut [u8])) -> Bytes {
    arrange(buffer.initialised_mut());
    let bytes = &buffer.initialised_mut()[..len];
    let Some(mut buffer) = chunk_buffer(len) else { return Bytes::copy_from_slice(bytes) };
    buffer.initialised_mut().copy_from_slice(bytes);
    // SAFETY: all bytes were written.
    unsafe { buffer.into_bytes() }
}
