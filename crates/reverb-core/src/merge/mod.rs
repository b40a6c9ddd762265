//! Makes one batch of the draws of several shards: the batch that one table with these items would have given.
//!
//! Shards that drew the same batch may describe its columns differently: what is ragged at one shard is fixed at another
//! where all items happen to have the same length. So the layout is planned anew from the rows that count.

mod plan;
mod source;

use crate::batch_info::InfoColumns;
use crate::copy::copy;
use crate::gather::{BatchColumn, BatchLayout};
use crate::{BatchInfo, Buffer, CopiedBatch, Error, RaceWinner, Result};
use plan::plan_column;
use source::{Run, Source};
use std::mem::MaybeUninit;

/// A complete batch of one shard, drawn without `squeeze_time`: whether a time axis was dropped cannot be seen in a
/// layout.
#[derive(Debug)]
pub struct ShardBatch {
    /// The id of the shard, for errors.
    pub shard: u32,
    /// The batch. All bytes of its buffer were written.
    pub batch: CopiedBatch,
}

/// Makes one batch of the winners of a race, in their order. [`RaceWinner::shard`] is a position in `batches`; several
/// of them may be of one shard, from different rounds. Probabilities and table sizes are those of the winners. If
/// `squeeze_time` is set, a time axis of length 1 in every item is dropped.
///
/// Each row is copied once, and none if the winners are all rows of one batch in their order.
///
/// # Errors
/// - [`Error::InvalidArgument`] if one table would not stack these items, or if there is no row for a winner.
/// - [`Error::DataLoss`] if the layout of a batch does not fit its bytes.
/// - [`Error::ResourceExhausted`] if there is not enough memory.
pub fn merge_batches(mut batches: Vec<ShardBatch>, winners: &[RaceWinner], squeeze_time: bool) -> Result<CopiedBatch> {
    let runs = runs(&batches, winners)?;
    let mut merged = match runs[..] {
        [] => CopiedBatch { info: BatchInfo::zeros(0), layout: BatchLayout::default(), buffer: Buffer::new(0) },
        [Run { batch, first: 0, count }] if count == batches[batch].batch.info.len() => {
            let mut whole = batches.swap_remove(batch).batch;
            if squeeze_time {
                whole.layout.columns.iter_mut().for_each(squeeze);
            }
            whole
        }
        _ => copy_runs(&batches, winners, &runs, squeeze_time)?,
    };
    let InfoColumns { probabilities, table_sizes, .. } = merged.info.columns_mut();
    for (place, winner) in winners.iter().enumerate() {
        (probabilities[place], table_sizes[place]) = (winner.probability, winner.table_size);
    }
    Ok(merged)
}

fn runs(batches: &[ShardBatch], winners: &[RaceWinner]) -> Result<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::with_capacity(winners.len());
    for &RaceWinner { shard: batch, index, .. } in winners {
        let rows = batches.get(batch).map_or(0, |batch| batch.batch.info.len());
        if index >= rows {
            return Err(Error::invalid(format!(
                "expected row {index} of batch {batch} of the {} batches of shards, got {rows} rows",
                batches.len()
            )));
        }
        match runs.last_mut() {
            Some(run) if run.batch == batch && run.first + run.count == index => run.count += 1,
            _ => runs.push(Run { batch, first: index, count: 1 }),
        }
    }
    Ok(runs)
}

/// Drops a time axis of length 1.
fn squeeze(column: &mut BatchColumn) {
    if !column.squeezed && column.row_lengths.is_none() && column.shape.get(1) == Some(&1) {
        column.shape.remove(1);
    }
}

/// Copies the winners, of which there is at least one, into a batch of their own.
fn copy_runs<'a>(
    batches: &'a [ShardBatch],
    winners: &[RaceWinner],
    runs: &[Run],
    squeeze_time: bool,
) -> Result<CopiedBatch> {
    let mut is_used = vec![false; batches.len()];
    runs.iter().for_each(|run| is_used[run.batch] = true);
    let first = &batches[runs[0].batch];
    let count = first.batch.layout.columns.len();
    let used = || batches.iter().zip(&is_used).map(|(batch, is_used)| is_used.then_some(batch));
    if let Some(other) = used().flatten().find(|other| other.batch.layout.columns.len() != count) {
        let got = other.batch.layout.columns.len();
        return Err(Error::invalid(format!(
            "items of shards cannot be stacked into a batch: expected {count} columns, as from shard {}, got {got} from \
             shard {}",
            first.shard, other.shard
        )));
    }
    // For each column the sources of all batches; none of a batch without a winner.
    let source = |index, batch: Option<&'a ShardBatch>| {
        batch.map(|ShardBatch { shard, batch }| Source::new(*shard, batch, index)).transpose()
    };
    let columns = (0..count).map(|index| used().map(|batch| source(index, batch)).collect());
    let columns: Vec<Vec<Option<Source<'_>>>> = columns.collect::<Result<_>>()?;
    let planned = columns.iter().enumerate();
    let planned = planned.map(|(index, sources)| plan_column(index, sources, winners, runs, squeeze_time));
    let layout = BatchLayout::new(planned.collect::<Result<_>>()?)?;
    let mut buffer = Buffer::try_new(layout.size_bytes).ok_or_else(|| {
        Error::ResourceExhausted(format!("cannot allocate memory for a batch of {} bytes", layout.size_bytes))
    })?;
    let (target, mut end) = (buffer.as_uninit_mut(), 0);
    for (column, sources) in layout.columns.iter().zip(&columns) {
        target[end..column.offset].fill(MaybeUninit::new(0));
        end = column.offset + column.size_bytes;
        copy_column(&mut target[column.offset..end], sources, runs);
    }
    let rows = winners.iter().map(|winner| (&batches[winner.shard].batch.info, winner.index));
    Ok(CopiedBatch { info: BatchInfo::of_rows(rows), layout, buffer })
}

/// Copies all runs of a column one after another.
fn copy_column(mut target: &mut [MaybeUninit<u8>], sources: &[Option<Source<'_>>], runs: &[Run]) {
    let mut put = |bytes: &[u8]| {
        let (head, rest) = std::mem::take(&mut target).split_at_mut(bytes.len());
        copy(head, bytes);
        target = rest;
    };
    if runs[0].source(sources).has_strings() {
        let mut before = 0_u32;
        put(&before.to_le_bytes());
        for run in runs {
            let mut end = before;
            for more in run.source(sources).ends(run.first, run.count) {
                end = before + more;
                put(&end.to_le_bytes());
            }
            before = end;
        }
    }
    runs.iter().for_each(|run| put(run.source(sources).bytes(run.first, run.count)));
    debug_assert!(target.is_empty(), "the plan counts the bytes that are copied");
}
