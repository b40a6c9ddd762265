//! Layouts of chunks. Most chunks share one, which is put into the log once.

use super::format::{DELTA, INTERLEAVED, LAYOUT_SLOTS, PLAIN};
use super::input::Input;
use super::output::put_varint;
use reverb_core::{Codec, DType, Encoding, Layout, Result, Shape};
use std::sync::Arc;

/// The layouts that the reader of the log knows, each in the slot that its address chooses.
#[derive(Debug)]
pub struct LoggedLayouts([Option<Arc<Layout>>; LAYOUT_SLOTS]);

impl Default for LoggedLayouts {
    fn default() -> Self {
        Self([const { None }; LAYOUT_SLOTS])
    }
}

impl LoggedLayouts {
    /// Forgets all layouts.
    pub fn clear(&mut self) {
        self.0.fill(None);
    }

    /// Returns the slot of a layout, and whether it is new there. Keeping the layout keeps others from its address.
    #[inline]
    pub fn enter(&mut self, layout: &Arc<Layout>) -> (u8, bool) {
        // Fibonacci hashing: the top byte of the product depends on all bits.
        let slot = (Arc::as_ptr(layout) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        let entry = &mut self.0[slot as usize];
        let is_new = entry.as_ref().is_none_or(|known| !Arc::ptr_eq(known, layout));
        if is_new {
            *entry = Some(layout.clone());
        }
        (slot as u8, is_new)
    }
}

/// Appends a layout.
pub fn put_layout(out: &mut Vec<u8>, layout: &Layout) {
    put_varint(out, layout.rows.into());
    out.push(match layout.encoding() {
        Some(encoding) => encoding.codec as u8,
        None if layout.is_interleaved() => INTERLEAVED,
        None => PLAIN,
    });
    put_varint(out, layout.columns.len() as u64);
    for (index, column) in layout.columns.iter().enumerate() {
        let is_delta = layout.encoding().is_some_and(|encoding| encoding.delta[index]);
        out.push(column.dtype as u8 | if is_delta { DELTA } else { 0 });
        put_varint(out, column.shape.len() as u64);
        column.shape.iter().for_each(|&dim| put_varint(out, dim as u64));
        if column.dtype == DType::String {
            put_varint(out, column.size_bytes as u64);
        }
    }
}

/// Reads a layout.
pub fn read_layout(input: &mut Input<'_>) -> Result<Layout> {
    let rows = input.number("the number of rows of a chunk")?;
    let arrangement = input.byte("the arrangement of a chunk")?;
    let count = input.count("columns of a chunk", 2)?;
    let mut specs = Vec::with_capacity(count);
    let mut delta = Vec::with_capacity(count);
    for _ in 0..count {
        let byte = input.byte("the dtype of a column")?;
        let number = byte & !DELTA;
        let dtype = DType::from_number(number.into()).map_err(|_| input.unknown("a dtype", number))?;
        let rank = input.count("dimensions of a column", 1)?;
        let shape = (0..rank).map(|_| input.number("a dimension of a column")).collect::<Result<Shape>>()?;
        let string_bytes = if dtype == DType::String { input.number("the bytes of a column of strings")? } else { 0 };
        specs.push((dtype, shape, string_bytes));
        delta.push(byte & DELTA != 0);
    }
    let codec = match arrangement {
        PLAIN | INTERLEAVED => None,
        number if number == Codec::Lz4 as u8 => Some(Codec::Lz4),
        number if number == Codec::Zstd as u8 => Some(Codec::Zstd),
        number => return Err(input.unknown("an arrangement of chunks", number)),
    };
    let layout = Layout::new(rows, specs).and_then(|layout| match codec {
        Some(codec) => layout.encoded(Encoding { codec, delta: delta.into() }),
        None if delta.contains(&true) => Err(reverb_core::Error::invalid("columns of differences need a codec")),
        None if arrangement == INTERLEAVED => layout.interleaved(),
        None => Ok(layout),
    });
    layout.map_err(|error| input.damaged(error))
}
