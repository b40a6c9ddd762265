//! Gives back the memory of chunks that only a few live items still use.
//!
//! With a remover that takes items at random, one item can keep a chunk of a hundred rows alive. When a table holds
//! much more than its items refer to, their rows are copied into chunks of their own, and the old chunks go. The copy
//! runs outside the table's lock.

use crate::table_handle::TableHandle;
use reverb_core::{Chunk, EpisodeIds, ItemKey, Layout, Result, Slice, Trajectory, TrajectoryColumn, random_key};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Pages looked at under one lock.
const PAGES_A_TURN: usize = 16;

/// Moves the items of sparsely used chunks into chunks of their own.
pub fn compact(handle: &TableHandle) {
    let items = sparse_items(handle);
    let mut moved = HashMap::new();
    for (chunk, rows) in used_rows(&items) {
        match keep_rows(&chunk, &rows) {
            Ok(copy) => {
                moved.insert(Arc::as_ptr(&chunk), (Arc::new(copy), rows));
            }
            Err(error) => tracing::warn!("table `{}`: chunk {} stays as it is: {error}", handle.name(), chunk.key),
        }
    }
    for (key, old) in &items {
        if let Some(new) = rewrite(old, &moved) {
            handle.with_table_mut(|table, removed| table.replace_trajectory(*key, old, new, removed));
        }
    }
}

fn sparse_items(handle: &TableHandle) -> Vec<(ItemKey, Trajectory)> {
    let mut items = Vec::new();
    let mut page = Some(0);
    while let Some(from) = page {
        let (some, next) = handle.with_table_mut(|table, _| table.sparse_items(from, PAGES_A_TURN));
        items.extend(some);
        page = next;
    }
    items
}

/// A chunk and rows of it.
type UsedRows = (Arc<Chunk>, BTreeSet<u32>);

/// The sparsely used chunks, each with its rows that items refer to, ascending.
fn used_rows(items: &[(ItemKey, Trajectory)]) -> Vec<(Arc<Chunk>, Vec<u32>)> {
    // `None` for a chunk that was dense when it was first looked at: it may become sparse between two items of it, and
    // must be copied with the rows of all or not at all.
    let mut used = HashMap::<*const Chunk, Option<UsedRows>>::new();
    let mut add = |chunk: &Arc<Chunk>, offset: u32, length: u32| {
        let sparse = || reverb_core::is_sparse(chunk).then(|| (chunk.clone(), BTreeSet::new()));
        if let Some((_, rows)) = used.entry(Arc::as_ptr(chunk)).or_insert_with(sparse) {
            rows.extend(offset..offset + length);
        }
    };
    for (_, trajectory) in items {
        match trajectory {
            Trajectory::Rows { chunk, offset, length } => add(chunk, *offset, *length),
            Trajectory::Columns(columns) => {
                for slice in columns.iter().flat_map(|column| &column.slices) {
                    add(&slice.chunk, slice.offset, slice.length);
                }
            }
        }
    }
    used.into_values().flatten().map(|(chunk, rows)| (chunk, rows.into_iter().collect())).collect()
}

/// A chunk of these rows of another. Rows that followed each other still do.
pub fn keep_rows(chunk: &Chunk, rows: &[u32]) -> Result<Chunk> {
    let regions: Vec<Vec<u8>> =
        (0..chunk.columns().len()).map(|column| keep_region(chunk, column, rows)).collect::<Result<_>>()?;
    let columns =
        chunk.columns().iter().zip(&regions).map(|(column, region)| (column.dtype, column.shape.clone(), region.len()));
    let layout = Layout::new(rows.len(), columns)?;
    let mut data = Vec::with_capacity(layout.size_bytes);
    for (column, region) in layout.columns.iter().zip(&regions) {
        data.resize(column.offset, 0);
        data.extend_from_slice(region);
    }
    let mut steps = chunk.steps;
    steps.sparse = true;
    let episodes = match chunk.episodes {
        EpisodeIds::Same(episode) => EpisodeIds::Same(episode),
        // Rows of a batch are episodes of their own, whichever number they have.
        EpisodeIds::PerRow(_) => EpisodeIds::PerRow(random_key()),
    };
    Chunk::new(random_key(), episodes, steps, Arc::new(layout), data.into())
}

fn keep_region(chunk: &Chunk, column: usize, rows: &[u32]) -> Result<Vec<u8>> {
    let spec = &chunk.columns()[column];
    if spec.row_bytes > 0 || spec.size_bytes == 0 {
        let mut region = Vec::with_capacity(rows.len() * spec.row_bytes);
        rows.iter().for_each(|&row| region.extend_from_slice(chunk.rows_of(column, row, 1)));
        return Ok(region);
    }
    let strings: Vec<&[u8]> =
        rows.iter().flat_map(|&row| chunk.strings_of(column, row as usize * spec.elements, spec.elements)).collect();
    reverb_core::encode_strings(strings.iter().copied())
}

type Moved = HashMap<*const Chunk, (Arc<Chunk>, Vec<u32>)>;

fn rewrite(old: &Trajectory, moved: &Moved) -> Option<Trajectory> {
    let place = |chunk: &Arc<Chunk>, offset: u32, length: u32| {
        let (copy, rows) = moved.get(&Arc::as_ptr(chunk))?;
        let first = rows.binary_search(&offset).ok()?;
        // All of the rows were copied, since the last of as many different ascending ones is where it should be.
        let last = rows.get(first + length as usize - 1)?;
        (*last == offset + length - 1).then(|| (copy.clone(), first as u32))
    };
    match old {
        Trajectory::Rows { chunk, offset, length } => {
            let (chunk, offset) = place(chunk, *offset, *length)?;
            Some(Trajectory::Rows { chunk, offset, length: *length })
        }
        Trajectory::Columns(columns) => {
            let rewrite_slice = |slice: &Slice| match place(&slice.chunk, slice.offset, slice.length) {
                Some((chunk, offset)) => Slice { chunk, offset, ..slice.clone() },
                None => slice.clone(),
            };
            let columns = columns.iter().map(|column| TrajectoryColumn {
                slices: column.slices.iter().map(rewrite_slice).collect(),
                squeeze: column.squeeze,
            });
            Some(Trajectory::Columns(columns.collect()))
        }
    }
}
