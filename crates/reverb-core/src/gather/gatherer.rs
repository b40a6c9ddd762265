//! The gatherer, which copies drawn items into the buffer of a batch.

use super::columns::for_each_segment;
use super::cursor::{Cursor, END_BYTES};
use super::decode::decode;
use super::layout::BatchLayout;
use super::plan::{has_open_rows, plan};
use super::rows::{ReadableRows, Uniformity, copy_column, copy_columns};
use crate::copy::copy;
use crate::{Buffer, DType, Drawn};
use std::mem::MaybeUninit;

#[cfg(test)]
use super::columns::count_visits;

/// Drawn items whose columns can be stacked, and how much of them was copied into a buffer.
///
/// The buffer can be filled as a whole, or in pieces as messages are sent. Either way each byte is copied once.
#[derive(Debug)]
pub struct Gatherer {
    items: Vec<Drawn>,
    /// The items with their rows decoded, if they have encoded chunks. Each chunk is decoded once for the whole batch,
    /// and only the rows of the batch are kept, so this is never larger than the batch and one chunk. Empty if no chunk
    /// is encoded.
    decoded: Vec<Drawn>,
    layout: BatchLayout,
    /// The current column.
    column: usize,
    /// Number of bytes of the current column that were written.
    done: usize,
    /// Number of bytes of the buffer that were written.
    position: usize,
    /// The place of the next byte of the current column in the items.
    cursor: Cursor,
    /// What the items have in common.
    uniformity: Uniformity,
}

/// The reason why items cannot be stacked: the first item that differs from those before, and in what.
#[derive(Debug)]
pub struct Mismatch {
    /// The items, unchanged.
    pub items: Vec<Drawn>,
    /// Index of the item that differs.
    pub index: usize,
    /// The difference.
    pub reason: String,
}

impl Gatherer {
    /// Plans the batch of `items`. If `squeeze_time` is set, a time axis of length 1 in every item is dropped.
    ///
    /// # Errors
    /// A [`Mismatch`] with the items, if their columns differ in number, dtype or row shape; items of one row may differ
    /// in the first axis of that row.
    pub fn new(items: Vec<Drawn>, squeeze_time: bool) -> std::result::Result<Self, Box<Mismatch>> {
        let uniformity = Uniformity::of(&items);
        let is_same = uniformity == Uniformity::SameLayout;
        let has_open_rows = if is_same { Ok(false) } else { has_open_rows(&items) };
        let planned = has_open_rows.and_then(|has_open_rows| {
            // Rows of different lengths have different sizes.
            let uniformity = if has_open_rows { Uniformity::Mixed } else { uniformity };
            decode(&items, uniformity)
                .and_then(|decoded| {
                    let (read, uniformity) = match decoded.is_empty() {
                        true => (&items, uniformity),
                        false if has_open_rows => (&decoded, Uniformity::Mixed),
                        false => (&decoded, Uniformity::of(&decoded)),
                    };
                    Ok((plan(read, uniformity, has_open_rows, squeeze_time)?, decoded, uniformity))
                })
                .map_err(|error| (0, error.to_string()))
        });
        match planned {
            Ok((layout, decoded, uniformity)) => Ok(Self {
                items,
                decoded,
                layout,
                column: 0,
                done: 0,
                position: 0,
                cursor: Cursor::default(),
                uniformity,
            }),
            Err((index, reason)) => Err(Box::new(Mismatch { items, index, reason })),
        }
    }

    /// The columns.
    pub fn layout(&self) -> &BatchLayout {
        &self.layout
    }

    /// The items.
    pub fn items(&self) -> &[Drawn] {
        &self.items
    }

    /// Consumes the gatherer and returns the items, for a table that takes back draws that were not delivered.
    pub fn into_items(self) -> Vec<Drawn> {
        self.items
    }

    /// Number of bytes that are not written yet.
    pub fn remaining(&self) -> usize {
        self.layout.size_bytes - self.position
    }

    /// Gathers the whole batch into a new buffer.
    pub fn gather(&mut self) -> Buffer {
        let mut buffer = Buffer::new(self.layout.size_bytes);
        self.fill(buffer.as_uninit_mut());
        buffer
    }

    /// Writes the next `target.len()` bytes of the buffer, of which at least as many must remain.
    pub fn fill(&mut self, target: &mut [MaybeUninit<u8>]) {
        debug_assert!(target.len() <= self.remaining());
        // Moved out while they are read, because the position in the buffer changes meanwhile.
        let (items, decoded) = (std::mem::take(&mut self.items), std::mem::take(&mut self.decoded));
        let read = if decoded.is_empty() { &items } else { &decoded };
        if self.uniformity != Uniformity::Mixed
            && self.position == 0
            && target.len() == self.layout.size_bytes
            && !self.layout.has_strings()
        {
            copy_columns(target, &self.layout, &self.readable(read), self.uniformity == Uniformity::SameLayout);
            self.position = target.len();
        } else {
            self.fill_from(target, read);
        }
        self.items = items;
        // The items may be kept until the batch is delivered; their decoded rows are not needed any more.
        self.decoded = if self.remaining() > 0 { decoded } else { Vec::new() };
    }

    /// The rows of items that have as many rows of one chunk each; empty for other items.
    fn readable<'a>(&self, items: &'a [Drawn]) -> Vec<ReadableRows<'a>> {
        let mut rows = Vec::new();
        if self.uniformity != Uniformity::Mixed {
            #[cfg(test)]
            count_visits(items.len());
            rows.reserve_exact(items.len());
            rows.extend(items.iter().filter_map(|item| ReadableRows::of(&item.trajectory)));
        }
        rows
    }

    fn fill_from(&mut self, mut target: &mut [MaybeUninit<u8>], items: &[Drawn]) {
        // Looked up once for all columns that are written whole: reaching the bytes of an item takes three dependent
        // loads that are rarely cached. If no column is, no item is looked up that the target does not reach.
        let mut rows: Option<Vec<ReadableRows<'_>>> = None;
        while !target.is_empty() {
            let column = &self.layout.columns[self.column];
            let (offset, size) = (column.offset, column.size_bytes);
            let written = if self.position < offset {
                let padding = target.len().min(offset - self.position);
                target[..padding].fill(MaybeUninit::new(0));
                padding
            } else if size == 0 {
                self.next_column();
                0
            } else if self.done == 0 && size <= target.len() && column.dtype != DType::String {
                let rows = rows.get_or_insert_with(|| self.readable(items));
                self.whole_column(&mut target[..size], items, rows);
                self.next_column();
                size
            } else {
                let wanted = target.len().min(size - self.done);
                let piece = &mut target[..wanted];
                if column.dtype == DType::String {
                    self.string_piece(piece, items);
                } else {
                    self.piece(piece, items);
                }
                self.done += wanted;
                if self.done == size {
                    self.next_column();
                }
                wanted
            };
            self.position += written;
            target = &mut target[written..];
        }
    }

    fn next_column(&mut self) {
        self.column += 1;
        self.done = 0;
        self.cursor = Cursor::default();
    }

    fn whole_column(&self, mut target: &mut [MaybeUninit<u8>], items: &[Drawn], rows: &[ReadableRows<'_>]) {
        if !rows.is_empty() {
            return copy_column(target, rows, self.column, self.uniformity == Uniformity::SameLayout);
        }
        for item in items {
            for_each_segment(&item.trajectory, self.column, |bytes| {
                let (head, rest) = std::mem::take(&mut target).split_at_mut(bytes.len());
                copy(head, bytes);
                target = rest;
            });
        }
    }

    /// Writes part of a column of numbers, which may start and end anywhere.
    fn piece(&mut self, mut target: &mut [MaybeUninit<u8>], items: &[Drawn]) {
        if self.uniformity != Uniformity::Mixed {
            // Items of the same size. The rest of the one that was begun comes first, and then those that fit whole.
            let item_bytes = self.layout.columns[self.column].size_bytes / items.len();
            let (mut item, begun) = (self.done / item_bytes, self.done % item_bytes);
            if begun > 0 {
                let (head, rest) = target.split_at_mut(target.len().min(item_bytes - begun));
                Cursor::in_item(item, begun).write_numbers(head, items, self.column);
                item += 1;
                target = rest;
            }
            let rows = self.readable(&items[item..item + target.len() / item_bytes]);
            let (whole, rest) = target.split_at_mut(rows.len() * item_bytes);
            copy_column(whole, &rows, self.column, self.uniformity == Uniformity::SameLayout);
            self.cursor = Cursor::in_item(item + rows.len(), 0);
            target = rest;
        }
        self.cursor.write_numbers(target, items, self.column);
    }

    /// Writes part of a column of strings: zero, the ends of all strings, and the strings.
    fn string_piece(&mut self, mut target: &mut [MaybeUninit<u8>], items: &[Drawn]) {
        let strings: usize = self.layout.columns[self.column].shape.iter().product();
        let text = END_BYTES * (strings + 1);
        let mut place = self.done;
        while !target.is_empty() {
            let part = [END_BYTES, text, usize::MAX].into_iter().find(|&end| place < end).unwrap_or(usize::MAX);
            let (head, rest) = target.split_at_mut(target.len().min(part - place));
            match part {
                END_BYTES => head.fill(MaybeUninit::new(0)),
                usize::MAX => self.cursor.write_text(head, items, self.column),
                _ => self.cursor.write_ends(head, items, self.column),
            }
            place += head.len();
            target = rest;
            if place == text {
                // The strings begin where the ends began.
                self.cursor = Cursor::default();
            }
        }
    }
}
