//! The layout of the merged batch: that of a batch of the same items from one table.

use super::source::{Count, Run, Source};
use crate::gather::{BatchColumn, END_BYTES};
use crate::tensor::shape_text;
use crate::{DType, Error, RaceWinner, Result};
use std::iter;

/// A number that each winner has.
enum Counts {
    /// The same for all.
    Same(usize),
    /// By winner: they differ.
    Each(Vec<usize>),
}

impl Counts {
    fn of<'a>(sources: &[Option<Source<'a>>], winners: &[RaceWinner], count: fn(&Source<'a>) -> Count<'a>) -> Self {
        let mut counts = sources.iter().flatten().map(count);
        if let Some(Count::Same(first)) = counts.next()
            && counts.all(|other| matches!(other, Count::Same(other) if other == first))
        {
            return Self::Same(first);
        }
        let of_winner = |winner: &RaceWinner| {
            let source = sources[winner.shard].as_ref().expect("batches with winners have sources");
            count(source).of(winner.index)
        };
        let counts: Vec<_> = winners.iter().map(of_winner).collect();
        if counts.iter().all(|count| *count == counts[0]) { Self::Same(counts[0]) } else { Self::Each(counts) }
    }
}

/// Plans a column of the merged batch.
///
/// # Errors
/// [`Error::InvalidArgument`] if one table would not stack the winners.
pub(super) fn plan_column(
    index: usize,
    sources: &[Option<Source<'_>>],
    winners: &[RaceWinner],
    runs: &[Run],
    squeeze_time: bool,
) -> Result<BatchColumn> {
    let first = runs[0].source(sources);
    sources.iter().flatten().try_for_each(|other| check_fits(index, first, other))?;
    let &Source { dtype, squeezed, other_axes, .. } = first;
    let others = || other_axes.into_iter().flatten().copied();
    let row = || other_axes.map(|_| first.first_axis.of(winners[0].index)).into_iter().chain(others());
    let first_axes = Counts::of(sources, winners, |source| source.first_axis);
    let rows = Counts::of(sources, winners, |source| source.rows);
    let (shape, row_lengths, has_open_rows) = match (first_axes, rows) {
        (Counts::Each(lengths), rows) => {
            check_single_rows(index, sources, winners, &rows)?;
            (iter::once(sum(&lengths)).chain(others()).collect(), Some(lengths), true)
        }
        (Counts::Same(_), Counts::Each(lengths)) => {
            (iter::once(sum(&lengths)).chain(row()).collect(), Some(lengths), false)
        }
        (Counts::Same(_), Counts::Same(rows)) => {
            let time = (!(squeezed || squeeze_time && rows == 1)).then_some(rows);
            (iter::once(winners.len()).chain(time).chain(row()).collect(), None, false)
        }
    };
    let row_lengths = row_lengths.map(|lengths| to_u32(index, lengths)).transpose()?;
    let size_bytes = if dtype == DType::String { string_bytes(index, sources, runs)? } else { 0 };
    Ok(BatchColumn { dtype, shape, row_lengths, has_open_rows, squeezed, offset: 0, size_bytes })
}

fn sum(lengths: &[usize]) -> usize {
    lengths.iter().fold(0, |sum, &length| sum.saturating_add(length))
}

fn to_u32(index: usize, lengths: Vec<usize>) -> Result<Vec<u32>> {
    let convert = |length| {
        let too_long = |_| refused(&format!("column {index} has {length} rows in one item"));
        u32::try_from(length).map_err(too_long)
    };
    lengths.into_iter().map(convert).collect()
}

/// Whether rows of a column of two shards can be in one batch.
fn check_fits(index: usize, expected: &Source<'_>, got: &Source<'_>) -> Result<()> {
    let differs = |a: &str, b: &str| {
        let (first, other) = (expected.shard, got.shard);
        Err(refused(&format!("column {index}: expected {a}, as from shard {first}, got {b} from shard {other}")))
    };
    if expected.dtype != got.dtype {
        return differs(&format!("dtype {}", expected.dtype), &format!("dtype {}", got.dtype));
    }
    if expected.squeezed != got.squeezed {
        let axis = |squeezed| if squeezed { "no time axis" } else { "a time axis" };
        return differs(axis(expected.squeezed), axis(got.squeezed));
    }
    if expected.other_axes != got.other_axes {
        return differs(&rows_text(expected), &rows_text(got));
    }
    Ok(())
}

/// The shape of the rows of a source, with `?` for a length that differs.
fn rows_text(source: &Source<'_>) -> String {
    let Some(others) = source.other_axes else { return "rows of shape []".into() };
    match source.first_axis {
        Count::Same(first) => {
            let shape: Vec<_> = iter::once(first).chain(others.iter().copied()).collect();
            format!("rows of shape {}", shape_text(&shape))
        }
        Count::Each(_) => {
            let axes = iter::once("?".into()).chain(others.iter().map(ToString::to_string));
            format!("rows of shape [{}]", axes.collect::<Vec<_>>().join(","))
        }
    }
}

/// Checks that items whose rows differ in length have one row each.
fn check_single_rows(
    index: usize,
    sources: &[Option<Source<'_>>],
    winners: &[RaceWinner],
    rows: &Counts,
) -> Result<()> {
    let (place, rows) = match rows {
        Counts::Same(1) => return Ok(()),
        &Counts::Same(rows) => (0, rows),
        Counts::Each(each) => {
            let several = |(_, rows): &(usize, &usize)| **rows != 1;
            let Some((place, &rows)) = each.iter().enumerate().find(several) else { return Ok(()) };
            (place, rows)
        }
    };
    let shard = sources[winners[place].shard].as_ref().map_or(0, |source| source.shard);
    Err(refused(&format!(
        "column {index}: expected one row, since rows of the items differ in length, got {rows} rows in an item from \
         shard {shard}"
    )))
}

/// Size in bytes of a column of strings and their ends.
fn string_bytes(index: usize, sources: &[Option<Source<'_>>], runs: &[Run]) -> Result<usize> {
    let size = |run: &Run| {
        let source = run.source(sources);
        END_BYTES * source.num_elements(run.first, run.count) + source.bytes(run.first, run.count).len()
    };
    let size_bytes = END_BYTES + runs.iter().map(size).sum::<usize>();
    if size_bytes > u32::MAX as usize {
        // The ends of strings are 32-bit numbers.
        let most = u32::MAX;
        return Err(refused(&format!(
            "column {index} of strings has {size_bytes} bytes, more than the maximum of {most}"
        )));
    }
    Ok(size_bytes)
}

fn refused(reason: &str) -> Error {
    Error::invalid(format!("items of shards cannot be stacked into a batch: {reason}"))
}
