//! Encodes chunks as `ChunkData` messages.

use super::delta;
use crate::wire::{field_bytes, put_bytes, put_int32, put_length, put_number, put_varint, varint_bytes};
use reverb_core::{Chunk, ChunkView, Column, DType, EpisodeIds, Error, Result, StepRange};
use std::ops::Range;

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
        self.encode_rows(chunk, 0..chunk.rows(), key, delta_encoded, out)
    }

    /// As [`ChunkEncoder::encode`], for a chunk that has only some rows of `chunk`, which the caller has checked.
    ///
    /// # Errors
    /// Those of [`ChunkEncoder::encode`].
    pub fn encode_rows(
        &mut self,
        chunk: &Chunk,
        rows: Range<u32>,
        key: u64,
        delta_encoded: bool,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        self.tensors.clear();
        let mut decoded = std::mem::take(&mut self.decoded);
        // Few rows of an interleaved chunk are read one by one. Otherwise all rows would be separated for them.
        let is_separated = !chunk.layout().is_interleaved() || rows.len() * 2 > chunk.rows() as usize;
        let view = if is_separated { Some(chunk.view(&mut decoded)?) } else { None };
        let mut uncompressed = 0;
        for index in 0..chunk.columns().len() {
            uncompressed += self.encode_tensor(chunk, view, index, rows.clone(), delta_encoded)?;
        }
        self.decoded = decoded;
        put_number(out, 1, key);
        let range = encode_range(chunk, rows);
        put_bytes(out, 2, &range);
        put_number(out, 4, u64::from(delta_encoded));
        put_length(out, 5, self.tensors.len());
        out.extend_from_slice(&self.tensors);
        put_number(out, 6, chunk.columns().len() as u64);
        put_number(out, 7, uncompressed as u64);
        Ok(())
    }

    /// Appends rows of a column to the tensors and returns their size before compression in bytes. Without a view, they
    /// are read one by one from the chunk.
    fn encode_tensor(
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
        let uncompressed =
            uncompressed.map_err(|error| Error::Internal(format!("chunk {}: Snappy: {error}", chunk.key)))?;
        let dtype = column.dtype as u64;
        let (shape_bytes, content_bytes) = (self.shape.len(), self.compressed.len());
        let size_bytes = 1 + varint_bytes(dtype) + field_bytes(shape_bytes) + field_bytes(content_bytes);
        put_length(&mut self.tensors, 1, size_bytes);
        put_number(&mut self.tensors, 1, dtype);
        put_bytes(&mut self.tensors, 2, &self.shape);
        put_bytes(&mut self.tensors, 4, &self.compressed);
        Ok(uncompressed)
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

fn put_dim(shape: &mut Vec<u8>, size: usize) {
    put_length(shape, 2, if size == 0 { 0 } else { 1 + varint_bytes(size as u64) });
    put_number(shape, 1, size as u64);
}

fn encode_range(chunk: &Chunk, rows: Range<u32>) -> Vec<u8> {
    let episode = match chunk.episodes {
        EpisodeIds::Same(episode) => episode,
        EpisodeIds::PerRow(first) => first.wrapping_add(rows.start.into()),
    };
    let steps = steps_of(chunk, rows);
    let mut range = Vec::with_capacity(32);
    put_number(&mut range, 1, episode);
    put_int32(&mut range, 2, steps.first);
    put_int32(&mut range, 3, steps.last);
    put_number(&mut range, 4, u64::from(steps.sparse));
    range
}

/// Returns the steps of some rows. If the chunk does not say which steps these are, it is all of its steps.
fn steps_of(chunk: &Chunk, rows: Range<u32>) -> StepRange {
    let steps = chunk.steps;
    if rows.len() == chunk.rows() as usize {
        return steps;
    }
    if i64::from(steps.last) - i64::from(steps.first) + 1 != i64::from(chunk.rows()) {
        return StepRange { sparse: true, ..steps };
    }
    // Both are steps of the chunk, so they fit.
    let step_of = |row: u32| steps.first.wrapping_add_unsigned(row);
    StepRange { first: step_of(rows.start), last: step_of(rows.end - 1), sparse: steps.sparse }
}
