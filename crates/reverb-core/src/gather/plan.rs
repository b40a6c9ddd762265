//! Plans of batches: whether items can be stacked, and the layout of their batch.

use super::columns::{column_of, text};
use super::cursor::END_BYTES;
use super::layout::{BatchColumn, BatchLayout, batch_shape};
use super::rows::Uniformity;
use crate::tensor::{differ_in_first_axis, shape_text};
use crate::{Column, DType, Drawn, Error, Result, Trajectory};
use std::sync::Arc;

/// Whether rows of a column differ in their shapes, so that they are not stacked but lie one after another.
///
/// # Errors
/// The first item that cannot be stacked on the first one, and the reason.
#[inline]
pub(super) fn has_open_rows(items: &[Drawn]) -> std::result::Result<bool, (usize, String)> {
    let Some(first) = items.first() else { return Ok(false) };
    let (first, mut has_open) = (&first.trajectory, false);
    for (index, item) in items.iter().enumerate().skip(1) {
        let item = &item.trajectory;
        if let (Trajectory::Rows { chunk: a, squeeze, .. }, Trajectory::Rows { chunk: b, squeeze: other, .. }) =
            (first, item)
            && Arc::ptr_eq(a.layout(), b.layout())
            && squeeze == other
        {
            continue;
        }
        has_open |= differs_in_row_length(first, item).map_err(|reason| (index, reason))?;
    }
    if has_open {
        check_open_rows(items)?;
    }
    Ok(has_open)
}

/// Checks that the items have one row in each column whose rows differ in length.
#[cold]
fn check_open_rows(items: &[Drawn]) -> std::result::Result<(), (usize, String)> {
    let open = (0..items[0].trajectory.num_columns()).filter(|&index| is_open(items, index));
    for column in open {
        let several = |(_, item): &(usize, &Drawn)| column_of(&item.trajectory, column).1 > 1;
        if let Some((index, item)) = items.iter().enumerate().find(several) {
            let (Column { shape, .. }, rows, _) = column_of(&item.trajectory, column);
            return Err((index, several_open_rows(column, rows, shape)));
        }
    }
    Ok(())
}

fn several_open_rows(column: usize, rows: usize, shape: &[usize]) -> String {
    format!(
        "column {column} has {rows} rows of shape {}, and rows of other items have another length; only items of one row \
         may differ in it",
        shape_text(shape)
    )
}

/// Whether rows of a column differ in their shapes. Items of such columns have passed [`has_open_rows`].
fn is_open(items: &[Drawn], index: usize) -> bool {
    let first = &column_of(&items[0].trajectory, index).0.shape;
    items.iter().any(|item| column_of(&item.trajectory, index).0.shape != *first)
}

/// Whether rows of a column of two items differ in the length of their first axis.
///
/// # Errors
/// The reason why the items cannot be stacked.
#[inline]
fn differs_in_row_length(first: &Trajectory, item: &Trajectory) -> std::result::Result<bool, String> {
    let (expected, got) = (first.num_columns(), item.num_columns());
    if expected != got {
        return Err(format!("it has {got} columns, but the first item has {expected}"));
    }
    let mut differs = false;
    for index in 0..got {
        let (a, _, a_squeezed) = column_of(first, index);
        let (b, _, b_squeezed) = column_of(item, index);
        if a.dtype != b.dtype {
            return Err(format!("column {index} has dtype {}, but dtype {} in the first item", b.dtype, a.dtype));
        }
        if a_squeezed != b_squeezed {
            return Err(format!("column {index} has a time axis in only one of this item and the first item"));
        }
        if a.shape != b.shape {
            if !differ_in_first_axis(&a.shape, &b.shape) {
                let (a, b) = (shape_text(&a.shape), shape_text(&b.shape));
                return Err(format!("rows of column {index} have shape {b}, but shape {a} in the first item"));
            }
            differs = true;
        }
    }
    Ok(differs)
}

pub(super) fn plan(
    items: &[Drawn],
    uniformity: Uniformity,
    has_open_rows: bool,
    squeeze_time: bool,
) -> Result<BatchLayout> {
    let Some(first) = items.first() else { return Ok(BatchLayout::default()) };
    let columns = 0..first.trajectory.num_columns();
    let column = |index| plan_column(items, index, uniformity, squeeze_time);
    if !has_open_rows {
        return BatchLayout::new(columns.map(column).collect());
    }
    let planned = columns.map(|index| match is_open(items, index) {
        true => plan_open_column(items, index),
        false => Ok(column(index)),
    });
    BatchLayout::new(planned.collect::<Result<_>>()?)
}

/// A column of items of one row each, whose rows differ in the length of their first axis.
fn plan_open_column(items: &[Drawn], index: usize) -> Result<BatchColumn> {
    let (column, _, squeezed) = column_of(&items[0].trajectory, index);
    let length = |item: &Drawn| {
        let length = column_of(&item.trajectory, index).0.shape[0];
        u32::try_from(length).map_err(|_| Error::invalid(format!("column {index} has a row of length {length}")))
    };
    let lengths = items.iter().map(length).collect::<Result<Vec<_>>>()?;
    let mut shape = column.shape.to_vec();
    shape[0] = lengths.iter().map(|&length| length as usize).sum();
    let size_bytes = if column.dtype == DType::String { string_bytes(items, index) } else { 0 };
    let row_lengths = Some(lengths);
    Ok(BatchColumn { dtype: column.dtype, shape, row_lengths, has_open_rows: true, squeezed, offset: 0, size_bytes })
}

fn plan_column(items: &[Drawn], index: usize, uniformity: Uniformity, squeeze_time: bool) -> BatchColumn {
    let (column, length, squeezed) = column_of(&items[0].trajectory, index);
    let rows = |item: &Drawn| match &item.trajectory {
        Trajectory::Rows { length, .. } => *length as usize,
        trajectory => column_of(trajectory, index).1,
    };
    let ragged = uniformity == Uniformity::Mixed && items.iter().any(|item| rows(item) != length);
    let row_lengths = ragged.then(|| items.iter().map(|item| rows(item) as u32).collect::<Vec<_>>());
    let shape = match &row_lengths {
        Some(lengths) => batch_shape(lengths.iter().map(|&n| n as usize).sum(), (0, false), column).collect(),
        None => batch_shape(items.len(), (length, !(squeezed || squeeze_time && length == 1)), column).collect(),
    };
    let size_bytes = if column.dtype == DType::String { string_bytes(items, index) } else { 0 };
    BatchColumn { dtype: column.dtype, shape, row_lengths, has_open_rows: false, squeezed, offset: 0, size_bytes }
}

/// Size in bytes of a column of strings and their ends.
fn string_bytes(items: &[Drawn], index: usize) -> usize {
    let slices = items.iter().flat_map(|item| (0..).map_while(move |slice| text(&item.trajectory, index, slice)));
    END_BYTES + slices.map(|text| END_BYTES * text.len() + text.bytes.len()).sum::<usize>()
}
