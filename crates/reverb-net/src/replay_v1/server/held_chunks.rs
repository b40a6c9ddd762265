//! The chunks that the stream of a writer keeps in memory, and their size.

use crate::replay_v1::proto::WriteItem;
use crate::replay_v1::wire::write_item_bytes;
use reverb_core::Chunk;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// Bytes that a chunk counts in addition to its data.
pub const CHUNK_BYTES: usize = 512;

/// The chunks that items of the stream may name, and those that items hold while they wait.
///
/// A chunk counts until the writer has released it and no waiting item holds it. The writer alone decides on the first,
/// so the count must not depend on it alone.
#[derive(Default)]
pub struct HeldChunks {
    /// The chunks that the writer has not released, by their keys.
    pub known: HashMap<u64, Arc<Chunk>>,
    /// The waiting items by their sequence numbers.
    waiting: HashMap<u64, WaitingItem>,
    /// The chunks of waiting items, by their addresses: a writer may use the key of a released chunk again.
    used: HashMap<usize, Use>,
    bytes: usize,
}

struct WaitingItem {
    /// The distinct chunks.
    chunks: Vec<Arc<Chunk>>,
    /// Memory of the item in bytes.
    bytes: usize,
}

struct Use {
    /// Number of waiting items.
    items: usize,
    is_released: bool,
}

impl HeldChunks {
    /// Memory of the chunks and of the waiting items in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts chunks that were added to the known ones. `bytes` is the size of their data.
    pub fn count_new(&mut self, chunks: usize, bytes: usize) {
        self.bytes += bytes + chunks * CHUNK_BYTES;
    }

    /// Whether an item with this sequence number waits.
    pub fn is_waiting(&self, sequence: u64) -> bool {
        self.waiting.contains_key(&sequence)
    }

    /// Counts an item that waits from now on.
    pub fn begin_wait(&mut self, sequence: u64, item: &WriteItem) {
        let columns = item.trajectory.iter().flat_map(|trajectory| &trajectory.columns);
        let mut keys: Vec<u64> = columns.flat_map(|column| &column.slices).map(|slice| slice.chunk_key).collect();
        if item.trajectory.is_none() {
            keys.push(item.chunk_key);
        }
        keys.sort_unstable();
        keys.dedup();
        let chunks: Vec<_> = keys.iter().filter_map(|key| self.known.get(key)).cloned().collect();
        for chunk in &chunks {
            self.used.entry(address(chunk)).or_insert(Use { items: 0, is_released: false }).items += 1;
        }
        let bytes = write_item_bytes(item) + size_of::<WaitingItem>() + size_of_val(&*chunks);
        self.bytes += bytes;
        self.waiting.insert(sequence, WaitingItem { chunks, bytes });
    }

    /// Stops counting an item, which is in its table now or was refused. Ignores items that did not wait.
    pub fn end_wait(&mut self, sequence: u64) {
        let Some(item) = self.waiting.remove(&sequence) else { return };
        self.bytes -= item.bytes;
        for chunk in item.chunks {
            let Entry::Occupied(mut used) = self.used.entry(address(&chunk)) else { continue };
            used.get_mut().items -= 1;
            if used.get().items == 0 && used.remove().is_released {
                self.bytes -= chunk.size_bytes() + CHUNK_BYTES;
            }
        }
    }

    /// Forgets a chunk that the writer does not need any more. It still counts while waiting items hold it.
    pub fn release(&mut self, key: u64) {
        let Some(chunk) = self.known.remove(&key) else { return };
        match self.used.get_mut(&address(&chunk)) {
            Some(used) => used.is_released = true,
            None => self.bytes -= chunk.size_bytes() + CHUNK_BYTES,
        }
    }
}

fn address(chunk: &Arc<Chunk>) -> usize {
    Arc::as_ptr(chunk).addr()
}
