//! Copies of some rows of chunks in new chunks: to free the other rows, or to decode rows only once.

use crate::{Chunk, EpisodeIds, Layout, Result, Slice, Trajectory, TrajectoryColumn, encode_strings, random_key};
use hashbrown::HashMap;
use std::sync::Arc;

/// Values by the address of a chunk.
type ByChunk<T> = HashMap<*const Chunk, T, foldhash::fast::RandomState>;

/// Ranges of rows, each the first row and the row after the last. They may overlap.
type Ranges = Vec<(u32, u32)>;

/// The rows of some chunks that items refer to.
#[derive(Debug, Default)]
pub struct UsedRows {
    /// `None` for a chunk that was not wanted when it was first seen. The answer may change between two items of a
    /// chunk, but the rows of a chunk must move for all its items or for none.
    chunks: ByChunk<Option<(Arc<Chunk>, Ranges)>>,
}

impl UsedRows {
    /// Adds the rows of wanted chunks that an item refers to.
    pub fn add(&mut self, trajectory: &Trajectory, mut is_wanted: impl FnMut(&Arc<Chunk>) -> bool) {
        let mut add = |chunk: &Arc<Chunk>, offset: u32, length: u32| {
            let begin = || is_wanted(chunk).then(|| (chunk.clone(), Vec::new()));
            let Some((_, ranges)) = self.chunks.entry(Arc::as_ptr(chunk)).or_insert_with(begin) else { return };
            let end = offset + length;
            match ranges.last_mut() {
                // Items refer to the same rows of many columns, and to consecutive rows one after another.
                Some((first, last)) if *first <= offset && offset <= *last => *last = end.max(*last),
                _ => ranges.push((offset, end)),
            }
        };
        match trajectory {
            Trajectory::Rows { chunk, offset, length, .. } => add(chunk, *offset, *length),
            Trajectory::Columns(columns) => {
                for slice in columns.iter().flat_map(|column| &column.slices) {
                    add(&slice.chunk, slice.offset, slice.length);
                }
            }
        }
    }
}

impl IntoIterator for UsedRows {
    type Item = (Arc<Chunk>, Vec<u32>);
    type IntoIter = Box<dyn Iterator<Item = Self::Item>>;

    /// The wanted chunks, each with its rows in ascending order.
    fn into_iter(self) -> Self::IntoIter {
        Box::new(self.chunks.into_values().flatten().map(|(chunk, ranges)| (chunk, distinct_rows(ranges))))
    }
}

/// The rows of all ranges in ascending order.
fn distinct_rows(mut ranges: Ranges) -> Vec<u32> {
    ranges.sort_unstable();
    let mut rows = Vec::new();
    let mut next = 0;
    for (first, end) in ranges {
        rows.extend(first.max(next)..end);
        next = end.max(next);
    }
    rows
}

/// Chunks, and the copies that hold some of their rows.
#[derive(Debug, Default)]
pub struct MovedRows {
    moved: ByChunk<Moved>,
}

#[derive(Debug)]
struct Moved {
    /// Stored so that no other chunk gets this address.
    _old: Arc<Chunk>,
    copy: Arc<Chunk>,
    rows: Vec<u32>,
}

impl MovedRows {
    /// Adds a chunk and its copy, which has exactly `rows` of it, in ascending order.
    pub fn insert(&mut self, chunk: Arc<Chunk>, copy: Chunk, rows: Vec<u32>) {
        self.moved.insert(Arc::as_ptr(&chunk), Moved { _old: chunk, copy: Arc::new(copy), rows });
    }

    /// The same data, taken from the copies; `None` if no chunk of it has a copy with all the rows.
    pub fn rewrite(&self, trajectory: &Trajectory) -> Option<Trajectory> {
        match trajectory {
            &Trajectory::Rows { ref chunk, offset, length, squeeze } => {
                let (chunk, offset) = self.place(chunk, offset, length)?;
                Some(Trajectory::Rows { chunk, offset, length, squeeze })
            }
            Trajectory::Columns(columns) => {
                let mut any = false;
                let mut rewrite_slice = |slice: &Slice| match self.place(&slice.chunk, slice.offset, slice.length) {
                    Some((chunk, offset)) => {
                        any = true;
                        Slice { chunk, offset, ..*slice }
                    }
                    None => slice.clone(),
                };
                let columns = columns.iter().map(|column| TrajectoryColumn {
                    slices: column.slices.iter().map(&mut rewrite_slice).collect(),
                    squeeze: column.squeeze,
                });
                let columns = columns.collect();
                any.then_some(Trajectory::Columns(columns))
            }
        }
    }

    fn place(&self, chunk: &Arc<Chunk>, offset: u32, length: u32) -> Option<(Arc<Chunk>, u32)> {
        let Moved { copy, rows, .. } = self.moved.get(&Arc::as_ptr(chunk))?;
        let first = rows.binary_search(&offset).ok()?;
        // All rows were copied if the last of them is where it should be, because the rows are distinct and ascend.
        let last = rows.get(first + length as usize - 1)?;
        (*last == offset + length - 1).then(|| (copy.clone(), first as u32))
    }
}

/// Creates a chunk of some rows of another, not encoded. Consecutive rows stay consecutive.
///
/// # Arguments
/// `rows` ascend and exist. `scratch` holds the decoded chunk; pass the same buffer to consecutive calls.
///
/// # Errors
/// [`crate::Error::DataLoss`] if the chunk does not decode.
pub fn keep_rows(chunk: &Chunk, rows: &[u32], scratch: &mut Vec<u8>) -> Result<Chunk> {
    let columns = chunk.columns();
    let view = chunk.view(scratch)?;
    let mut regions = Vec::with_capacity(columns.len());
    for (index, column) in columns.iter().enumerate() {
        let mut region = Vec::new();
        if column.row_bytes > 0 || column.size_bytes == 0 {
            region.reserve_exact(rows.len() * column.row_bytes);
            for_each_run(rows, |first, length| region.extend_from_slice(view.rows_of(index, first, length)));
        } else {
            let of_row = |&row: &u32| view.strings_of(index, row as usize * column.elements, column.elements);
            let strings: Vec<&[u8]> = rows.iter().flat_map(of_row).collect();
            region = encode_strings(strings.iter().copied())?;
        }
        regions.push(region);
    }
    let specs = columns.iter().zip(&regions).map(|(column, region)| (column.dtype, column.shape.clone(), region.len()));
    let layout = Layout::new(rows.len(), specs)?;
    let data = layout.assemble(&regions);
    let mut steps = chunk.steps;
    steps.sparse = true;
    let episodes = match chunk.episodes {
        EpisodeIds::Same(episode) => EpisodeIds::Same(episode),
        // Each row of a batch is an episode of its own, whatever its number.
        EpisodeIds::PerRow(_) => EpisodeIds::PerRow(random_key()),
    };
    Chunk::new(random_key(), episodes, steps, Arc::new(layout), data.into())
}

/// As [`keep_rows`], with the encoding of the original chunk if that pays for the remaining rows.
///
/// # Errors
/// The errors of [`keep_rows`].
pub fn keep_rows_encoded(chunk: &Chunk, rows: &[u32], scratch: &mut Vec<u8>) -> Result<Chunk> {
    let copy = keep_rows(chunk, rows, scratch)?;
    match chunk.encoding() {
        Some(encoding) => Ok(copy.compress(encoding.codec, &encoding.delta)),
        None if chunk.layout().is_interleaved() => copy.interleave(),
        None => Ok(copy),
    }
}

/// Calls `visit` with the first row and the length of each run of consecutive rows.
fn for_each_run(rows: &[u32], mut visit: impl FnMut(u32, u32)) {
    rows.chunk_by(|a, b| *a + 1 == *b).for_each(|run| visit(run[0], run.len() as u32));
}
