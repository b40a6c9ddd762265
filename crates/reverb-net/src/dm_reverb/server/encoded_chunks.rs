//! Chunks as `ChunkData` messages, for clients of dm-reverb.
//!
//! Chunks that arrived as messages leave unchanged. All others are encoded, and the streams of a server share a cache of
//! the encoded ones, so that a chunk that is drawn again is not encoded again. Small chunks are encoded anew instead:
//! that takes no longer than a look-up among millions of them, and they would fill the cache with its own entries.

use bytes::Bytes;
use parking_lot::Mutex;
use reverb_core::{Chunk, Error, Result};
use reverb_formats::chunk::ChunkEncoder;
use reverb_service::decoding::turn;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Weak};

// limit (Beside dm-reverb): encoded chunks that a server keeps for dm-reverb's clients | {}; chunks below
// {LEAST_CACHED_BYTES} are encoded each time | those not used again are dropped first
/// Maximum total size of the messages in a cache, in bytes.
const CACHE_BYTES: usize = 64 << 20;
/// Messages below this size in bytes are not cached.
const LEAST_CACHED_BYTES: usize = 2 << 10;
/// Chunks above this size in bytes are encoded on a thread that serves no connections, with buffers of their own.
const LARGE_BYTES: usize = 256 << 10;

thread_local! {
    /// Encodes the small chunks that this thread sends, into a buffer that it keeps.
    static ENCODER: RefCell<(ChunkEncoder, Vec<u8>)> = RefCell::default();
}

/// Some rows of a chunk: its address and the range of the rows. An entry keeps the address in use.
type Key = (usize, u32, u32);

/// The cache of encoded chunks that the streams of a server share.
#[derive(Debug, Default)]
pub struct EncodedChunks(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    by_key: HashMap<Key, Entry, foldhash::fast::RandomState>,
    /// The keys in the order in which they were added, or used again when they were the next to go.
    order: VecDeque<Key>,
    size_bytes: usize,
}

#[derive(Debug)]
struct Entry {
    /// Keeps the address of the chunk, but not its data.
    chunk: Weak<Chunk>,
    message: Bytes,
    /// Whether it was used since it was added or last spared.
    is_used: bool,
}

impl EncodedChunks {
    /// Returns rows of a chunk as a message with the chunk's key: the cached one, or a new one.
    ///
    /// # Errors
    /// Those of [`ChunkEncoder::encode`].
    pub async fn message(&self, chunk: &Arc<Chunk>, rows: Range<u32>) -> Result<Bytes> {
        let size_bytes = chunk.decoded_bytes() / chunk.rows() as usize * rows.len();
        if size_bytes < LEAST_CACHED_BYTES {
            return encode_small(chunk, rows, chunk.key);
        }
        let key = (Arc::as_ptr(chunk).addr(), rows.start, rows.end);
        if let Some(message) = self.0.lock().find(key) {
            return Ok(message);
        }
        let message = encode(chunk, rows, chunk.key).await?;
        let dropped = self.0.lock().add(key, chunk, &message);
        // Freed without the lock.
        drop(dropped);
        Ok(message)
    }
}

impl Entries {
    fn find(&mut self, key: Key) -> Option<Bytes> {
        let entry = self.by_key.get_mut(&key)?;
        entry.is_used = true;
        Some(entry.message.clone())
    }

    /// Adds a message and returns those that it displaces: the first ones of which the chunk is gone or that were not
    /// used again.
    fn add(&mut self, key: Key, chunk: &Arc<Chunk>, message: &Bytes) -> Vec<Entry> {
        let mut displaced = Vec::new();
        if message.len() > CACHE_BYTES || self.by_key.contains_key(&key) {
            return displaced;
        }
        while self.size_bytes + message.len() > CACHE_BYTES
            && let Some(oldest) = self.order.pop_front()
        {
            let Some(entry) = self.by_key.get_mut(&oldest) else { continue };
            if std::mem::take(&mut entry.is_used) && entry.chunk.strong_count() > 0 {
                self.order.push_back(oldest);
            } else if let Some(entry) = self.by_key.remove(&oldest) {
                self.size_bytes -= entry.message.len();
                displaced.push(entry);
            }
        }
        let entry = Entry { chunk: Arc::downgrade(chunk), message: message.clone(), is_used: false };
        self.by_key.insert(key, entry);
        self.order.push_back(key);
        self.size_bytes += message.len();
        displaced
    }
}

/// Encodes rows of a chunk as a message with this key.
///
/// # Errors
/// Those of [`ChunkEncoder::encode`].
pub async fn encode(chunk: &Arc<Chunk>, rows: Range<u32>, key: u64) -> Result<Bytes> {
    let is_part = rows.len() < chunk.rows() as usize;
    // Parts of a packed chunk are wanted by others, too, so the chunk is unpacked for good.
    let unpacks = is_part && chunk.is_packed();
    let reads_all = !is_part || unpacks || chunk.is_compressed();
    if !reads_all || chunk.decoded_bytes() <= LARGE_BYTES {
        return encode_small(chunk, rows, key);
    }
    let decodes = unpacks || chunk.is_compressed();
    let turn = turn(if decodes { chunk.decoded_bytes() as u64 } else { 0 }).await;
    let chunk = chunk.clone();
    let encode = move || {
        let _turn = turn;
        if unpacks {
            chunk.data();
        }
        let mut message = Vec::new();
        ChunkEncoder::default().encode_part(&chunk, rows, key, false, &mut message)?;
        message.shrink_to_fit();
        Ok(message.into())
    };
    let encoded = tokio::task::spawn_blocking(encode).await;
    encoded.unwrap_or_else(|error| Err(Error::Internal(format!("the task that encodes a chunk failed: {error}"))))
}

fn encode_small(chunk: &Chunk, rows: Range<u32>, key: u64) -> Result<Bytes> {
    if rows.len() < chunk.rows() as usize && chunk.is_packed() {
        chunk.data();
    }
    ENCODER.with_borrow_mut(|(encoder, message)| {
        message.clear();
        encoder.encode_part(chunk, rows, key, false, message)?;
        Ok(Bytes::copy_from_slice(message))
    })
}
