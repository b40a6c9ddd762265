//! Chunks that a server has sent before. It sends each chunk again with every sample that refers to it.

use bytes::Bytes;
use parking_lot::Mutex;
use reverb_core::Chunk;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

// limit (Beside dm-reverb): decoded chunks that a connection to a server of dm-reverb keeps, in case they are sent
// again | {}, {MAX_CHUNKS} chunks; none whose message exceeds {MAX_MESSAGE_BYTES} | the oldest are dropped
/// Maximum number of bytes of a cache: messages and decoded chunks together.
const MAX_BYTES: usize = 32 << 20;
/// Maximum number of bytes of a message that is kept. To copy a longer one would cost as much as to decode it again.
const MAX_MESSAGE_BYTES: usize = 64 << 10;
/// Maximum number of chunks of a cache.
const MAX_CHUNKS: usize = 1 << 16;

/// Decoded chunks by key, each with the message from which it was decoded. The oldest ones make room for new ones.
#[derive(Debug, Default)]
pub struct ChunkCache(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    by_key: HashMap<u64, Entry, foldhash::fast::RandomState>,
    /// Keys in the order of their arrival.
    order: VecDeque<u64>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    message: Bytes,
    chunk: Arc<Chunk>,
}

impl Entry {
    fn size_bytes(&self) -> usize {
        self.message.len() + self.chunk.size_bytes()
    }
}

impl ChunkCache {
    /// Returns the chunk of a message that was decoded before. A key alone proves nothing, so the bytes must be equal.
    pub fn find(&self, key: u64, message: &[u8]) -> Option<Arc<Chunk>> {
        let (known, chunk) = {
            let entries = self.0.lock();
            let entry = entries.by_key.get(&key)?;
            (entry.message.clone(), entry.chunk.clone())
        };
        (known == message).then_some(chunk)
    }

    /// Keeps a decoded chunk with its message. Does nothing if the chunk is too large, or another has the key.
    pub fn keep(&self, message: &[u8], chunk: &Arc<Chunk>) {
        if message.len() > MAX_MESSAGE_BYTES || chunk.size_bytes() > MAX_BYTES / 4 {
            return;
        }
        // The message is part of a response, which would be kept as a whole.
        let entry = Entry { message: Bytes::copy_from_slice(message), chunk: chunk.clone() };
        let mut entries = self.0.lock();
        if entries.by_key.contains_key(&chunk.key) {
            return;
        }
        entries.bytes += entry.size_bytes();
        entries.order.push_back(chunk.key);
        entries.by_key.insert(chunk.key, entry);
        while entries.bytes > MAX_BYTES || entries.order.len() > MAX_CHUNKS {
            let Some(oldest) = entries.order.pop_front() else { return };
            if let Some(entry) = entries.by_key.remove(&oldest) {
                entries.bytes -= entry.size_bytes();
            }
        }
    }
}
