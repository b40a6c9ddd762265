//! Copies of rows that lie scattered in memory.

use super::layout::BatchLayout;
use crate::copy::{by_size, copy};
use crate::prefetch::prefetch;
use crate::{Column, DType, Drawn, Trajectory};
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Number of items before its copy at which a row is prefetched.
const AHEAD: usize = 12;
const CACHE_LINE: usize = 64;
/// Number of bytes before its copy at which a row of many cache lines is prefetched: about as many lines as a processor
/// loads at once.
const BYTES_AHEAD: usize = 2 << 10;
/// Size in bytes of a block of interleaved rows that is copied column by column: it fits the smallest cache twice.
const BLOCK_BYTES: usize = 16 << 10;
/// Size in bytes above which the processor itself prefetches the rest of a row.
const LONG_ROW: usize = 8 << 10;

/// What the items of a batch have in common, which decides how they are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Uniformity {
    /// Each item has the same number of rows of one chunk, and all chunks share a layout, which is read once for all.
    SameLayout,
    /// Each item has the same number of rows of one chunk. Such items can be stacked, too.
    SameLength,
    /// Items without anything in common.
    Mixed,
}

impl Uniformity {
    pub(super) fn of(items: &[Drawn]) -> Self {
        let Some(&Trajectory::Rows { chunk: ref first, length, squeeze, .. }) =
            items.first().map(|item| &item.trajectory)
        else {
            return Self::Mixed;
        };
        let expected = (length, squeeze);
        let mut same_layout = true;
        for item in items {
            match &item.trajectory {
                &Trajectory::Rows { ref chunk, length, squeeze, .. } if (length, squeeze) == expected => {
                    same_layout &= Arc::ptr_eq(chunk.layout(), first.layout());
                }
                _ => return Self::Mixed,
            }
        }
        if same_layout { Self::SameLayout } else { Self::SameLength }
    }
}

/// The rows of an item that lie in one chunk and can be read in place.
pub(crate) struct ReadableRows<'a> {
    data: &'a [u8],
    columns: &'a [Column],
    first: usize,
    pub(super) length: usize,
    /// Whether the time axis, of length 1, is dropped.
    pub(super) squeeze: bool,
}

impl<'a> ReadableRows<'a> {
    /// Returns the rows of an item; `None` unless it is rows of one chunk that can be read directly.
    #[inline]
    pub(crate) fn of(trajectory: &'a Trajectory) -> Option<Self> {
        let &Trajectory::Rows { ref chunk, offset, length, squeeze } = trajectory else { return None };
        // Other chunks are read through their view, and this function must not unpack one.
        if !chunk.is_readable(length) || chunk.is_packed() {
            return None;
        }
        let (first, length) = (offset as usize, length as usize);
        Some(Self { data: chunk.data(), columns: chunk.columns(), first, length, squeeze })
    }

    pub(super) fn columns(&self) -> &'a [Column] {
        self.columns
    }

    /// Whether both are the same number of rows, with a time axis or without.
    #[inline]
    pub(super) fn is_as_long_as(&self, other: &Self) -> bool {
        (self.length, self.squeeze) == (other.length, other.squeeze)
    }

    /// Size of all columns in bytes; `None` if a column holds strings.
    pub(crate) fn size_bytes(&self) -> Option<usize> {
        let is_number = |column: &Column| column.dtype != DType::String;
        let size = || self.columns.iter().map(|column| column.row_bytes * self.length).sum();
        self.columns.iter().all(is_number).then(size)
    }

    #[inline]
    fn bytes(&self, column: usize) -> &'a [u8] {
        let column = &self.columns[column];
        let start = column.start + self.first * column.stride;
        &self.data[start..start + self.length * column.row_bytes]
    }
}

/// Copies all columns of items that are not [`Uniformity::Mixed`], none of strings, into the buffer of a batch.
pub(super) fn copy_columns(
    target: &mut [MaybeUninit<u8>],
    layout: &BatchLayout,
    rows: &[ReadableRows<'_>],
    same_layout: bool,
) {
    let Some(first) = rows.first() else { return };
    let mut end = 0;
    for column in &layout.columns {
        target[end..column.offset].fill(MaybeUninit::new(0));
        end = column.offset + column.size_bytes;
    }
    // Interleaved rows are read once for all columns, in blocks that stay cached meanwhile.
    let stride = first.columns[0].stride;
    let is_interleaved = first.columns.iter().any(Column::is_interleaved);
    let block = if is_interleaved { BLOCK_BYTES.div_ceil(stride) } else { rows.len() };
    for start in (0..rows.len()).step_by(block) {
        let count = block.min(rows.len() - start);
        for (index, column) in layout.columns.iter().enumerate() {
            let bytes = column.size_bytes / rows.len();
            let place = column.offset + start * bytes;
            copy_column(&mut target[place..place + count * bytes], &rows[start..], index, same_layout);
        }
    }
}

/// Copies a column of numbers of items that are not [`Uniformity::Mixed`], for as many items as fit.
pub(super) fn copy_column(target: &mut [MaybeUninit<u8>], rows: &[ReadableRows<'_>], column: usize, same_layout: bool) {
    if same_layout {
        copy_rows::<true>(target, rows, column);
    } else {
        copy_rows::<false>(target, rows, column);
    }
}

fn copy_rows<const SAME_LAYOUT: bool>(target: &mut [MaybeUninit<u8>], rows: &[ReadableRows<'_>], column: usize) {
    let Some(first) = rows.first() else { return };
    let bytes = first.length * first.columns[column].row_bytes;
    by_size!(
        bytes,
        BYTES => copy_sized::<SAME_LAYOUT, BYTES>(target, rows, column),
        _ => if (1..=LONG_ROW).contains(&bytes) {
            let ahead = BYTES_AHEAD.div_ceil(bytes);
            copy_ahead::<SAME_LAYOUT>(target.chunks_exact_mut(bytes), rows, column, bytes, ahead);
        } else {
            copy_any_size(target, rows, column);
        }
    );
}

/// Copies rows of one size with the widest moves that the processor has.
fn copy_sized<const SAME_LAYOUT: bool, const BYTES: usize>(
    target: &mut [MaybeUninit<u8>],
    rows: &[ReadableRows<'_>],
    column: usize,
) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx")]
        fn with_avx<const SAME_LAYOUT: bool, const BYTES: usize>(
            target: &mut [MaybeUninit<u8>],
            rows: &[ReadableRows<'_>],
            column: usize,
        ) {
            copy_ahead::<SAME_LAYOUT>(arrays::<BYTES>(target), rows, column, BYTES, AHEAD);
        }
        if is_x86_feature_detected!("avx") {
            // SAFETY: the processor has the feature that the function is compiled for.
            return unsafe { with_avx::<SAME_LAYOUT, BYTES>(target, rows, column) };
        }
    }
    copy_ahead::<SAME_LAYOUT>(arrays::<BYTES>(target), rows, column, BYTES, AHEAD);
}

/// Targets of a size that the compiler knows.
#[inline(always)]
fn arrays<const BYTES: usize>(target: &mut [MaybeUninit<u8>]) -> impl Iterator<Item = &mut [MaybeUninit<u8>]> {
    target.as_chunks_mut::<BYTES>().0.iter_mut().map(<[_; BYTES]>::as_mut_slice)
}

/// The places of the rows of later items are known from their layouts, which are few, so the rows are prefetched `ahead`
/// items early. With `SAME_LAYOUT` one layout is read for all items. Inlined, so that sizes which the compiler knows stay
/// known.
#[inline(always)]
fn copy_ahead<'t, const SAME_LAYOUT: bool>(
    targets: impl Iterator<Item = &'t mut [MaybeUninit<u8>]>,
    rows: &[ReadableRows<'_>],
    column: usize,
    bytes: usize,
    ahead: usize,
) {
    let Some(first) = rows.first() else { return };
    let of_first = (first.columns[column].start, first.columns[column].stride);
    let place = |item: &ReadableRows<'_>| {
        let (start, stride) =
            if SAME_LAYOUT { of_first } else { (item.columns[column].start, item.columns[column].stride) };
        start + item.first * stride
    };
    let is_interleaved = first.columns[column].is_interleaved();
    // The first column of interleaved rows prefetches whole rows.
    let ahead = if is_interleaved && column == 0 { BYTES_AHEAD.div_ceil(of_first.1) } else { ahead };
    for (index, (target, item)) in targets.zip(rows).enumerate() {
        if let Some(later) = rows.get(index + ahead) {
            let row = later.data.as_ptr().wrapping_add(place(later));
            if !is_interleaved {
                prefetch_all(row, bytes);
            } else if column == 0 {
                prefetch_all(row, of_first.1);
            }
        }
        let start = place(item);
        copy(target, &item.data[start..start + bytes]);
    }
}

#[inline(always)]
fn prefetch_all(row: *const u8, bytes: usize) {
    (0..bytes).step_by(CACHE_LINE).for_each(|byte| prefetch(row.wrapping_add(byte)));
    // All rows except the smallest may start anywhere in a cache line, so they may end in one more.
    if bytes > 8 {
        prefetch(row.wrapping_add(bytes - 1));
    }
}

fn copy_any_size(mut target: &mut [MaybeUninit<u8>], rows: &[ReadableRows<'_>], column: usize) {
    for item in rows {
        let bytes = item.bytes(column);
        if target.is_empty() {
            break;
        }
        let (head, rest) = std::mem::take(&mut target).split_at_mut(bytes.len());
        copy(head, bytes);
        target = rest;
    }
}
