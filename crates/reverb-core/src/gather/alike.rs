//! Batches of rows that are alike, whose chunks may have several layouts.

use super::layout::{BatchColumn, BatchLayout, batch_shape};
use super::rows::{ReadableRows, copy_columns};
use crate::{Buffer, Column};

/// Number of layouts that are known by their addresses, at a place for each of them: at least as many as a writer has.
const KNOWN_LAYOUTS: usize = 128;

/// Rows of items that can be stacked: as many of each item, and of the same columns, wherever these lie in their chunks.
pub(crate) struct AlikeRows<'a> {
    rows: Vec<ReadableRows<'a>>,
    /// Columns that were found to be those of the first item, although they are of another layout. Empty while there are
    /// none.
    known: Vec<Option<&'a [Column]>>,
    /// Whether the rows of all items lie in their chunks like those of the first.
    have_same_places: bool,
}

impl<'a> AlikeRows<'a> {
    pub(crate) fn with_capacity(count: usize) -> Self {
        Self { rows: Vec::with_capacity(count), known: Vec::new(), have_same_places: true }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds the rows of an item if they are like those before. Returns whether they are.
    #[inline]
    pub(crate) fn push(&mut self, item: ReadableRows<'a>) -> bool {
        if let Some(first) = self.rows.first() {
            let (columns, of_first) = (item.columns(), first.columns());
            let has_same_layout = std::ptr::eq(columns, of_first);
            if !(item.is_as_long_as(first) && (has_same_layout || self.has_same_columns(columns, of_first))) {
                return false;
            }
        }
        self.rows.push(item);
        true
    }

    /// Whether columns have the dtypes and shapes of the first item's.
    fn has_same_columns(&mut self, columns: &'a [Column], of_first: &[Column]) -> bool {
        /// Spreads addresses over the upper bits of a product.
        const FACTOR: usize = 0x9e37_79b9_7f4a_7c15_u64 as usize;
        let hash = columns.as_ptr().addr().wrapping_mul(FACTOR) >> (usize::BITS - KNOWN_LAYOUTS.ilog2());
        self.known.resize(KNOWN_LAYOUTS, None);
        let known = &mut self.known[hash];
        if known.is_some_and(|known| std::ptr::eq(known, columns)) {
            return true;
        }
        let pairs = || columns.iter().zip(of_first);
        let are_same = columns.len() == of_first.len()
            && pairs().all(|(one, first)| one.dtype == first.dtype && one.shape == first.shape);
        if are_same {
            *known = Some(columns);
            self.have_same_places &= pairs().all(|(one, first)| (one.start, one.stride) == (first.start, first.stride));
        }
        are_same
    }

    /// Copies the rows, none of strings, into a batch. Reuses the layout `used` of an earlier batch if it fits. `None` if
    /// there are no rows.
    pub(crate) fn copy(&self, squeeze_time: bool, used: Option<BatchLayout>) -> Option<(BatchLayout, Buffer)> {
        let layout = self.layout(squeeze_time, used)?;
        let mut buffer = Buffer::new(layout.size_bytes);
        copy_columns(buffer.as_uninit_mut(), &layout, &self.rows, self.have_same_places);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Chunk, DType, EpisodeIds, Layout, StepRange, Trajectory};
    use bytes::Bytes;
    use smallvec::smallvec;
    use std::sync::Arc;

    #[test]
    fn other_columns_are_seen_after_many_layouts() {
        let row = |dtype| {
            let layout = Arc::new(Layout::new(1, [(dtype, smallvec![], 0)]).unwrap());
            let data = Bytes::from_static(&[7]);
            let chunk = Chunk::new(1, EpisodeIds::Same(1), StepRange::default(), layout, data).unwrap();
            Trajectory::rows(Arc::new(chunk), 0, 1).unwrap()
        };
        let items: Vec<_> = (0..20 * KNOWN_LAYOUTS).map(|_| row(DType::Int8)).collect();
        let mut rows = AlikeRows::with_capacity(items.len());
        assert!(items.iter().all(|item| rows.push(ReadableRows::of(item).unwrap())));
        // No place is free any more.
        assert!(rows.known.iter().all(Option::is_some));
        assert!(!rows.push(ReadableRows::of(&row(DType::UInt8)).unwrap()));
    }
}
