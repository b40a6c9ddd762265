//! The memory that an insert stream holds: its chunks, and the items that wait for their tables.

use foldhash::fast::RandomState;
use reverb_core::{Chunk, Error, Result, Slice, TrajectoryColumn};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

// limit (Writers): memory of the chunks that a stream of a writer, or of a client of dm-reverb, has sent and not released
// | {} | the stream ends
/// Maximum memory of a stream's chunks and waiting items in bytes: two of the largest items. Chunks count whether or not
/// an item names them, since a client decides alone when it releases them.
const MAX_HELD_BYTES: usize = 8 << 30;
/// Bytes that a chunk counts in addition to its data.
pub const CHUNK_BYTES: usize = 512;

/// Counts the chunks that items of a stream may name, and those that its waiting items use.
///
/// A chunk counts until the client has released it and no waiting item uses it. The client alone decides on the first,
/// so the count must not depend on it alone.
#[derive(Debug, Default)]
pub struct HeldMemory {
    /// The waiting items by their numbers.
    waiting: HashMap<u64, WaitingItem, RandomState>,
    /// The chunks of waiting items, by their addresses: a client may use the key of a released chunk again.
    used: HashMap<usize, Use, RandomState>,
    bytes: usize,
}

#[derive(Debug)]
struct WaitingItem {
    key: u64,
    /// The distinct chunks.
    chunks: Vec<Arc<Chunk>>,
    /// Memory of the item in bytes.
    bytes: usize,
}

#[derive(Debug)]
struct Use {
    /// Number of waiting items.
    items: usize,
    is_released: bool,
}

impl HeldMemory {
    /// Memory of the chunks and of the waiting items in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts new chunks. `bytes` is the size of their data.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the stream holds too much then.
    pub fn add(&mut self, chunks: usize, bytes: usize) -> Result<()> {
        self.bytes += bytes + chunks * CHUNK_BYTES;
        if self.bytes <= MAX_HELD_BYTES {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "the chunks that this writer has sent and not released take {} bytes, and a writer may have {MAX_HELD_BYTES}; \
             keep fewer steps in its history, or end episodes earlier",
            self.bytes
        )))
    }

    /// Stops counting a chunk that the client does not need any more. It still counts while waiting items use it.
    pub fn release(&mut self, chunk: &Arc<Chunk>) {
        match self.used.get_mut(&address(chunk)) {
            Some(used) => used.is_released = true,
            None => self.bytes -= chunk.size_bytes() + CHUNK_BYTES,
        }
    }

    /// Whether an item with this number waits.
    pub fn is_waiting(&self, number: u64) -> bool {
        self.waiting.contains_key(&number)
    }

    /// Counts an item that waits from now on. `number` is unique in the stream, `key` is the key of the item, and
    /// `item_bytes` its memory without its chunks.
    pub fn begin_wait(&mut self, number: u64, key: u64, mut chunks: Vec<Arc<Chunk>>, item_bytes: usize) {
        chunks.sort_unstable_by_key(address);
        chunks.dedup_by_key(|chunk| address(chunk));
        chunks.shrink_to_fit();
        for chunk in &chunks {
            self.used.entry(address(chunk)).or_insert(Use { items: 0, is_released: false }).items += 1;
        }
        let bytes = item_bytes + size_of::<WaitingItem>() + size_of_val(&*chunks);
        self.bytes += bytes;
        self.waiting.insert(number, WaitingItem { key, chunks, bytes });
    }

    /// Stops counting an item, which is in its table now or was refused. Returns its key; `None` if it did not wait.
    pub fn end_wait(&mut self, number: u64) -> Option<u64> {
        let WaitingItem { key, chunks, bytes } = self.waiting.remove(&number)?;
        self.bytes -= bytes;
        for chunk in chunks {
            let Entry::Occupied(mut used) = self.used.entry(address(&chunk)) else { continue };
            used.get_mut().items -= 1;
            if used.get().items == 0 && used.remove().is_released {
                self.bytes -= chunk.size_bytes() + CHUNK_BYTES;
            }
        }
        Some(key)
    }
}

/// Returns the memory of a trajectory's columns in bytes, given the number of slices of each.
pub fn columns_bytes(num_slices: impl Iterator<Item = usize>) -> usize {
    // A column has room for one slice. More slices are in a list that doubles as it grows.
    let slices = |count: usize| if count > 1 { count.next_power_of_two() * size_of::<Slice>() } else { 0 };
    num_slices.map(|count| size_of::<TrajectoryColumn>() + slices(count)).sum()
}

fn address(chunk: &Arc<Chunk>) -> usize {
    Arc::as_ptr(chunk).addr()
}
