//! The chunks that the stream of a writer keeps in memory, and their size.

use crate::replay_v1::proto::WriteItem;
use reverb_core::{Chunk, Slice};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

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
    /// Size of the slices in bytes.
    slice_bytes: usize,
}

struct Use {
    /// Number of waiting items.
    items: usize,
    is_released: bool,
}

impl HeldChunks {
    /// Size of the chunks and of the slices of waiting items in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts the bytes of chunks that were added to the known ones.
    pub fn count_new(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Whether an item with this sequence number waits.
    pub fn is_waiting(&self, sequence: u64) -> bool {
        self.waiting.contains_key(&sequence)
    }

    /// Counts an item that waits from now on.
    pub fn begin_wait(&mut self, sequence: u64, item: &WriteItem) {
        let columns = item.trajectory.iter().flat_map(|trajectory| &trajectory.columns);
        let mut keys: Vec<u64> = columns.flat_map(|column| &column.slices).map(|slice| slice.chunk_key).collect();
        let slice_bytes = keys.len() * size_of::<Slice>();
        if item.trajectory.is_none() {
            keys.push(item.chunk_key);
        }
        keys.sort_unstable();
        keys.dedup();
        let chunks: Vec<_> = keys.iter().filter_map(|key| self.known.get(key)).cloned().collect();
        for chunk in &chunks {
            self.used.entry(address(chunk)).or_insert(Use { items: 0, is_released: false }).items += 1;
        }
        self.bytes += slice_bytes;
        self.waiting.insert(sequence, WaitingItem { chunks, slice_bytes });
    }

    /// Stops counting an item, which is in its table now or was refused. Ignores items that did not wait.
    pub fn end_wait(&mut self, sequence: u64) {
        let Some(item) = self.waiting.remove(&sequence) else { return };
        self.bytes -= item.slice_bytes;
        for chunk in item.chunks {
            let Entry::Occupied(mut used) = self.used.entry(address(&chunk)) else { continue };
            used.get_mut().items -= 1;
            if used.get().items == 0 && used.remove().is_released {
                self.bytes -= chunk.size_bytes();
            }
        }
    }

    /// Forgets a chunk that the writer does not need any more. It still counts while waiting items hold it.
    pub fn release(&mut self, key: u64) {
        let Some(chunk) = self.known.remove(&key) else { return };
        match self.used.get_mut(&address(&chunk)) {
            Some(used) => used.is_released = true,
            None => self.bytes -= chunk.size_bytes(),
        }
    }
}

fn address(chunk: &Arc<Chunk>) -> usize {
    Arc::as_ptr(chunk).addr()
}
