//! The limit on the data of one item.

use crate::limits::MAX_ITEM_BYTES;
use crate::{Chunk, DType, Error, Result, Slice, Trajectory};
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes of the end of a string.
const END_BYTES: u64 = 4;

impl Trajectory {
    /// Whether the item might refer to more than [`MAX_ITEM_BYTES`]. Reads no strings: each slice counts with all
    /// strings of its chunk.
    #[inline]
    pub fn may_be_too_large(&self) -> bool {
        // Rows of one chunk are smaller than the chunk, which has the same limit.
        let Self::Columns(columns) = self else { return false };
        let slices = columns.iter().flat_map(|column| &column.slices);
        slices.map(most_bytes).fold(0, u64::saturating_add) > MAX_ITEM_BYTES
    }

    /// Checks that the item refers to at most [`MAX_ITEM_BYTES`]. Strings count with their own sizes.
    ///
    /// # Errors
    /// [`Error::ItemTooLarge`] with the name of the table; [`Error::DataLoss`] if a chunk does not decode.
    pub fn check_size(&self, table: &str) -> Result<()> {
        let Self::Columns(columns) = self else { return Ok(()) };
        if !self.may_be_too_large() {
            return Ok(());
        }
        // A column of strings has one more end than strings.
        let mut size_bytes =
            END_BYTES * columns.iter().filter(|column| column.slices.first().is_some_and(has_text)).count() as u64;
        // Each chunk is decoded at most once.
        let mut texts = HashMap::<*const Chunk, (&Arc<Chunk>, Vec<&Slice>)>::new();
        for slice in columns.iter().flat_map(|column| &column.slices) {
            if has_text(slice) {
                texts.entry(Arc::as_ptr(&slice.chunk)).or_insert((&slice.chunk, Vec::new())).1.push(slice);
            } else {
                size_bytes = size_bytes.saturating_add(most_bytes(slice));
            }
        }
        let mut scratch = Vec::new();
        for (chunk, slices) in texts.into_values() {
            let view = chunk.view(&mut scratch)?;
            for slice in slices {
                let elements = chunk.columns()[slice.column as usize].elements;
                let (first, count) = (slice.offset as usize * elements, slice.length as usize * elements);
                let text = view.text_bytes(slice.column as usize, first, count);
                size_bytes = size_bytes.saturating_add(text + END_BYTES * count as u64);
            }
        }
        if size_bytes > MAX_ITEM_BYTES {
            return Err(Error::ItemTooLarge { table: table.into(), size_bytes, max_bytes: MAX_ITEM_BYTES });
        }
        Ok(())
    }
}

fn has_text(slice: &Slice) -> bool {
    slice.chunk.columns()[slice.column as usize].dtype == DType::String
}

/// Size in bytes of a slice of numbers; an upper bound for a slice of strings.
#[inline]
fn most_bytes(slice: &Slice) -> u64 {
    let column = &slice.chunk.columns()[slice.column as usize];
    match column.dtype {
        DType::String => column.size_bytes as u64,
        _ => column.row_bytes as u64 * u64::from(slice.length),
    }
}
