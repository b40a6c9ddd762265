//! Core types as messages, and messages, once checked, as core types: the only place that knows both.

use crate::proto::replay::{self, ItemBatch};
use crate::proto::{schema, tensorflow};
use crate::replay::{InsertGroup, Replay};
use crate::table_handle::TableStatus;
use bytes::Bytes;
use prost::Message;
use reverb_core::gather::{BatchColumn, BatchLayout, Gatherer};
use reverb_core::{
    Chunk, DType, Drawn, EpisodeIds, Error, Layout, NewItem, RateLimiterConfig, Result, SelectorKind, Shape, Slice,
    StepRange, Trajectory, TrajectoryColumn,
};
use std::collections::HashMap;
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
    last: Option<(Vec<replay::ColumnSpec>, u32, Arc<Layout>)>,
}

impl LayoutCache {
    fn layout(&mut self, columns: Vec<replay::ColumnSpec>, rows: u32) -> Result<Arc<Layout>> {
        if let Some((last_columns, last_rows, layout)) = &self.last
            && *last_rows == rows
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
        let layout = Arc::new(Layout::new(rows as usize, specs.collect::<Result<Vec<_>>>()?)?);
        self.last = Some((columns, rows, layout.clone()));
        Ok(layout)
    }
}

/// A chunk as a message.
pub fn chunk_to_wire(chunk: &Chunk) -> replay::Chunk {
    let columns = chunk.columns().iter().map(|column| replay::ColumnSpec {
        dtype: column.dtype as u32,
        shape: column.shape.iter().map(|&dim| dim as u64).collect(),
        string_bytes: if column.dtype == DType::String { column.size_bytes as u64 } else { 0 },
    });
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
    }
}

fn chunk_from_wire(chunk: replay::Chunk, layouts: &mut LayoutCache) -> Result<Chunk> {
    let layout = layouts.layout(chunk.columns, chunk.rows)?;
    let data = if chunk.data.len() < COPY_BELOW_BYTES { Bytes::copy_from_slice(&chunk.data) } else { chunk.data };
    let episodes = match chunk.episode_per_row {
        false => EpisodeIds::Same(chunk.episode_id),
        true => EpisodeIds::PerRow(chunk.episode_id),
    };
    let steps = StepRange { first: chunk.first_step, last: chunk.last_step, sparse: chunk.sparse };
    Chunk::new(chunk.key, episodes, steps, layout, data)
}

/// The items of an insert.
pub fn groups_from_wire(
    replay: &Replay,
    request: replay::InsertRequest,
    layouts: &mut LayoutCache,
) -> Result<Vec<InsertGroup>> {
    replay.check_size(request.chunks.iter().map(|chunk| chunk.data.len() as u64).sum())?;
    let mut chunks = HashMap::with_capacity(request.chunks.len());
    for chunk in request.chunks {
        let chunk = Arc::new(chunk_from_wire(chunk, layouts)?);
        chunks.entry(chunk.key).or_insert(chunk);
    }
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
    let find =
        |key: u64| chunks.get(&key).ok_or_else(|| Error::invalid(format!("Could not find sequence chunk {key}.")));
    if batch.trajectories.is_empty() {
        if count == 0 {
            return Ok(Vec::new());
        }
        let chunk = find(batch.chunk_key)?;
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
    let to_slice = |slice: &replay::Slice| {
        let chunk = find(slice.chunk_key)?.clone();
        Ok(Slice { chunk, column: slice.column, offset: slice.offset, length: slice.length })
    };
    let to_column = |column: &replay::Column| {
        let slices = column.slices.iter().map(to_slice).collect::<Result<_>>()?;
        Ok(TrajectoryColumn { slices, squeeze: column.squeeze })
    };
    let to_trajectory = |trajectory: &replay::Trajectory| {
        let trajectory = Trajectory::columns(trajectory.columns.iter().map(to_column).collect::<Result<_>>()?)?;
        // A slice is 24 bytes and may name a whole chunk again and again.
        let size_bytes = trajectory.size_bytes();
        if size_bytes > MAX_ITEM_BYTES {
            return Err(Error::invalid(format!(
                "an item refers to {size_bytes} bytes; at most {MAX_ITEM_BYTES} are possible"
            )));
        }
        Ok(trajectory)
    };
    batch.trajectories.iter().map(to_trajectory).collect()
}

/// The beginning of a batch as a message.
pub fn batch_to_wire(gatherer: &Gatherer, signature_token: u64, waited: Duration) -> replay::Batch {
    let items = gatherer.items();
    let columns = gatherer.layout().columns.iter().map(|column| replay::BatchColumn {
        dtype: column.dtype as u32,
        shape: column.shape.iter().map(|&dim| dim as u64).collect(),
        row_lengths: column.row_lengths.clone().unwrap_or_default(),
        squeezed: column.squeezed,
        string_bytes: if column.dtype == DType::String { column.size_bytes as u64 } else { 0 },
    });
    replay::Batch {
        keys: items.iter().map(|item| item.key).collect(),
        probabilities: items.iter().map(|item| item.probability).collect(),
        table_sizes: items.iter().map(|item| item.table_size as i64).collect(),
        priorities: items.iter().map(|item| item.priority).collect(),
        times_sampled: items.iter().map(|item| item.times_sampled).collect(),
        columns: columns.collect(),
        signature_token,
        waited_us: u64::try_from(waited.as_micros()).unwrap_or(u64::MAX),
    }
}

/// What is known of each sample of a batch, column by column.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct BatchInfo {
    /// Item keys.
    pub keys: Vec<u64>,
    /// Probability each draw had.
    pub probabilities: Vec<f64>,
    /// Items in the table at each draw.
    pub table_sizes: Vec<i64>,
    /// Priorities.
    pub priorities: Vec<f64>,
    /// How often each item was sampled, this time included.
    pub times_sampled: Vec<i32>,
}

impl BatchInfo {
    /// Of drawn items.
    pub fn of(items: &[Drawn]) -> Self {
        Self {
            keys: items.iter().map(|item| item.key).collect(),
            probabilities: items.iter().map(|item| item.probability).collect(),
            table_sizes: items.iter().map(|item| item.table_size as i64).collect(),
            priorities: items.iter().map(|item| item.priority).collect(),
            times_sampled: items.iter().map(|item| item.times_sampled).collect(),
        }
    }
}

/// What a batch that arrives consists of.
///
/// # Errors
/// [`Error::DataLoss`] if the parts do not fit together.
pub fn batch_from_wire(batch: replay::Batch) -> Result<(BatchInfo, BatchLayout, u64)> {
    let count = batch.keys.len();
    let lengths =
        [batch.probabilities.len(), batch.table_sizes.len(), batch.priorities.len(), batch.times_sampled.len()];
    if lengths.iter().any(|&length| length != count) {
        return Err(Error::DataLoss(format!("a batch of {count} keys has {lengths:?} other values")));
    }
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
    let info = BatchInfo {
        keys: batch.keys,
        probabilities: batch.probabilities,
        table_sizes: batch.table_sizes,
        priorities: batch.priorities,
        times_sampled: batch.times_sampled,
    };
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

fn selector_options(kind: &SelectorKind) -> schema::KeyDistributionOptions {
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
