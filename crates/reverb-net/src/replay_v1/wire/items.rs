//! Converts items of inserts and of writers to messages and back.

use super::chunks::{LayoutCache, chunks_from_wire, decoded_bytes};
use super::shards::others_from_wire;
use crate::grpc::held_memory::columns_bytes;
use crate::replay_v1::proto::{self as replay, ItemBatch};
use reverb_core::writer::{CellRun, Selection, WriterItem};
use reverb_core::{Chunk, Error, NewItem, Result, Slice, Trajectory, TrajectoryColumn};
use reverb_service::insert::check_size;
use std::collections::HashMap;
use std::sync::Arc;

/// Checks and converts the chunks of an insert. Their data may have at most `limit_bytes` in all, encoded and decoded.
///
/// # Errors
/// [`Error::MessageTooLarge`] above that limit, or [`Error::InvalidArgument`] if a chunk is not valid.
pub fn insert_chunks_from_wire(
    chunks: Vec<replay::Chunk>,
    layouts: &mut LayoutCache,
    limit_bytes: u64,
) -> Result<HashMap<u64, Arc<Chunk>>> {
    let sizes = chunks.iter().map(|chunk| decoded_bytes(chunk).max(chunk.data.len() as u64));
    check_size(sizes.fold(0, u64::saturating_add), limit_bytes)?;
    let mut known = HashMap::with_capacity(chunks.len());
    chunks_from_wire(chunks, layouts, &mut known, limit_bytes)?;
    Ok(known)
}

/// Checks and converts the items of an insert for one table.
///
/// # Errors
/// [`Error::InvalidArgument`] if an item does not match the chunks.
pub fn items_from_wire(batch: ItemBatch, chunks: &HashMap<u64, Arc<Chunk>>) -> Result<Vec<NewItem>> {
    let count = batch.keys.len();
    if batch.priorities.len() != 1 && batch.priorities.len() != count {
        return Err(Error::invalid(format!(
            "table `{}`: expected 1 or {count} priorities, got {}",
            batch.table,
            batch.priorities.len()
        )));
    }
    let trajectories = trajectories_from_wire(&batch, chunks)?;
    let priority = |index: usize| batch.priorities[if batch.priorities.len() == 1 { 0 } else { index }];
    let items = batch.keys.iter().zip(trajectories).enumerate();
    Ok(items
        .map(|(index, (&key, trajectory))| NewItem {
            key,
            priority: priority(index),
            takes_largest: batch.takes_largest,
            others: others_from_wire(batch.others.as_ref()),
            times_sampled: 0,
            trajectory,
        })
        .collect())
}

fn trajectories_from_wire(batch: &ItemBatch, chunks: &HashMap<u64, Arc<Chunk>>) -> Result<Vec<Trajectory>> {
    let count = batch.keys.len();
    if batch.trajectories.is_empty() {
        if count == 0 {
            return Ok(Vec::new());
        }
        let chunk = find_chunk(chunks, batch.chunk_key)?;
        // Checks all rows together first, so that a batch cannot name more rows than the chunk has.
        let rows = u32::try_from(count).ok().and_then(|count| count.checked_mul(batch.rows_per_item));
        let rows = rows.ok_or_else(|| {
            Error::invalid(format!(
                "{count} items of {} rows exceed the maximum number of rows of a chunk",
                batch.rows_per_item
            ))
        })?;
        Trajectory::rows(chunk.clone(), batch.first_row, rows)?;
        let row = |index: usize| batch.first_row + index as u32 * batch.rows_per_item;
        return (0..count).map(|index| Trajectory::rows(chunk.clone(), row(index), batch.rows_per_item)).collect();
    }
    if batch.trajectories.len() != count {
        let got = batch.trajectories.len();
        return Err(Error::invalid(format!("table `{}`: expected {count} trajectories, got {got}", batch.table)));
    }
    batch.trajectories.iter().map(|trajectory| trajectory_from_wire(trajectory, chunks)).collect()
}

fn trajectory_from_wire(trajectory: &replay::Trajectory, chunks: &HashMap<u64, Arc<Chunk>>) -> Result<Trajectory> {
    let to_slice = |slice: &replay::Slice| {
        let chunk = find_chunk(chunks, slice.chunk_key)?.clone();
        Ok(Slice { chunk, column: slice.column, offset: slice.offset, length: slice.length })
    };
    let to_column = |column: &replay::Column| {
        let slices = column.slices.iter().map(to_slice).collect::<Result<_>>()?;
        Ok(TrajectoryColumn { slices, squeeze: column.squeeze })
    };
    Trajectory::columns(trajectory.columns.iter().map(to_column).collect::<Result<_>>()?)
}

/// Returns the memory that the items of a batch take while they wait, in bytes, without their chunks.
pub fn items_bytes(batch: &ItemBatch) -> usize {
    let trajectories: usize = batch.trajectories.iter().map(trajectory_bytes).sum();
    batch.keys.len() * size_of::<NewItem>() + trajectories
}

/// Returns the memory that an item of a writer takes while it waits, in bytes, without its chunks.
pub fn write_item_bytes(item: &replay::WriteItem) -> usize {
    size_of::<NewItem>() + item.trajectory.as_ref().map_or(0, trajectory_bytes)
}

fn trajectory_bytes(trajectory: &replay::Trajectory) -> usize {
    columns_bytes(trajectory.columns.iter().map(|column| column.slices.len()))
}

fn find_chunk(chunks: &HashMap<u64, Arc<Chunk>>, key: u64) -> Result<&Arc<Chunk>> {
    chunks.get(&key).ok_or_else(|| Error::invalid(format!("Could not find sequence chunk {key}.")))
}

/// Checks and converts an item of a writer, given its chunks.
pub fn write_item_from_wire(item: &replay::WriteItem, chunks: &HashMap<u64, Arc<Chunk>>) -> Result<NewItem> {
    let trajectory = match &item.trajectory {
        Some(trajectory) => trajectory_from_wire(trajectory, chunks)?,
        None => {
            let chunk = find_chunk(chunks, item.chunk_key)?.clone();
            match item.rows {
                0 => Trajectory::squeezed_row(chunk, item.first_row)?,
                rows => Trajectory::rows(chunk, item.first_row, rows)?,
            }
        }
    };
    let (key, priority, takes_largest) = (item.key, item.priority, item.takes_largest);
    let others = others_from_wire(item.others.as_ref());
    Ok(NewItem { key, priority, takes_largest, others, times_sampled: 0, trajectory })
}

/// Converts an item of a writer to a message. Its chunks must be closed.
pub fn write_item_to_wire(item: &WriterItem) -> replay::WriteItem {
    let mut message = replay::WriteItem {
        table: item.table.to_string(),
        key: item.key,
        priority: item.priority.value,
        takes_largest: item.priority.takes_largest,
        not_validated: !item.is_validated,
        ..replay::WriteItem::default()
    };
    if let Some((chunk, offset, length, squeeze)) = item.rows() {
        (message.chunk_key, message.first_row, message.rows) = (chunk.key, offset, if squeeze { 0 } else { length });
        return message;
    }
    let to_slice = |run: &CellRun| replay::Slice {
        chunk_key: run.chunk.key,
        column: run.index,
        offset: run.offset,
        length: run.length,
    };
    let to_column = |column: &Selection| replay::Column {
        slices: column.runs.iter().map(to_slice).collect(),
        squeeze: column.squeeze,
    };
    message.trajectory = Some(replay::Trajectory { columns: item.columns.iter().map(to_column).collect() });
    message
}
