//! Converts chunks to messages, and checks and converts messages to chunks.

use super::shapes::{shape_from_wire, to_usize};
use crate::replay_v1::proto as replay;
use bytes::Bytes;
use reverb_core::{Chunk, Codec, DType, Encoding, EpisodeIds, Error, Layout, RecentLayouts, Result, StepRange};
use reverb_service::insert::check_size;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// Data smaller than this is copied out of its message, so that a small chunk does not keep a large message alive.
const COPY_BELOW_BYTES: usize = 64 * 1024;

/// The layouts of a stream, with the columns and the codec of their messages.
#[derive(Debug, Default)]
pub struct LayoutCache(RecentLayouts<(Vec<replay::ColumnSpec>, i32)>);

impl LayoutCache {
    fn layout(&mut self, columns: Vec<replay::ColumnSpec>, rows: u32, codec: i32) -> Result<Arc<Layout>> {
        let fits = |made_from: &(Vec<_>, i32), layout: &Layout| {
            (layout.rows, made_from.1) == (rows, codec) && made_from.0 == columns
        };
        if let Some(layout) = self.0.find(fits) {
            return Ok(layout);
        }
        let specs = columns.iter().map(|column| {
            let dtype = DType::from_number(column.dtype)?;
            let (shape, string_bytes) = (shape_from_wire(&column.shape)?, to_usize(column.string_bytes)?);
            if dtype == DType::String {
                check_string_count(&shape, rows, string_bytes)?;
            }
            Ok((dtype, shape, string_bytes))
        });
        let mut layout = Layout::new(rows as usize, specs.collect::<Result<Vec<_>>>()?)?;
        let delta: Box<[bool]> = columns.iter().map(|column| column.delta).collect();
        match codec_from_wire(codec)? {
            replay::Codec::Lz4 => layout = layout.encoded(Encoding { codec: Codec::Lz4, delta })?,
            replay::Codec::Zstd => layout = layout.encoded(Encoding { codec: Codec::Zstd, delta })?,
            _ if delta.contains(&true) => {
                return Err(Error::invalid("a column of differences requires the codec LZ4 or ZSTD"));
            }
            replay::Codec::Interleaved => layout = layout.interleaved()?,
            replay::Codec::None => {}
        }
        Ok(self.0.keep((columns, codec), layout))
    }
}

fn codec_from_wire(number: i32) -> Result<replay::Codec> {
    replay::Codec::try_from(number).map_err(|_| Error::invalid(format!("{number} is not a known codec")))
}

/// Converts a chunk to a message.
pub fn chunk_to_wire(chunk: &Chunk) -> replay::Chunk {
    let delta = |index: usize| chunk.encoding().is_some_and(|encoding| encoding.delta[index]);
    let columns = chunk.columns().iter().enumerate().map(|(index, column)| replay::ColumnSpec {
        dtype: column.dtype as u32,
        shape: column.shape.iter().map(|&dim| dim as u64).collect(),
        string_bytes: if column.dtype == DType::String { column.size_bytes as u64 } else { 0 },
        delta: delta(index),
    });
    let codec = match chunk.encoding().map(|encoding| encoding.codec) {
        None if chunk.layout().is_interleaved() => replay::Codec::Interleaved,
        None => replay::Codec::None,
        Some(Codec::Lz4) => replay::Codec::Lz4,
        Some(Codec::Zstd) => replay::Codec::Zstd,
    };
    let (episode_id, episode_per_row) = match chunk.episodes {
        EpisodeIds::Same(id) => (id, false),
        EpisodeIds::PerRow(id) => (id, true),
    };
    replay::Chunk {
        key: chunk.key,
        episode_id,
        episode_per_row,
        first_step: chunk.steps.first,
        last_step: chunk.steps.last,
        sparse: chunk.steps.sparse,
        rows: chunk.rows(),
        columns: columns.collect(),
        data: chunk.data().clone(),
        codec: codec.into(),
        segment: None,
        segment_bytes: 0,
    }
}

/// Returns the size in bytes to which a compressed chunk decodes, as its columns state it, without padding; 0 if it is
/// not compressed. Columns that are not valid count 0: such a chunk is refused before it is decoded.
pub fn decoded_bytes(chunk: &replay::Chunk) -> u64 {
    if !matches!(chunk.codec(), replay::Codec::Lz4 | replay::Codec::Zstd) {
        return 0;
    }
    let size_of = |column: &replay::ColumnSpec| match DType::from_number(column.dtype).ok()? {
        DType::String => Some(column.string_bytes),
        dtype => column
            .shape
            .iter()
            .try_fold(u64::from(chunk.rows) * dtype.size() as u64, |size, &dim| size.checked_mul(dim)),
    };
    let all = chunk.columns.iter().try_fold(0_u64, |all, column| all.checked_add(size_of(column)?));
    all.unwrap_or(0)
}

/// Checks and converts a chunk of a request.
fn chunk_from_wire(chunk: replay::Chunk, layouts: &mut LayoutCache, limit_bytes: u64) -> Result<Chunk> {
    let named = |error: Error| match error {
        Error::InvalidArgument(text) => Error::invalid(format!("chunk {}: {text}", chunk.key)),
        error => error,
    };
    let layout = layouts.layout(chunk.columns, chunk.rows, chunk.codec).map_err(named)?;
    let data_bytes = chunk.data.len() as u64;
    check_size(if layout.encoding().is_some() { layout.size_bytes as u64 } else { data_bytes }, limit_bytes)?;
    let data = if chunk.data.len() < COPY_BELOW_BYTES { Bytes::copy_from_slice(&chunk.data) } else { chunk.data };
    let episodes = match chunk.episode_per_row {
        false => EpisodeIds::Same(chunk.episode_id),
        true => EpisodeIds::PerRow(chunk.episode_id),
    };
    let steps = StepRange { first: chunk.first_step, last: chunk.last_step, sparse: chunk.sparse };
    Chunk::new(chunk.key, episodes, steps, layout, data)
}

/// Adds the chunks of a message to the known chunks. Returns the size of the new ones in bytes.
///
/// # Errors
/// [`Error::MessageTooLarge`] if the decoded data of a chunk exceeds `limit_bytes`, or [`Error::InvalidArgument`] if a
/// chunk is not valid.
pub fn chunks_from_wire(
    chunks: Vec<replay::Chunk>,
    layouts: &mut LayoutCache,
    known: &mut HashMap<u64, Arc<Chunk>>,
    limit_bytes: u64,
) -> Result<usize> {
    let mut bytes = 0;
    for chunk in chunks {
        let chunk = Arc::new(chunk_from_wire(chunk, layouts, limit_bytes)?);
        if let Entry::Vacant(place) = known.entry(chunk.key) {
            bytes += chunk.size_bytes();
            place.insert(chunk);
        }
    }
    Ok(bytes)
}

/// Checks the number of strings. The region holds an end offset of four bytes for each string, so its size limits their
/// number.
fn check_string_count(shape: &[usize], rows: u32, string_bytes: usize) -> Result<()> {
    let count = shape.iter().try_fold(rows as usize, |count, &dim| count.checked_mul(dim));
    match count {
        Some(count) if count <= string_bytes / 4 => Ok(()),
        _ => Err(Error::invalid(format!(
            "{rows} rows of strings of shape {shape:?} do not fit into {string_bytes} bytes"
        ))),
    }
}
