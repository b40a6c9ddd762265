//! The chunks that a server of dm-reverb holds for the stream of a writer.

use reverb_core::ChunkKey;
use reverb_core::writer::{WriterChunk, WriterItem};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// The chunks of a stream, by key. The server drops those that a message with items does not list.
#[derive(Debug, Default)]
pub struct StreamedChunks {
    chunks: HashMap<ChunkKey, Streamed, foldhash::fast::RandomState>,
}

#[derive(Debug)]
struct Streamed {
    chunk: Weak<WriterChunk>,
    /// Number of references from items that were sent and are not confirmed. The server has its own references for
    /// these items.
    in_flight: usize,
}

/// A chunk of an item, with the number of references that the item has to it.
#[derive(Debug)]
pub struct Used {
    chunk: Weak<WriterChunk>,
    pub key: ChunkKey,
    references: usize,
}

impl StreamedChunks {
    /// Whether the server holds a chunk.
    pub fn contains(&self, key: ChunkKey) -> bool {
        self.chunks.contains_key(&key)
    }

    /// Adds a chunk that was sent.
    pub fn add(&mut self, used: &Used) {
        self.chunks.insert(used.key, Streamed { chunk: used.chunk.clone(), in_flight: 0 });
    }

    /// Counts the references of an item that was sent, all of whose chunks were added.
    pub fn item_sent<'a>(&mut self, uses: impl Iterator<Item = &'a Used>) {
        for Used { key, references, .. } in uses {
            if let Some(streamed) = self.chunks.get_mut(key) {
                streamed.in_flight += references;
            }
        }
    }

    /// Ends the count of an item that was confirmed. The caller drops the item after that.
    pub fn item_confirmed(&mut self, item: &WriterItem) {
        for (chunk, references) in uses(item) {
            if let Some(streamed) = self.chunks.get_mut(&chunk.key) {
                streamed.in_flight = streamed.in_flight.saturating_sub(references);
            }
        }
    }

    /// Returns the keys of the chunks that later items may refer to, and forgets the others.
    pub fn keep(&mut self) -> Vec<ChunkKey> {
        // The other references are those of steps that the writer keeps, and of items that were not sent.
        self.chunks.retain(|_, streamed| streamed.chunk.strong_count() > streamed.in_flight);
        self.chunks.keys().copied().collect()
    }
}

impl Used {
    /// Records a number of references to a chunk.
    pub fn new(chunk: &Arc<WriterChunk>, references: usize) -> Self {
        Self { chunk: Arc::downgrade(chunk), key: chunk.key, references }
    }
}

/// Returns the chunks of an item, each with a number of references. A chunk that several columns use may occur several
/// times.
pub fn uses(item: &WriterItem) -> impl Iterator<Item = (&Arc<WriterChunk>, usize)> {
    let mut runs = item.columns.iter().flat_map(|column| &column.runs).peekable();
    std::iter::from_fn(move || {
        let first = runs.next()?;
        let mut references = 1;
        while runs.next_if(|run| Arc::ptr_eq(&run.chunk, &first.chunk)).is_some() {
            references += 1;
        }
        Some((&first.chunk, references))
    })
}
