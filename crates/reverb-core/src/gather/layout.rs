//! The layout of a batch: the arrays, and their places in the buffer.

use crate::memory::ALIGN;
use crate::tensor::shape_text;
use crate::{Column, DType, Error, Result};
use std::iter;

/// One column of a batch: the array it becomes, and the place of its bytes in the buffer of the batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchColumn {
    /// Element type.
    pub dtype: DType,
    /// Shape of the array: `[batch, time, *row]`, `[batch, *row]` without a time axis, or `[rows, *row]` if ragged. If
    /// `has_open_rows`, it is `[sum of the lengths, *rest]`.
    pub shape: Vec<usize>,
    /// Number of rows of each item if they differ; the array then holds all rows one after another.
    pub row_lengths: Option<Vec<u32>>,
    /// Whether the lengths are not those of the items, which have one row each, but of the first axis of that row.
    pub has_open_rows: bool,
    /// Whether the column has no time axis in the items themselves.
    pub squeezed: bool,
    /// Place of the first byte in the buffer, a multiple of 64.
    pub offset: usize,
    /// Size in bytes; for strings the size of the ends (`elements + 1` little-endian `u32`) and of the text.
    pub size_bytes: usize,
}

/// The columns of a batch and the size of the buffer they share.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BatchLayout {
    /// The columns in order.
    pub columns: Vec<BatchColumn>,
    /// Size of the buffer in bytes.
    pub size_bytes: usize,
}

impl BatchLayout {
    /// Whether a column is text, whose bytes begin with its lengths.
    pub fn has_strings(&self) -> bool {
        self.columns.iter().any(|column| column.dtype == DType::String)
    }

    /// Places columns one after another and sets their offsets. Sizes of strings are taken as given.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the bytes of a shape exceed the address space, because a shape may come from a
    /// peer.
    pub fn new(mut columns: Vec<BatchColumn>) -> Result<Self> {
        let mut end = 0_usize;
        for (index, column) in columns.iter_mut().enumerate() {
            let too_large =
                || Error::invalid(format!("batch column {index} of shape {} is too large", shape_text(&column.shape)));
            // Strings of a shape with a dimension of 0 have no bytes, but the product may overflow before it is 0.
            let elements = column.shape.iter().try_fold(1_usize, |n, &dim| n.checked_mul(dim)).ok_or_else(too_large)?;
            if column.dtype != DType::String {
                column.size_bytes = elements.checked_mul(column.dtype.size()).ok_or_else(too_large)?;
            }
            column.offset = end.checked_next_multiple_of(ALIGN).ok_or_else(too_large)?;
            end = column
                .offset
                .checked_add(column.size_bytes)
                .filter(|&end| end <= isize::MAX as usize)
                .ok_or_else(too_large)?;
        }
        Ok(Self { columns, size_bytes: end })
    }
}

/// Returns `[batch, time, *row]`, or `[batch, *row]` without a time axis.
pub(super) fn batch_shape(
    batch: usize,
    (time, has_time): (usize, bool),
    column: &Column,
) -> impl Iterator<Item = usize> + '_ {
    iter::once(batch).chain(has_time.then_some(time)).chain(column.shape.iter().copied())
}
