//! The columns of an item, as a gatherer reads them.

use crate::trajectory::ColumnView;
use crate::{Chunk, Column, Trajectory};

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

/// All strings of a column of an item, in order.
pub(super) fn strings_of(trajectory: &Trajectory, column: usize) -> Vec<&[u8]> {
    let of = |chunk: &'_ Chunk, column: usize, offset: u32, length: u32| {
        let elements = chunk.columns()[column].elements;
        (offset as usize * elements, length as usize * elements)
    };
    match trajectory.column(column) {
        ColumnView::One { chunk, column, offset, length, .. } => {
            let (first, count) = of(chunk, column as usize, offset, length);
            chunk.strings_of(column as usize, first, count).collect()
        }
        ColumnView::Many(many) => many
            .slices
            .iter()
            .flat_map(|slice| {
                let (first, count) = of(&slice.chunk, slice.column as usize, slice.offset, slice.length);
                slice.chunk.strings_of(slice.column as usize, first, count)
            })
            .collect(),
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
