//! Some rows of chunks, moved to chunks of their own: to free the others, or to decode no more than once.

use crate::{Chunk, EpisodeIds, Layout, Result, Slice, Trajectory, TrajectoryColumn, encode_strings, random_key};
use hashbrown::HashMap;
use std::sync::Arc;

/// Chunks by their address.
type ByChunk<T> = HashMap<*const Chunk, T, foldhash::fast::RandomState>;

/// The rows of some chunks that items refer to.
#[derive(Debug, Default)]
pub struct UsedRows {
    /// `None` for a chunk that was not wanted when it was first looked at. What is wanted may change between two items
    /// of a chunk, which must move with the rows of all or not at all.
    chunks: ByChunk<Option<(Arc<Chunk>, Vec<u32>)>>,
}

impl UsedRows {
    /// Adds the rows that an item refers to in chunks that are wanted.
    pub fn add(&mut self, trajectory: &Trajectory, mut is_wanted: impl FnMut(&Chunk) -> bool) {
        let mut add = |chunk: &Arc<Chunk>, offset: u32, length: u32| {
            let begin = || is_wanted(chunk).then(|| (chunk.clone(), Vec::new()));
            if let Some((_, rows)) = self.chunks.entry(Arc::as_ptr(chunk)).or_insert_with(begin) {
                rows.extend(offset..offset + length);
            }
        };
        match trajectory {
            Trajectory::Rows { chunk, offset, length } => add(chunk, *offset, *length),
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

    /// The wanted chunks, each with its rows, ascending.
    fn into_iter(self) -> Self::IntoIter {
        Box::new(self.chunks.into_values().flatten().map(|(chunk, mut rows)| {
            rows.sort_unstable();
            rows.dedup();
            (chunk, rows)
        }))
    }
}

/// Chunks, and those that have some of their rows instead.
#[derive(Debug, Default)]
pub struct MovedRows {
    moved: ByChunk<Moved>,
}

#[derive(Debug)]
struct Moved {
    /// Kept, so that no other chunk gets its address.
    _old: Arc<Chunk>,
    copy: Arc<Chunk>,
    rows: Vec<u32>,
}

impl MovedRows {
    /// `copy` has exactly these rows of `chunk`, which ascend.
    pub fn insert(&mut self, chunk: Arc<Chunk>, copy: Chunk, rows: Vec<u32>) {
        self.moved.insert(Arc::as_ptr(&chunk), Moved { _old: chunk, copy: Arc::new(copy), rows });
    }

    /// The same data by the copies; `None` if none of it was copied whole.
    pub fn rewrite(&self, trajectory: &Trajectory) -> Option<Trajectory> {
        match trajectory {
            Trajectory::Rows { chunk, offset, length } => {
                let (chunk, offset) = self.place(chunk, *offset, *length)?;
                Some(Trajectory::Rows { chunk, offset, length: *length })
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
        // All of the rows were copied, since the last of as many different ascending ones is where it should be.
        let last = rows.get(first + length as usize - 1)?;
        (*last == offset + length - 1).then(|| (copy.clone(), first as u32))
    }
}

/// A chunk of these rows of another, not encoded. Rows that followed each other still do.
///
/// # Arguments
/// `rows` ascend and are there. `scratch` takes the decoded chunk; use one for many calls.
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
        // Rows of a batch are episodes of their own, whichever number they have.
        EpisodeIds::PerRow(_) => EpisodeIds::PerRow(random_key()),
    };
    Chunk::new(random_key(), episodes, steps, Arc::new(layout), data.into())
}

/// [`keep_rows`], encoded as the other chunk is, if that pays for so few.
///
/// # Errors
/// As [`keep_rows`].
pub fn keep_rows_encoded(chunk: &Chunk, rows: &[u32], scratch: &mut Vec<u8>) -> Result<Chunk> {
    let copy = keep_rows(chunk, rows, scratch)?;
    match chunk.encoding() {
        Some(encoding) => Ok(copy.compress(encoding.codec, &encoding.delta)),
        None if chunk.layout().is_interleaved() => copy.interleave(),
        None => Ok(copy),
    }
}

/// Calls `visit` with the first row and the length of each run of rows that follow each other.
fn for_each_run(rows: &[u32], mut visit: impl FnMut(u32, u32)) {
    rows.chunk_by(|a, b| *a + 1 == *b).for_each(|run| visit(run[0], run.len() as u32));
}
