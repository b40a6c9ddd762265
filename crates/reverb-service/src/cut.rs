//! Cuts the chunk of a batch of rows into smaller chunks, for tables with a limit of bytes.
//!
//! A chunk stays in memory while any item refers to it. The first row of a batch as large as `max_bytes` would evict
//! all older items, and a larger batch could not be inserted at all. With smaller chunks, inserting a batch has the
//! same effect as inserting its rows one by one.

use crate::insert::InsertGroup;
use reverb_core::{Chunk, DType, EpisodeIds, Result, Trajectory, keep_rows_encoded};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A chunk holds at most `max_bytes` divided by this, or a single row.
const CHUNKS_PER_LIMIT: u64 = 8;

/// Rows of a batch, each with its new place once it is copied.
type RowPlaces = BTreeMap<u32, Option<Trajectory>>;

/// Moves the items of large batches into smaller chunks. Groups that shared the batch share these chunks.
///
/// # Errors
/// Those of creating a chunk, which cannot occur for rows of an existing chunk.
pub fn cut_to_fit(groups: &mut [InsertGroup]) -> Result<()> {
    let Some(max_bytes) = groups.iter().filter_map(|group| group.table.max_bytes()).min() else { return Ok(()) };
    let limit = max_bytes / CHUNKS_PER_LIMIT;
    let mut batches = HashMap::<*const Chunk, (Arc<Chunk>, RowPlaces)>::new();
    for item in groups.iter().flat_map(|group| &group.items) {
        if let Some((batch, row)) = row_to_cut(&item.trajectory, limit) {
            let (_, moved) = batches.entry(Arc::as_ptr(batch)).or_insert_with(|| (batch.clone(), RowPlaces::new()));
            moved.insert(row, None);
        }
    }
    for (batch, moved) in batches.values_mut() {
        cut(batch, moved, limit)?;
    }
    for item in groups.iter_mut().flat_map(|group| &mut group.items) {
        let place = row_to_cut(&item.trajectory, limit)
            .and_then(|(batch, row)| batches.get(&Arc::as_ptr(batch))?.1.get(&row)?.clone());
        if let Some(place) = place {
            item.trajectory = place;
        }
    }
    Ok(())
}

/// Returns the chunk and the row of an item of one row, if the chunk is a batch above the limit.
fn row_to_cut(trajectory: &Trajectory, limit: u64) -> Option<(&Arc<Chunk>, u32)> {
    match trajectory {
        Trajectory::Rows { chunk, offset, length: 1, squeeze: false }
            if chunk.size_bytes() as u64 > limit
                && chunk.rows() > 1
                // Our clients do not compress batches. A compressed batch is inserted whole or refused.
                && !chunk.is_compressed()
                && matches!(chunk.episodes, EpisodeIds::PerRow(_)) =>
        {
            Some((chunk, *offset))
        }
        _ => None,
    }
}

/// Copies the rows in order into chunks of at most `limit` bytes, or of one row if a row is larger.
fn cut(batch: &Chunk, moved: &mut RowPlaces, limit: u64) -> Result<()> {
    let mut rows = Vec::new();
    let mut size_bytes = 0;
    let mut scratch = Vec::new();
    let mut places = moved.iter_mut().peekable();
    let mut pending = Vec::new();
    while let Some((&row, place)) = places.next() {
        rows.push(row);
        pending.push(place);
        size_bytes += row_bytes(batch, row);
        let next_bytes = places.peek().map(|(next, _)| row_bytes(batch, **next));
        if next_bytes.is_none_or(|next| size_bytes + next > limit) {
            let chunk = Arc::new(keep_rows_encoded(batch, &rows, &mut scratch)?);
            for (offset, place) in (0..).zip(pending.drain(..)) {
                *place = Some(Trajectory::Rows { chunk: chunk.clone(), offset, length: 1, squeeze: false });
            }
            rows.clear();
            size_bytes = 0;
        }
    }
    Ok(())
}

fn row_bytes(chunk: &Chunk, row: u32) -> u64 {
    let column_bytes = |(index, column): (usize, &reverb_core::Column)| match column.dtype {
        DType::String => chunk
            .strings_of(index, row as usize * column.elements, column.elements)
            .map(|text| 4 + text.len() as u64)
            .sum(),
        _ => column.row_bytes as u64,
    };
    chunk.columns().iter().enumerate().map(column_bytes).sum()
}
