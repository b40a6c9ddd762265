//! Encodes chunks as `ChunkData` messages.

use super::delta;
use crate::wire::{field_bytes, put_bytes, put_int32, put_length, put_number, put_varint, varint_bytes};
use reverb_core::{Chunk, ChunkView, Column, DType, EpisodeIds, Error, Result, StepRange};
use std::ops::Range;

/// Size in bytes that the fields of a chunk beside its tensors have at most.
const HEAD_BYTES: usize = 96;
/// Overhead in bytes that the reference counts for each string.
const STRING_BYTES: usize = 24;

/// Encodes chunks. Reuses its buffers from chunk to chunk.
#[derive(Debug)]
pub struct ChunkEncoder {
    snappy: snap::raw::Encoder,
    compressed: Vec<u8>,
    plain: Vec<u8>,
    shape: Vec<u8>,
    tensors: Vec<u8>,
    decoded: Vec<u8>,
    separated: Vec<u8>,
}

impl Default for ChunkEncoder {
    fn default() -> Self {
        let [compressed, plain, shape, tensors, decoded, separated] = [(); 6].map(|()| Vec::new());
        Self { snappy: snap::raw::Encoder::new(), compressed, plain, shape, tensors, decoded, separated }
    }
}

impl ChunkEncoder {
    /// Appends the serialised `ChunkData` of a chunk to `out`, with the key `key`. With `delta_encoded`, tensors of
    /// integers of rank 2 and more are stored as differences between rows.
    ///
    /// # Errors
    /// [`Error::Internal`] if Snappy refuses the data (a tensor of 4 GiB or more, larger than any chunk);
    /// [`Error::DataLoss`] if an encoded chunk does not decode.
    pub fn encode(&mut self, chunk: &Chunk, key: u64, delta_encoded: bool, out: &mut Vec<u8>) -> Result<()> {
        self.encode_part(chunk, 0..chunk.rows(), key, delta_encoded, out)
    }

    /// As [`ChunkEncoder::encode`], for some rows of a chunk, which become a chunk of their own. The caller has checked
    /// that the chunk has them.
    ///
    /// # Errors
    /// Those of [`ChunkEncoder::encode`].
    pub fn encode_part(
        &mut self,
        chunk: &Chunk,
        rows: Range<u32>,
        key: u64,
        delta_encoded: bool,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let is_separated = !chunk.layout().is_interleaved() || rows.len() * 2 > chunk.rows() as usize;
        if !is_separated {
            return self.encode_rows(chunk, None, rows, key, delta_encoded, out);
        }
        let mut decoded = std::mem::take(&mut self.decoded);
        let view = chunk.view(&mut decoded)?;
        self.encode_rows(chunk, Some(view), rows, key, delta_encoded, out)?;
        self.decoded = decoded;
        Ok(())
    }

    /// As [`ChunkEncoder::encode_part`]. `view` is that of the whole chunk. Without it, the rows are read one by one from
    /// an interleaved chunk: otherwise all its rows would be separated for few.
    ///
    /// # Errors
    /// [`Error::Internal`] if Snappy refuses the data.
    pub fn encode_rows(
        &mut self,
        chunk: &Chunk,
        view: Option<ChunkView<'_>>,
        rows: Range<u32>,
        key: u64,
        delta_encoded: bool,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        self.tensors.clear();
        let mut uncompressed = 0;
        let (columns, last) = (chunk.columns(), chunk.columns().len().saturating_sub(1));
        let mut last_bytes = 0;
        for (index, column) in columns.iter().enumerate() {
            uncompressed += self.compress_column(chunk, view, index, rows.clone(), delta_encoded)?;
            let size_bytes = self.tensor_bytes(column);
            if index < last {
                put_tensor(column, &self.shape, &self.compressed, size_bytes, &mut self.tensors);
            } else {
                last_bytes = size_bytes;
            }
        }
        // The last tensor, often the only one, is copied once.
        let tensors_bytes = self.tensors.len() + if columns.is_empty() { 0 } else { field_bytes(last_bytes) };
        out.reserve(tensors_bytes + HEAD_BYTES);
        put_number(out, 1, key);
        let range = encode_range(chunk, &rows);
        put_bytes(out, 2, &range);
        put_number(out, 4, u64::from(delta_encoded));
        put_length(out, 5, tensors_bytes);
        out.extend_from_slice(&self.tensors);
        if let Some(column) = columns.last() {
            put_tensor(column, &self.shape, &self.compressed, last_bytes, out);
        }
        put_number(out, 6, columns.len() as u64);
        put_number(out, 7, uncompressed as u64);
        Ok(())
    }

    /// Returns the size of the message of the tensor that was compressed last, in bytes.
    fn tensor_bytes(&self, column: &Column) -> usize {
        1 + varint_bytes(column.dtype as u64) + field_bytes(self.shape.len()) + field_bytes(self.compressed.len())
    }

    /// Compresses rows of a column and returns their size before that in bytes. Without a view, they are read one by
    /// one from the chunk.
    fn compress_column(
        &mut self,
        chunk: &Chunk,
        view: Option<ChunkView<'_>>,
        index: usize,
        rows: Range<u32>,
        delta_encoded: bool,
    ) -> Result<usize> {
        let column = &chunk.columns()[index];
        self.shape.clear();
        put_dim(&mut self.shape, rows.len());
        column.shape.iter().for_each(|&dim| put_dim(&mut self.shape, dim));
        let uncompressed = match (column.dtype, view) {
            (DType::String, Some(view)) => {
                let first = column.elements * rows.start as usize;
                self.encode_strings(view, first, column.elements * rows.len(), index)
            }
            (_, Some(view)) => self.compress(view.rows_of(index, rows.start, rows.len() as u32), column, delta_encoded),
            (_, None) => {
                let mut separated = std::mem::take(&mut self.separated);
                separated.clear();
                rows.for_each(|row| separated.extend_from_slice(chunk.rows_of(index, row, 1)));
                let size_bytes = self.compress(&separated, column, delta_encoded);
                self.separated = separated;
                size_bytes
            }
        };
        uncompressed.map_err(|error| Error::Internal(format!("chunk {}: Snappy: {error}", chunk.key)))
    }

    fn compress(&mut self, rows: &[u8], column: &Column, delta_encoded: bool) -> snap::Result<usize> {
        let rows = if delta_encoded && delta::applies(column.dtype, column.shape.len() + 1) {
            self.plain.clear();
            self.plain.extend_from_slice(rows);
            delta::encode(&mut self.plain, column.row_bytes, column.dtype.size());
            &self.plain
        } else {
            rows
        };
        let most = snap::raw::max_compress_len(rows.len());
        self.compressed.resize(most.max(1), 0);
        let size = self.snappy.compress(rows, &mut self.compressed)?;
        self.compressed.truncate(size);
        Ok(rows.len())
    }

    /// Encodes the lengths of all strings, then their bytes. Returns the size before compression as the reference
    /// counts it.
    fn encode_strings(&mut self, view: ChunkView<'_>, first: usize, count: usize, index: usize) -> snap::Result<usize> {
        self.compressed.clear();
        let mut uncompressed = count * STRING_BYTES;
        for string in view.strings_of(index, first, count) {
            put_varint(&mut self.compressed, string.len() as u64);
            uncompressed += string.len();
        }
        for string in view.strings_of(index, first, count) {
            self.compressed.extend_from_slice(string);
        }
        Ok(uncompressed)
    }
}

/// Appends a tensor, whose message has `size_bytes` bytes.
fn put_tensor(column: &Column, shape: &[u8], compressed: &[u8], size_bytes: usize, out: &mut Vec<u8>) {
    put_length(out, 1, size_bytes);
    put_number(out, 1, column.dtype as u64);
    put_bytes(out, 2, shape);
    put_bytes(out, 4, compressed);
}

fn put_dim(shape: &mut Vec<u8>, size: usize) {
    put_length(shape, 2, if size == 0 { 0 } else { 1 + varint_bytes(size as u64) });
    put_number(shape, 1, size as u64);
}

fn encode_range(chunk: &Chunk, rows: &Range<u32>) -> Vec<u8> {
    let (episode, steps) = match chunk.episodes {
        _ if rows.len() == chunk.rows() as usize => {
            let (EpisodeIds::Same(episode) | EpisodeIds::PerRow(episode)) = chunk.episodes;
            (episode, chunk.steps)
        }
        EpisodeIds::PerRow(first) => (
            first.wrapping_add(u64::from(rows.start)),
            StepRange { first: 0, last: rows.len().saturating_sub(1) as i32, sparse: false },
        ),
        // The step of a row is known only if none is missing before it.
        EpisodeIds::Same(episode) if chunk.steps.sparse => (episode, chunk.steps),
        EpisodeIds::Same(episode) => {
            let step = |row: u32| chunk.steps.first.wrapping_add(row as i32);
            (episode, StepRange { first: step(rows.start), last: step(rows.end.saturating_sub(1)), sparse: false })
        }
    };
    let mut range = Vec::with_capacity(24);
    put_number(&mut range, 1, episode);
    put_int32(&mut range, 2, steps.first);
    put_int32(&mut range, 3, steps.last);
    put_number(&mut range, 4, u64::from(steps.sparse));
    range
}
