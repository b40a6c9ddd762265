//! Core types as messages, and messages, once checked, as core types: the only place that knows both.

use crate::client::Batch;
use crate::proto::replay::{self, ItemBatch};
use crate::proto::{schema, tensorflow};
use crate::replay::{InsertGroup, Replay};
use crate::table_handle::{TableHandle, TableStatus};
use bytes::Bytes;
use prost::Message;
use reverb_core::gather::{BatchColumn, BatchLayout, Gatherer};
use reverb_core::writer::{CellRun, Selection, WriterItem};
use reverb_core::{
    BatchInfo, Chunk, Codec, DType, Encoding, EpisodeIds, Error, Layout, NewItem, RateLimiterConfig, Result,
    SelectorKind, Shape, Slice, StepRange, Trajectory, TrajectoryColumn,
};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

/// Chunks up to this size get an allocation of their own, so that none keeps the whole message alive.
const COPY_BELOW_BYTES: usize = 64 * 1024;
/// Bytes that an item may refer to, rows that it names twice counted twice.
const MAX_ITEM_BYTES: u64 = u32::MAX as u64;
/// Dimensions of an array, as NumPy has them at most.
const MAX_RANK: usize = 64;

/// Remembers the layout of the last chunk: chunks on a stream mostly have the same form, and then share it.
#[derive(Debug, Default)]
pub struct LayoutCache {
    last: Option<(Vec<replay::ColumnSpec>, u32, i32, Arc<Layout>)>,
}

impl LayoutCache {
    fn layout(&mut self, columns: Vec<replay::ColumnSpec>, rows: u32, codec: i32) -> Result<Arc<Layout>> {
        if let Some((last_columns, last_rows, last_codec, layout)) = &self.last
            && (*last_rows, *last_codec) == (rows, codec)
            && *last_columns == columns
        {
            return Ok(layout.clone());
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
            _ if delta.contains(&true) => return Err(Error::invalid("a column of differences needs a codec")),
            replay::Codec::Interleaved => layout = layout.interleaved()?,
            replay::Codec::None => {}
        }
        let layout = Arc::new(layout);
        self.last = Some((columns, rows, codec, layout.clone()));
        Ok(layout)
    }
}

fn codec_from_wire(number: i32) -> Result<replay::Codec> {
    replay::Codec::try_from(number).map_err(|_| Error::invalid(format!("no codec has the number {number}")))
}

/// A chunk as a message.
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
    }
}

/// A chunk of a request. If it is encoded, `check_growth` is asked first whether so many more bytes are allowed.
fn chunk_from_wire(
    chunk: replay::Chunk,
    layouts: &mut LayoutCache,
    check_growth: &mut impl FnMut(u64) -> Result<()>,
) -> Result<Chunk> {
    let named = |error: Error| match error {
        Error::InvalidArgument(text) => Error::invalid(format!("chunk {}: {text}", chunk.key)),
        error => error,
    };
    let layout = layouts.layout(chunk.columns, chunk.rows, chunk.codec).map_err(named)?;
    if layout.encoding().is_some() {
        check_growth((layout.size_bytes as u64).saturating_sub(chunk.data.len() as u64))?;
    }
    let data = if chunk.data.len() < COPY_BELOW_BYTES { Bytes::copy_from_slice(&chunk.data) } else { chunk.data };
    let episodes = match chunk.episode_per_row {
        false => EpisodeIds::Same(chunk.episode_id),
        true => EpisodeIds::PerRow(chunk.episode_id),
    };
    let steps = StepRange { first: chunk.first_step, last: chunk.last_step, sparse: chunk.sparse };
    Chunk::new(chunk.key, episodes, steps, layout, data)
}

/// Adds the chunks of a message to those that are known. Bytes of those that were new. `check_growth` is asked whether
/// encoded ones may take so many more bytes once decoded.
pub fn chunks_from_wire(
    chunks: Vec<replay::Chunk>,
    layouts: &mut LayoutCache,
    known: &mut HashMap<u64, Arc<Chunk>>,
    check_growth: &mut impl FnMut(u64) -> Result<()>,
) -> Result<usize> {
    let mut bytes = 0;
    for chunk in chunks {
        let chunk = Arc::new(chunk_from_wire(chunk, layouts, check_growth)?);
        if let Entry::Vacant(place) = known.entry(chunk.key) {
            bytes += chunk.size_bytes();
            place.insert(chunk);
        }
    }
    Ok(bytes)
}

/// The items of an insert.
pub fn groups_from_wire(
    replay: &Replay,
    request: replay::InsertRequest,
    layouts: &mut LayoutCache,
) -> Result<Vec<InsertGroup>> {
    let mut total_bytes = request.chunks.iter().map(|chunk| chunk.data.len() as u64).sum();
    replay.check_size(total_bytes)?;
    let mut check_growth = |bytes| {
        total_bytes += bytes;
        replay.check_size(total_bytes)
    };
    let mut chunks = HashMap::with_capacity(request.chunks.len());
    chunks_from_wire(request.chunks, layouts, &mut chunks, &mut check_growth)?;
    let to_group = |batch: ItemBatch| {
        let table = replay.table(&batch.table)?.clone();
        let items = items_from_wire(batch, &chunks)?;
        Ok(InsertGroup { table, items })
    };
    request.batches.into_iter().map(to_group).collect()
}

fn items_from_wire(batch: ItemBatch, chunks: &HashMap<u64, Arc<Chunk>>) -> Result<Vec<NewItem>> {
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
        .map(|(index, (&key, trajectory))| NewItem { key, priority: priority(index), times_sampled: 0, trajectory })
        .collect())
}

fn trajectories_from_wire(batch: &ItemBatch, chunks: &HashMap<u64, Arc<Chunk>>) -> Result<Vec<Trajectory>> {
    let count = batch.keys.len();
    if batch.trajectories.is_empty() {
        if count == 0 {
            return Ok(Vec::new());
        }
        let chunk = find_chunk(chunks, batch.chunk_key)?;
        // Checks the run once, so that a batch cannot name more rows than the chunk has.
        let rows = u32::try_from(count).ok().and_then(|count| count.checked_mul(batch.rows_per_item));
        let rows = rows.ok_or_else(|| {
            Error::invalid(format!("{count} items of {} rows are more than a chunk can have", batch.rows_per_item))
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
    let trajectory = Trajectory::columns(trajectory.columns.iter().map(to_column).collect::<Result<_>>()?)?;
    // A slice is 24 bytes and may name a whole chunk again and again.
    let size_bytes = trajectory.size_bytes();
    if size_bytes > MAX_ITEM_BYTES {
        return Err(Error::invalid(format!(
            "an item refers to {size_bytes} bytes; at most {MAX_ITEM_BYTES} are possible"
        )));
    }
    Ok(trajectory)
}

fn find_chunk(chunks: &HashMap<u64, Arc<Chunk>>, key: u64) -> Result<&Arc<Chunk>> {
    chunks.get(&key).ok_or_else(|| Error::invalid(format!("Could not find sequence chunk {key}.")))
}

/// An item of a writer, whose chunks are known.
pub fn write_item_from_wire(item: replay::WriteItem, chunks: &HashMap<u64, Arc<Chunk>>) -> Result<NewItem> {
    let trajectory = match &item.trajectory {
        Some(trajectory) => trajectory_from_wire(trajectory, chunks)?,
        None => Trajectory::rows(find_chunk(chunks, item.chunk_key)?.clone(), item.first_row, item.rows)?,
    };
    Ok(NewItem { key: item.key, priority: item.priority, times_sampled: 0, trajectory })
}

/// A writer's item as a message. Its chunks are closed.
pub fn write_item_to_wire(item: &WriterItem) -> replay::WriteItem {
    let mut message = replay::WriteItem {
        table: item.table.to_string(),
        key: item.key,
        priority: item.priority,
        not_validated: !item.is_validated,
        ..replay::WriteItem::default()
    };
    if let Some((chunk, offset, length)) = item.rows() {
        (message.chunk_key, message.first_row, message.rows) = (chunk.key, offset, length);
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

/// The beginning of a batch as a message.
pub fn batch_to_wire(gatherer: &Gatherer, table: &TableHandle, waited: Duration) -> replay::Batch {
    let items = gatherer.items();
    replay::Batch {
        keys: to_bytes(items, |item| item.key.to_le_bytes()),
        probabilities: to_bytes(items, |item| item.probability.to_le_bytes()),
        table_sizes: to_bytes(items, |item| item.table_size.to_le_bytes()),
        priorities: to_bytes(items, |item| item.priority.to_le_bytes()),
        times_sampled: to_bytes(items, |item| item.times_sampled.to_le_bytes()),
        columns: columns_to_wire(gatherer.layout()),
        signature_token: table.signature_token(),
        receipt_may_wait: !table.counts_samples(),
        waited_us: u64::try_from(waited.as_micros()).unwrap_or(u64::MAX),
    }
}

/// The beginning of a batch that was gathered, as a message.
pub fn gathered_to_wire(batch: &Batch) -> replay::Batch {
    let info = &batch.info;
    replay::Batch {
        keys: to_bytes(info.keys(), |key| key.to_le_bytes()),
        probabilities: to_bytes(info.probabilities(), |probability| probability.to_le_bytes()),
        table_sizes: to_bytes(info.table_sizes(), |size| size.to_le_bytes()),
        priorities: to_bytes(info.priorities(), |priority| priority.to_le_bytes()),
        times_sampled: to_bytes(info.times_sampled(), |times| times.to_le_bytes()),
        columns: columns_to_wire(&batch.layout),
        signature_token: batch.signature_token,
        receipt_may_wait: true,
        waited_us: 0,
    }
}

fn columns_to_wire(layout: &BatchLayout) -> Vec<replay::BatchColumn> {
    let to_column = |column: &BatchColumn| replay::BatchColumn {
        dtype: column.dtype as u32,
        shape: column.shape.iter().map(|&dim| dim as u64).collect(),
        row_lengths: column.row_lengths.clone().unwrap_or_default(),
        squeezed: column.squeezed,
        string_bytes: if column.dtype == DType::String { column.size_bytes as u64 } else { 0 },
    };
    layout.columns.iter().map(to_column).collect()
}

fn to_bytes<T, const N: usize>(numbers: &[T], to_le_bytes: impl Fn(&T) -> [u8; N]) -> Bytes {
    let numbers: Vec<[u8; N]> = numbers.iter().map(to_le_bytes).collect();
    numbers.into_flattened().into()
}

/// What a batch that arrives consists of.
///
/// # Errors
/// [`Error::DataLoss`] if the parts do not fit together.
pub fn batch_from_wire(batch: replay::Batch) -> Result<(BatchInfo, BatchLayout, u64)> {
    let infos: [&[u8]; 4] = [&batch.keys, &batch.probabilities, &batch.table_sizes, &batch.priorities];
    let info = BatchInfo::from_le_bytes(infos, &batch.times_sampled)?;
    let count = info.len();
    let to_column = |column: replay::BatchColumn| {
        let shape = shape_from_wire(&column.shape)?;
        let dtype = DType::from_number(column.dtype)?;
        let size_bytes = to_usize(column.string_bytes)?;
        let ragged = !column.row_lengths.is_empty();
        let row_lengths = ragged.then_some(column.row_lengths);
        let rows: Option<usize> = row_lengths.as_ref().map(|lengths| lengths.iter().map(|&n| n as usize).sum());
        let fits = match rows {
            Some(rows) => {
                shape.first() == Some(&rows) && row_lengths.as_ref().is_some_and(|lengths| lengths.len() == count)
            }
            None => shape.first() == Some(&count),
        };
        if !fits {
            return Err(Error::DataLoss(format!("a column of shape {shape:?} in a batch of {count}")));
        }
        Ok(BatchColumn { dtype, shape: shape.to_vec(), row_lengths, squeezed: column.squeezed, offset: 0, size_bytes })
    };
    let columns = batch.columns.into_iter().map(to_column).collect::<Result<_>>()?;
    Ok((info, BatchLayout::new(columns)?, batch.signature_token))
}

/// The reference's description of a table.
pub fn table_info(status: &TableStatus) -> schema::TableInfo {
    let info = &status.info;
    let config = &info.config;
    let RateLimiterConfig { samples_per_insert, min_size_to_sample, min_diff, max_diff } = config.rate_limiter;
    let stats = |completed: i64| Some(schema::RateLimiterCallStats { completed });
    let waited = status.waited;
    schema::TableInfo {
        name: config.name.clone(),
        sampler_options: Some(selector_options(&config.sampler)),
        remover_options: Some(selector_options(&config.remover)),
        max_size: config.max_size as i64,
        max_times_sampled: config.max_times_sampled,
        rate_limiter_info: Some(schema::RateLimiterInfo {
            samples_per_insert,
            min_diff,
            max_diff,
            min_size_to_sample,
            insert_stats: stats(info.inserts),
            sample_stats: stats(info.samples),
        }),
        // The bytes were made by the binding from a checked nest, so they decode.
        signature: config
            .signature
            .as_ref()
            .and_then(|signature| tensorflow::StructuredValue::decode(signature.structure.clone()).ok()),
        current_size: info.current_size as i64,
        num_episodes: info.num_episodes as i64,
        num_deleted_episodes: info.num_deleted_episodes as i64,
        num_unique_samples: info.num_unique_samples as i64,
        table_worker_time: Some(schema::TableWorkerTime {
            // There is no worker thread: callers serve the table themselves. What remains is who waited for whom.
            sleeping_ms: waited.alive_ms as i64,
            waiting_for_sampling_ms: waited.inserts_ms as i64,
            waiting_for_inserts_ms: waited.samples_ms as i64,
            ..schema::TableWorkerTime::default()
        }),
    }
}

/// A selector as the reference describes it.
pub fn selector_options(kind: &SelectorKind) -> schema::KeyDistributionOptions {
    use schema::key_distribution_options::{Distribution, Heap, Prioritized};
    let distribution = match *kind {
        SelectorKind::Fifo => Distribution::Fifo(true),
        SelectorKind::Lifo => Distribution::Lifo(true),
        SelectorKind::Uniform => Distribution::Uniform(true),
        SelectorKind::Prioritized { priority_exponent } => Distribution::Prioritized(Prioritized { priority_exponent }),
        SelectorKind::MinHeap => Distribution::Heap(Heap { min_heap: true }),
        SelectorKind::MaxHeap => Distribution::Heap(Heap { min_heap: false }),
    };
    schema::KeyDistributionOptions { distribution: Some(distribution), is_deterministic: kind.is_deterministic() }
}

/// A table's status as a message.
pub fn status_to_wire(status: &TableStatus) -> replay::TableStatus {
    replay::TableStatus {
        info: Some(table_info(status)),
        size_bytes: status.info.bytes,
        max_bytes: status.info.config.max_bytes.unwrap_or(0),
        waiting_inserts: status.waiting_inserts as u64,
        waiting_samples: status.waiting_samples as u64,
        insert_wait: status.insert_wait.clone().unwrap_or_default(),
        sample_wait: status.sample_wait.clone().unwrap_or_default(),
        undelivered_samples: status.undelivered,
    }
}

fn shape_from_wire(dims: &[u64]) -> Result<Shape> {
    if dims.len() > MAX_RANK {
        return Err(Error::invalid(format!("a shape of {} dimensions; at most {MAX_RANK} are possible", dims.len())));
    }
    dims.iter().map(|&dim| to_usize(dim)).collect()
}

/// Each string has an end of four bytes in the region, so its size bounds their number.
fn check_string_count(shape: &[usize], rows: u32, string_bytes: usize) -> Result<()> {
    let count = shape.iter().try_fold(rows as usize, |count, &dim| count.checked_mul(dim));
    match count {
        Some(count) if count <= string_bytes / 4 => Ok(()),
        _ => Err(Error::invalid(format!(
            "{rows} rows of strings of shape {shape:?} do not fit into {string_bytes} bytes"
        ))),
    }
}

fn to_usize(number: u64) -> Result<usize> {
    usize::try_from(number).map_err(|_| Error::invalid(format!("{number} does not fit this machine's address space")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(keys: &'static [u8], times_sampled: &'static [u8]) -> replay::Batch {
        let numbers = || Bytes::from_static(&[0; 16]);
        replay::Batch {
            keys: Bytes::from_static(keys),
            probabilities: numbers(),
            table_sizes: numbers(),
            priorities: numbers(),
            times_sampled: Bytes::from_static(times_sampled),
            ..replay::Batch::default()
        }
    }

    #[test]
    fn numbers_of_a_batch_that_do_not_fit_together_are_data_loss() {
        assert_eq!(batch_from_wire(header(&[7; 16], &[1; 8])).unwrap().0.times_sampled(), [0x0101_0101; 2]);
        for (keys, times_sampled) in [(&[7; 15][..], &[1; 8][..]), (&[7; 16], &[1; 7]), (&[7; 8], &[1; 8])] {
            let result = batch_from_wire(header(keys, times_sampled));
            assert!(matches!(result, Err(Error::DataLoss(_))), "{result:?}");
        }
    }
}
