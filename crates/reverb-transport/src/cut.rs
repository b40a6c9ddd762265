//! Cuts the chunk of a batch of rows into smaller ones, for tables that limit their bytes.
//!
//! A chunk stays as long as one item refers to it. A batch as large as a table's `max_bytes` would drive out all older
//! items with its first row, and a larger one could not go in at all. To a table, a batch must be the same as an insert
//! for each of its rows.

use crate::replay::InsertGroup;
use reverb_core::{Chunk, DType, EpisodeIds, Result, Trajectory, keep_rows_encoded};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A chunk holds at most this part of a table's `max_bytes`, or a single row.
const PARTS: u64 = 8;

/// Rows of a batch, and where they are now.
type Moved = BTreeMap<u32, Option<Trajectory>>;

/// Gives the items of large batches smaller chunks, which all groups share as they shared the batch.
///
/// # Errors
/// Those of making a chunk, which the rows of a chunk do not have.
pub fn cut_to_fit(groups: &mut [InsertGroup]) -> Result<()> {
    let Some(max_bytes) = groups.iter().filter_map(|group| group.table.max_bytes()).min() else { return Ok(()) };
    let limit = max_bytes / PARTS;
    let mut batches = HashMap::<*const Chunk, (Arc<Chunk>, Moved)>::new();
    for item in groups.iter().flat_map(|group| &group.items) {
        if let Some((batch, row)) = row_to_cut(&item.trajectory, limit) {
            let (_, moved) = batches.entry(Arc::as_ptr(batch)).or_insert_with(|| (batch.clone(), Moved::new()));
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

/// The chunk and the row of an item of one row, if the chunk is a batch above the limit.
fn row_to_cut(trajectory: &Trajectory, limit: u64) -> Option<(&Arc<Chunk>, u32)> {
    match trajectory {
        Trajectory::Rows { chunk, offset, length: 1 }
            if chunk.size_bytes() as u64 > limit
                && chunk.rows() > 1
                // No client of ours compresses batches; such a one goes in whole, or not at all.
                && !chunk.is_compressed()
                && matches!(chunk.episodes, EpisodeIds::PerRow(_)) =>
        {
            Some((chunk, *offset))
        }
        _ => None,
    }
}

/// Copies the rows into chunks of about `limit` bytes at most, in order.
fn cut(batch: &Chunk, moved: &mut Moved, limit: u64) -> Result<()> {
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
                *place = Some(Trajectory::Rows { chunk: chunk.clone(), offset, length: 1 });
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
