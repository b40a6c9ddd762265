//! Chunks whose rows lie whole, column beside column.
//!
//! Of a chunk by columns, a single row is as many pieces of memory as there are columns. Who draws such rows from a large
//! table at random waits for each of them.

use crate::copy::{by_size, copy};
use crate::layout::Column;
use crate::{DType, Error, Layout, Result};
use std::mem::MaybeUninit;

/// Gives each column its place in a row, without a gap.
///
/// # Errors
/// [`Error::InvalidArgument`] if there are strings: they have no place of a fixed size.
pub(crate) fn lay_out(columns: &mut [Column]) -> Result<()> {
    if let Some(index) = columns.iter().position(|column| column.dtype == DType::String) {
        return Err(Error::invalid(format!("column {index}, of strings, cannot be interleaved")));
    }
    let stride = columns.iter().map(|column| column.row_bytes).sum();
    let mut start = 0;
    for column in columns {
        (column.start, column.stride) = (start, stride);
        start += column.row_bytes;
    }
    Ok(())
}

/// The bytes of a chunk by columns, as `layout` interleaves them.
pub(crate) fn encode(layout: &Layout, data: &[u8]) -> Vec<u8> {
    let columns = layout.columns.iter().map(|column| &data[column.offset..column.offset + column.size_bytes]);
    layout.assemble(&columns.collect::<Vec<_>>())
}

/// The reverse of [`encode`].
pub(crate) fn decode(layout: &Layout, data: &[u8], target: &mut [u8]) {
    let mut end = 0;
    for column in &layout.columns {
        target[end..column.offset].fill(0);
        end = column.offset + column.size_bytes;
        if column.row_bytes == 0 {
            continue;
        }
        let region = &mut target[column.offset..end];
        let rows = data[column.start..].chunks(column.stride);
        for (target, row) in region.chunks_exact_mut(column.row_bytes).zip(rows) {
            target.copy_from_slice(&row[..column.row_bytes]);
        }
    }
}

/// Puts the rows of a column into a chunk.
pub(crate) fn put(chunk: &mut [MaybeUninit<u8>], column: &Column, rows: &[u8]) {
    by_size!(
        column.row_bytes,
        BYTES => put_rows(chunk, column, rows.as_chunks::<BYTES>().0),
        _ => if column.row_bytes > 0 {
            put_rows(chunk, column, rows.chunks_exact(column.row_bytes));
        }
    );
}

#[inline(always)]
fn put_rows(chunk: &mut [MaybeUninit<u8>], column: &Column, rows: impl IntoIterator<Item: AsRef<[u8]>>) {
    let places = chunk[column.start..].chunks_mut(column.stride);
    for (place, row) in places.zip(rows) {
        let row = row.as_ref();
        copy(&mut place[..row.len()], row);
    }
}
