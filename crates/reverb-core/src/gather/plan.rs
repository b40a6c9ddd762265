//! Plans of batches: whether items can be stacked, and the layout of their batch.

use super::columns::{column_of, text};
use super::cursor::END_BYTES;
use super::layout::{BatchColumn, BatchLayout, batch_shape};
use super::rows::Uniformity;
use crate::tensor::shape_text;
use crate::{DType, Drawn, Result, Trajectory};
use std::sync::Arc;

/// The first item that cannot be stacked on the first one, and the reason.
#[inline]
pub(super) fn first_mismatch(items: &[Drawn]) -> Option<(usize, String)> {
    let first = &items.first()?.trajectory;
    for (index, item) in items.iter().enumerate().skip(1) {
        let item = &item.trajectory;
        if let (Trajectory::Rows { chunk: a, .. }, Trajectory::Rows { chunk: b, .. }) = (first, item)
            && Arc::ptr_eq(a.layout(), b.layout())
        {
            continue;
        }
        if let Some(reason) = mismatch(first, item) {
            return Some((index, reason));
        }
    }
    None
}

#[inline]
fn mismatch(first: &Trajectory, item: &Trajectory) -> Option<String> {
    let (expected, got) = (first.num_columns(), item.num_columns());
    if expected != got {
        return Some(format!("it has {got} columns, but the first item has {expected}"));
    }
    (0..got).find_map(|index| {
        let (a, _, a_squeezed) = column_of(first, index);
        let (b, _, b_squeezed) = column_of(item, index);
        if a.dtype != b.dtype {
            Some(format!("column {index} has dtype {}, but dtype {} in the first item", b.dtype, a.dtype))
        } else if a.shape != b.shape {
            let (a, b) = (shape_text(&a.shape), shape_text(&b.shape));
            Some(format!("rows of column {index} have shape {b}, but shape {a} in the first item"))
        } else if a_squeezed != b_squeezed {
            Some(format!("column {index} has a time axis in only one of this item and the first item"))
        } else {
            None
        }
    })
}

pub(super) fn plan(items: &[Drawn], uniformity: Uniformity, squeeze_time: bool) -> Result<BatchLayout> {
    let Some(first) = items.first() else { return Ok(BatchLayout::default()) };
    let columns = (0..first.trajectory.num_columns()).map(|index| plan_column(items, index, uniformity, squeeze_time));
    BatchLayout::new(columns.collect())
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
    BatchColumn { dtype: column.dtype, shape, row_lengths, squeezed, offset: 0, size_bytes }
}

/// Size in bytes of a column of strings and their ends.
fn string_bytes(items: &[Drawn], index: usize) -> usize {
    let slices = items.iter().flat_map(|item| (0..).map_while(move |slice| text(&item.trajectory, index, slice)));
    END_BYTES + slices.map(|text| END_BYTES * text.len() + text.bytes.len()).sum::<usize>()
}
