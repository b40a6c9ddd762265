//! Batches of rows that are alike, whose chunks may have several layouts.

use super::layout::{BatchColumn, BatchLayout, batch_shape};
use super::rows::{ReadableRows, copy_columns};
use crate::{Buffer, Column};
use smallvec::SmallVec;

/// Maximum number of layouts that are known by their addresses. Columns of further layouts are compared for each item.
const KNOWN_LAYOUTS: usize = 8;

/// Rows of items that can be stacked: as many of each item, and of the same columns, wherever these lie in their chunks.
pub(crate) struct AlikeRows<'a> {
    rows: Vec<ReadableRows<'a>>,
    /// The columns of layouts that were found to be the same. The first are those of the first item.
    known: SmallVec<[&'a [Column]; KNOWN_LAYOUTS]>,
}

impl<'a> AlikeRows<'a> {
    pub(crate) fn with_capacity(count: usize) -> Self {
        Self { rows: Vec::with_capacity(count), known: SmallVec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds the rows of an item if they are like those before. Returns whether they are.
    #[inline]
    pub(crate) fn push(&mut self, item: ReadableRows<'a>) -> bool {
        match self.rows.first() {
            None => self.known.push(item.columns()),
            Some(first) => {
                let has_same_layout = std::ptr::eq(item.columns(), first.columns());
                if !(item.is_as_long_as(first) && (has_same_layout || self.has_same_columns(item.columns()))) {
                    return false;
                }
            }
        }
        self.rows.push(item);
        true
    }

    /// Whether these columns have the dtypes and shapes of the first item's.
    fn has_same_columns(&mut self, columns: &'a [Column]) -> bool {
        if self.known.iter().any(|known| std::ptr::eq(*known, columns)) {
            return true;
        }
        let is_same = |(one, other): (&Column, &Column)| one.dtype == other.dtype && one.shape == other.shape;
        let first = self.known[0];
        let are_same = columns.len() == first.len() && columns.iter().zip(first).all(is_same);
        if are_same && self.known.len() < KNOWN_LAYOUTS {
            self.known.push(columns);
        }
        are_same
    }

    /// Copies the rows, none of strings, into a batch. Reuses the layout `used` of an earlier batch if it fits. `None` if
    /// there are no rows.
    pub(crate) fn copy(&self, squeeze_time: bool, used: Option<BatchLayout>) -> Option<(BatchLayout, Buffer)> {
        let (layout, has_one_layout) = (self.layout(squeeze_time, used)?, self.known.len() == 1);
        let mut buffer = Buffer::new(layout.size_bytes);
        copy_columns(buffer.as_uninit_mut(), &layout, &self.rows, has_one_layout);
        Some((layout, buffer))
    }

    /// The layout of the batch.
    fn layout(&self, squeeze_time: bool, used: Option<BatchLayout>) -> Option<BatchLayout> {
        let first = self.rows.first()?;
        let time = (first.length, !(first.squeeze || squeeze_time && first.length == 1));
        let is_same = |(column, used): (&Column, &BatchColumn)| {
            let shape = || batch_shape(self.rows.len(), time, column).eq(used.shape.iter().copied());
            column.dtype == used.dtype && used.row_lengths.is_none() && used.squeezed == first.squeeze && shape()
        };
        let fits = |used: &BatchLayout| {
            used.columns.len() == first.columns().len() && first.columns().iter().zip(&used.columns).all(is_same)
        };
        let to_column = |column: &Column| {
            let shape = batch_shape(self.rows.len(), time, column).collect();
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
        match used.filter(fits) {
            Some(used) => Some(used),
            None => BatchLayout::new(first.columns().iter().map(to_column).collect()).ok(),
        }
    }
}
