//! Batches of rows whose chunks share a layout.

use super::layout::{BatchColumn, BatchLayout, batch_shape};
use super::rows::{ReadableRows, copy_columns};
use crate::{Buffer, Column};

/// Copies rows of the same layout and number, none of strings, into a batch. Reuses the layout `used` of an earlier
/// batch if it fits. `None` if there are no rows.
pub(crate) fn copy_batch(
    rows: &[ReadableRows<'_>],
    squeeze_time: bool,
    used: Option<BatchLayout>,
) -> Option<(BatchLayout, Buffer)> {
    let first = rows.first()?;
    let time = (first.length, !(first.squeeze || squeeze_time && first.length == 1));
    let is_same = |(column, used): (&Column, &BatchColumn)| {
        let shape = || batch_shape(rows.len(), time, column).eq(used.shape.iter().copied());
        column.dtype == used.dtype && used.row_lengths.is_none() && used.squeezed == first.squeeze && shape()
    };
    let fits = |used: &BatchLayout| {
        used.columns.len() == first.columns().len() && first.columns().iter().zip(&used.columns).all(is_same)
    };
    let to_column = |column: &Column| {
        let shape = batch_shape(rows.len(), time, column).collect();
        BatchColumn {
            dtype: column.dtype,
            shape,
            row_lengths: None,
            has_open_rows: false,
            squeezed: first.squeeze,
            offset: 0,
            size_bytes: 0,
        }
    };
    let layout = match used.filter(fits) {
        Some(used) => used,
        None => BatchLayout::new(first.columns().iter().map(to_column).collect()).ok()?,
    };
    let mut buffer = Buffer::new(layout.size_bytes);
    copy_columns(buffer.as_uninit_mut(), &layout, rows);
    Some((layout, buffer))
}
