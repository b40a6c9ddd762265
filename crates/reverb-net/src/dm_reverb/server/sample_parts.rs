//! The chunks of a sample, and the rows of each that the sample sends.

use super::encoded_chunks::{EncodedChunks, encode};
use bytes::Bytes;
use reverb_core::{Chunk, Drawn, Result, Trajectory, random_key};
use reverb_formats::item::ItemEncoder;
use smallvec::SmallVec;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// Up to this number of chunks, they are compared one by one.
const FEW: usize = 16;

/// The chunks of a sample in the order of first use. Those that were sent are `None`.
#[derive(Debug, Default)]
pub struct SampleParts {
    parts: SmallVec<[Part; 4]>,
    /// The numbers of the parts by the address of their chunk, if they are many.
    by_chunk: HashMap<usize, usize, foldhash::fast::RandomState>,
    /// Number of parts that were sent.
    sent: usize,
}

/// Rows of a chunk that are sent as a chunk.
#[derive(Debug)]
struct Part {
    chunk: Arc<Chunk>,
    key: u64,
    rows: Range<u32>,
    /// The message in which the chunk arrived.
    message: Option<Bytes>,
}

impl SampleParts {
    /// Lists the chunks of an item.
    pub fn new(trajectory: &Trajectory) -> Self {
        let mut parts = Self::default();
        match trajectory {
            Trajectory::Rows { chunk, offset, length, .. } => parts.add(chunk, *offset, *length),
            Trajectory::Columns(columns) => {
                for slice in columns.iter().flat_map(|column| &column.slices) {
                    parts.add(&slice.chunk, slice.offset, slice.length);
                }
            }
        }
        parts.parts.iter_mut().for_each(Part::choose_rows);
        parts.tell_keys_apart();
        parts
    }

    fn add(&mut self, chunk: &Arc<Chunk>, offset: u32, length: u32) {
        let rows = offset..offset + length;
        if let Some(number) = self.number_of(chunk) {
            let part = &mut self.parts[number];
            part.rows = part.rows.start.min(rows.start)..part.rows.end.max(rows.end);
            return;
        }
        self.parts.push(Part { chunk: chunk.clone(), key: chunk.key, rows, message: None });
        match self.parts.len() {
            ..=FEW => {}
            count if self.by_chunk.is_empty() => {
                self.by_chunk = (0..count).map(|number| (address(&self.parts[number].chunk), number)).collect();
            }
            count => drop(self.by_chunk.insert(address(chunk), count - 1)),
        }
    }

    fn number_of(&self, chunk: &Arc<Chunk>) -> Option<usize> {
        if self.by_chunk.is_empty() {
            return self.parts.iter().position(|part| Arc::ptr_eq(&part.chunk, chunk));
        }
        self.by_chunk.get(&address(chunk)).copied()
    }

    /// Gives chunks that share a key with an earlier one a key of their own: the client tells them apart by it. Keys are
    /// random, but writers choose them.
    fn tell_keys_apart(&mut self) {
        if self.parts.len() == 1 {
            return;
        }
        let mut seen = HashSet::with_capacity_and_hasher(self.parts.len(), foldhash::fast::RandomState::default());
        for part in &mut self.parts {
            while !seen.insert(part.key) {
                part.key = random_key();
                part.message = None;
            }
        }
    }

    /// Appends the message of the item, which refers to the chunks as they are sent.
    ///
    /// # Errors
    /// Those of [`ItemEncoder::encode`].
    pub fn encode_item(&self, drawn: &Drawn, table: &str, encoder: &mut ItemEncoder, out: &mut Vec<u8>) -> Result<()> {
        let place = |chunk: &Arc<Chunk>| {
            let part = &self.parts[self.number_of(chunk).expect("every chunk of the item is listed")];
            (part.key, part.rows.start)
        };
        encoder.encode_drawn(drawn, table, place, out)
    }

    /// Returns the message of the next chunk; `None` after the last.
    ///
    /// # Errors
    /// Those of encoding a chunk.
    pub async fn next_message(&mut self, encoded: &EncodedChunks) -> Result<Option<Bytes>> {
        let Some(part) = self.parts.get_mut(self.sent) else { return Ok(None) };
        self.sent += 1;
        if let Some(message) = part.message.take() {
            return Ok(Some(message));
        }
        if part.key != part.chunk.key {
            return encode(&part.chunk, part.rows.clone(), part.key).await.map(Some);
        }
        encoded.message(&part.chunk, part.rows.clone()).await.map(Some)
    }

    /// Whether all chunks were sent.
    pub fn is_complete(&self) -> bool {
        self.sent == self.parts.len()
    }
}

impl Part {
    /// Decides which rows are sent, given those that the item uses. A chunk that arrived as a message goes out whole and
    /// unchanged, and so does a chunk of which the item uses half: it is encoded once for all items that use it.
    fn choose_rows(&mut self) {
        self.message = self.chunk.message();
        if self.message.is_some() || self.rows.len() * 2 >= self.chunk.rows() as usize {
            self.rows = 0..self.chunk.rows();
        }
    }
}

fn address(chunk: &Arc<Chunk>) -> usize {
    Arc::as_ptr(chunk).addr()
}
