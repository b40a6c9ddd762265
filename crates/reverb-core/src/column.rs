//! Columns of a chunk: their type, and the places of their rows.
//!
//! In a chunk that stores column after column, a single row lies in as many places as there are columns. Random draws
//! of single rows from a large table wait for each of these places. Columns can therefore be interleaved: each row of
//! the chunk is then contiguous.

use crate::copy::{by_size, copy};
use crate::tensor::Shape;
use crate::{DType, Error, Result};
use std::mem::MaybeUninit;

/// One column of a chunk: dtype, shape of a row, and where its rows lie.
///
/// Rows of numbers lie one after another in C order, little-endian. A column of strings is
/// `rows × elements + 1` little-endian `u32` ends (the first is 0), then the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Element type.
    pub dtype: DType,
    /// Shape of one row, without the time axis.
    pub shape: Shape,
    /// Number of elements in one row.
    pub elements: usize,
    /// Size of one row in bytes; 0 for strings.
    pub row_bytes: usize,
    /// First byte of the column's region in the chunk.
    pub offset: usize,
    /// Bytes of the region.
    pub size_bytes: usize,
    /// Place of the first row in bytes that are not compressed: `offset`, or the place in an interleaved row.
    pub(crate) start: usize,
    /// Distance from one row to the next in bytes.
    pub(crate) stride: usize,
}

impl Column {
    /// Whether other columns lie between its rows.
    #[inline]
    pub(crate) fn is_interleaved(&self) -> bool {
        self.stride != self.row_bytes
    }

    /// Puts the rows of this column into an interleaved chunk.
    pub(crate) fn put_interleaved(&self, chunk: &mut [MaybeUninit<u8>], rows: &[u8]) {
        by_size!(
            self.row_bytes,
            BYTES => put_rows(chunk, self, rows.as_chunks::<BYTES>().0),
            _ => if self.row_bytes > 0 {
                put_rows(chunk, self, rows.chunks_exact(self.row_bytes));
            }
        );
    }
}

/// Gives each column its place in an interleaved row, without gaps.
///
/// # Errors
/// [`Error::InvalidArgument`] if a column holds strings, which have no fixed size.
pub(crate) fn interleave(columns: &mut [Column]) -> Result<()> {
    if let Some(index) = columns.iter().position(|column| column.dtype == DType::String) {
        return Err(Error::invalid(format!("column {index} holds strings, which cannot be interleaved")));
    }
    let stride = columns.iter().map(|column| column.row_bytes).sum();
    let mut start = 0;
    for column in columns {
        (column.start, column.stride) = (start, stride);
        start += column.row_bytes;
    }
    Ok(())
}

#[inline(always)]
fn put_rows(chunk: &mut [MaybeUninit<u8>], column: &Column, rows: impl IntoIterator<Item: AsRef<[u8]>>) {
    let places = chunk[column.start..].chunks_mut(column.stride);
    for (place, row) in places.zip(rows) {
        let row = row.as_ref();
        copy(&mut place[..row.len()], row);
    }
}
