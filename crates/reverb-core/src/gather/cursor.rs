//! The place in a column up to which its bytes were written. The next piece continues there.

use super::columns::{segment, text};
use crate::chunk::Text;
use crate::copy::copy;
use crate::{Drawn, Trajectory};
use std::mem::MaybeUninit;

/// Size in bytes of the end of a string.
pub(crate) const END_BYTES: usize = size_of::<u32>();

/// A place in a column of the items of a batch.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    item: usize,
    /// The slice of the item.
    slice: usize,
    /// Number of bytes of the slice that were written.
    done: usize,
    /// Number of bytes of the strings in the slices before.
    text_before: usize,
}

impl Cursor {
    /// A place in an item of one slice, `done` bytes after its start.
    pub(super) fn in_item(item: usize, done: usize) -> Self {
        Self { item, done, ..Self::default() }
    }

    /// Writes the next bytes of a column of numbers, of which at least as many must remain.
    pub(super) fn write_numbers(&mut self, target: &mut [MaybeUninit<u8>], items: &[Drawn], column: usize) {
        self.write(target, items, |trajectory, slice| segment(trajectory, column, slice));
    }

    /// Writes the next bytes of the strings of a column, of which at least as many must remain.
    pub(super) fn write_text(&mut self, target: &mut [MaybeUninit<u8>], items: &[Drawn], column: usize) {
        self.write(target, items, |trajectory, slice| text(trajectory, column, slice).map(|text| text.bytes));
    }

    /// Writes the next bytes of the ends of the strings of a column, of which at least as many must remain. The piece
    /// may begin and end within an end.
    pub(super) fn write_ends(&mut self, mut target: &mut [MaybeUninit<u8>], items: &[Drawn], column: usize) {
        while !target.is_empty() {
            let Some(text) = text(&items[self.item].trajectory, column, self.slice) else {
                self.next_item();
                continue;
            };
            let size = END_BYTES * text.len();
            while self.done < size && !target.is_empty() {
                let end = self.end_of(text).to_le_bytes();
                let end = &end[self.done % END_BYTES..];
                target = self.put(target, end);
            }
            if self.done == size {
                self.text_before += text.bytes.len();
                self.next_slice();
            }
        }
    }

    fn write<'a>(
        &mut self,
        mut target: &mut [MaybeUninit<u8>],
        items: &'a [Drawn],
        segment: impl Fn(&'a Trajectory, usize) -> Option<&'a [u8]>,
    ) {
        while !target.is_empty() {
            let Some(bytes) = segment(&items[self.item].trajectory, self.slice) else {
                self.next_item();
                continue;
            };
            target = self.put(target, &bytes[self.done..]);
            if self.done == bytes.len() {
                self.next_slice();
            }
        }
    }

    /// The end that is written next, in the whole column. Tables refuse batches in which it would not fit.
    fn end_of(&self, text: Text<'_>) -> u32 {
        (self.text_before + text.end(self.done / END_BYTES)) as u32
    }

    /// Writes as many of the bytes as fit. Returns the rest of the target.
    fn put<'t>(&mut self, target: &'t mut [MaybeUninit<u8>], bytes: &[u8]) -> &'t mut [MaybeUninit<u8>] {
        let now = bytes.len().min(target.len());
        let (head, rest) = target.split_at_mut(now);
        copy(head, &bytes[..now]);
        self.done += now;
        rest
    }

    fn next_slice(&mut self) {
        self.slice += 1;
        self.done = 0;
    }

    fn next_item(&mut self) {
        self.item += 1;
        self.slice = 0;
    }
}
