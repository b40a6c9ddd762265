//! The columns of an item, as a gatherer reads them.

use crate::chunk::Text;
use crate::trajectory::ColumnView;
use crate::{Chunk, Column, Trajectory};

#[cfg(test)]
thread_local! {
    /// Number of items and slices that this thread has looked up.
    static VISITS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
pub(super) fn count_visits(more: usize) {
    VISITS.set(VISITS.get() + more);
}

/// Returns the number of visits by this thread since the last call.
#[cfg(test)]
pub(super) fn take_visits() -> usize {
    VISITS.take()
}

/// Calls `visit` with the bytes of each slice of a column of numbers.
#[inline]
pub(super) fn for_each_segment(trajectory: &Trajectory, column: usize, mut visit: impl FnMut(&[u8])) {
    match trajectory.column(column) {
        ColumnView::One { chunk, column, offset, length, .. } => visit(chunk.rows_of(column as usize, offset, length)),
        ColumnView::Many(many) => {
            for slice in &many.slices {
                visit(slice.chunk.rows_of(slice.column as usize, slice.offset, slice.length));
            }
        }
    }
}

/// The bytes of a slice of a column of numbers; `None` if the column has no such slice.
#[inline]
pub(super) fn segment(trajectory: &Trajectory, column: usize, slice: usize) -> Option<&[u8]> {
    let (chunk, column, offset, length) = place(trajectory, column, slice)?;
    Some(chunk.rows_of(column, offset, length))
}

/// A slice of a column of strings; `None` if the column has no such slice.
#[inline]
pub(super) fn text(trajectory: &Trajectory, column: usize, slice: usize) -> Option<Text<'_>> {
    let (chunk, column, offset, length) = place(trajectory, column, slice)?;
    let elements = chunk.columns()[column].elements;
    Some(chunk.text_of(column, offset as usize * elements, length as usize * elements))
}

/// The chunk of a slice, its column there, its first row and its number of rows.
#[inline]
fn place(trajectory: &Trajectory, column: usize, slice: usize) -> Option<(&Chunk, usize, u32, u32)> {
    #[cfg(test)]
    count_visits(1);
    match trajectory.column(column) {
        ColumnView::One { chunk, column, offset, length, .. } => {
            (slice == 0).then_some((chunk, column as usize, offset, length))
        }
        ColumnView::Many(many) => {
            let slice = many.slices.get(slice)?;
            Some((&slice.chunk, slice.column as usize, slice.offset, slice.length))
        }
    }
}

/// A column of an item, its number of rows, and whether it is squeezed.
#[inline]
pub(super) fn column_of(trajectory: &Trajectory, index: usize) -> (&Column, usize, bool) {
    match trajectory.column(index) {
        ColumnView::One { chunk, column, length, squeeze, .. } => {
            (&chunk.columns()[column as usize], length as usize, squeeze)
        }
        ColumnView::Many(many) => {
            let slice = &many.slices[0];
            (&slice.chunk.columns()[slice.column as usize], many.length(), many.squeeze)
        }
    }
}
