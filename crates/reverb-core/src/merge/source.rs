//! A column of the batch of one shard, as the source of rows.

use crate::chunk::check_strings;
use crate::gather::{BatchColumn, END_BYTES};
use crate::tensor::shape_text;
use crate::{CopiedBatch, DType, Error, Result};

/// Neighbouring rows of the batch of one shard that are neighbours in the merged batch, too.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    /// Position in the list of batches.
    pub batch: usize,
    pub first: usize,
    pub count: usize,
}

impl Run {
    /// Returns its source. All batches with winners have one.
    pub(super) fn source<'s, 'a>(self, sources: &'s [Option<Source<'a>>]) -> &'s Source<'a> {
        sources[self.batch].as_ref().expect("batches with winners have sources")
    }
}

/// A number that each item of a batch has.
#[derive(Debug, Clone, Copy)]
pub(super) enum Count<'a> {
    /// The same for all items.
    Same(usize),
    /// By item.
    Each(&'a [u32]),
}

impl Count<'_> {
    pub(super) fn of(self, item: usize) -> usize {
        match self {
            Self::Same(count) => count,
            Self::Each(counts) => counts[item] as usize,
        }
    }
}

/// A column of a batch, checked: the items lie one after another in its bytes.
#[derive(Debug)]
pub(super) struct Source<'a> {
    /// The id of the shard.
    pub shard: u32,
    pub dtype: DType,
    /// Whether the column has no time axis in the items themselves.
    pub squeezed: bool,
    /// Number of rows of each item.
    pub rows: Count<'a>,
    /// Length of the first axis of the rows of each item; 0 if a row is a scalar.
    pub first_axis: Count<'a>,
    /// The other axes of a row; `None` if a row is a scalar.
    pub other_axes: Option<&'a [usize]>,
    /// The numbers of all items, or their strings one after another.
    values: &'a [u8],
    /// The ends of the strings after an initial zero.
    ends: &'a [u8],
    /// Number of elements in an item, or of each of its rows (or of what its open row consists of) if `starts` is set.
    elements: usize,
    /// Where the items begin, as a number of such rows, and where the last ends.
    starts: Option<Vec<usize>>,
}

impl<'a> Source<'a> {
    /// # Errors
    /// [`Error::DataLoss`] if the parts of the column do not fit together.
    pub(super) fn new(shard: u32, batch: &'a CopiedBatch, index: usize) -> Result<Self> {
        let column = &batch.layout.columns[index];
        // SAFETY: a complete batch was written whole.
        let buffer = unsafe { batch.buffer.as_bytes() };
        Self::checked(shard, column, batch.info.len(), buffer).ok_or_else(|| {
            Error::DataLoss(format!(
                "column {index} of a batch of {} items from shard {shard} does not fit its data: dtype {}, shape {}, {} \
                 bytes",
                batch.info.len(),
                column.dtype,
                shape_text(&column.shape),
                column.size_bytes
            ))
        })
    }

    fn checked(shard: u32, column: &'a BatchColumn, items: usize, buffer: &'a [u8]) -> Option<Self> {
        let &BatchColumn { dtype, ref shape, ref row_lengths, has_open_rows, squeezed, offset, size_bytes } = column;
        let (&first, rest) = shape.split_first()?;
        let elements = rest.iter().try_fold(1_usize, |product, &axis| product.checked_mul(axis))?;
        let starts = row_lengths.as_deref().map(starts);
        let is_complete = match &starts {
            Some(starts) => starts.len() == items + 1 && starts.last() == Some(&first),
            None => first == items,
        };
        // A squeezed item has one row.
        if !is_complete || squeezed && row_lengths.is_some() && !has_open_rows {
            return None;
        }
        let total = elements.checked_mul(first)?;
        let region = buffer.get(offset..offset.checked_add(size_bytes)?)?;
        let (ends, values) = if dtype == DType::String {
            check_strings(region, total).ok()?;
            region[END_BYTES..].split_at(END_BYTES * total)
        } else {
            (&[][..], region)
        };
        let split = |row: &'a [usize]| row.split_first().map_or((0, None), |(&first, others)| (first, Some(others)));
        let (rows, first_axis, other_axes) = match row_lengths.as_deref() {
            Some(lengths) if has_open_rows => (Count::Same(1), Count::Each(lengths), Some(rest)),
            Some(lengths) => (Count::Each(lengths), Count::Same(split(rest).0), split(rest).1),
            None if squeezed => (Count::Same(1), Count::Same(split(rest).0), split(rest).1),
            None => {
                let (&time, row) = rest.split_first()?;
                (Count::Same(time), Count::Same(split(row).0), split(row).1)
            }
        };
        let is_whole = dtype == DType::String || total.checked_mul(dtype.size()) == Some(size_bytes);
        is_whole.then_some(Self {
            shard,
            dtype,
            squeezed,
            rows,
            first_axis,
            other_axes,
            values,
            ends,
            elements,
            starts,
        })
    }

    pub(super) fn has_strings(&self) -> bool {
        self.dtype == DType::String
    }

    /// The bytes of neighbouring items; of strings without their ends.
    pub(super) fn bytes(&self, first: usize, count: usize) -> &'a [u8] {
        let (start, end) = self.elements(first, count);
        match self.dtype {
            DType::String => &self.values[self.end(start)..self.end(end)],
            dtype => &self.values[start * dtype.size()..end * dtype.size()],
        }
    }

    /// The ends of the strings of neighbouring items, counted from the start of the first.
    pub(super) fn ends(&self, first: usize, count: usize) -> impl Iterator<Item = u32> + use<'a> {
        let (start, end) = self.elements(first, count);
        let before = self.end(start) as u32;
        let ends = self.ends[END_BYTES * start..END_BYTES * end].as_chunks().0;
        ends.iter().map(move |&end| u32::from_le_bytes(end) - before)
    }

    /// Number of elements of neighbouring items.
    pub(super) fn num_elements(&self, first: usize, count: usize) -> usize {
        let (start, end) = self.elements(first, count);
        end - start
    }

    /// The elements of neighbouring items: the first, and the one after the last.
    fn elements(&self, first: usize, count: usize) -> (usize, usize) {
        let place = |item: usize| self.elements * self.starts.as_ref().map_or(item, |starts| starts[item]);
        (place(first), place(first + count))
    }

    /// Number of bytes of the strings before an element.
    fn end(&self, element: usize) -> usize {
        let before = element.checked_sub(1).map(|last| &self.ends[END_BYTES * last..]);
        before.and_then(|ends| ends.first_chunk()).map_or(0, |&end| u32::from_le_bytes(end) as usize)
    }
}

/// Where each of neighbours of these lengths begins, and where the last ends.
fn starts(lengths: &[u32]) -> Vec<usize> {
    let mut end = 0;
    let mut starts = Vec::with_capacity(lengths.len() + 1);
    starts.push(end);
    starts.extend(lengths.iter().map(|&length| {
        end += length as usize;
        end
    }));
    starts
}
