//! The items of a writer that were sent and are not confirmed, by sequence number.

use reverb_core::writer::WriterItem;
use std::collections::VecDeque;

/// Items that are sent in the order of their sequence numbers and confirmed in any order. A window of places, from the
/// first unconfirmed item to the last sent one. Items are found by index, and nearly all places are taken.
#[derive(Debug, Default)]
pub struct InFlight {
    /// Sequence number of the first place.
    first: u64,
    places: VecDeque<Option<WriterItem>>,
    len: usize,
}

impl InFlight {
    /// Adds an item. Its number must be greater than all numbers before.
    pub fn push(&mut self, sequence: u64, item: WriterItem) {
        if self.places.is_empty() {
            self.first = sequence;
        }
        // Numbers in between were confirmed before the road was lost. Only the other items are sent again.
        while self.first + (self.places.len() as u64) < sequence {
            self.places.push_back(None);
        }
        self.places.push_back(Some(item));
        self.len += 1;
    }

    /// Removes and returns an item, if it is there.
    pub fn remove(&mut self, sequence: u64) -> Option<WriterItem> {
        let index = usize::try_from(sequence.checked_sub(self.first)?).ok()?;
        let item = self.places.get_mut(index)?.take()?;
        self.len -= 1;
        while let Some(None) = self.places.front() {
            self.places.pop_front();
            self.first += 1;
        }
        Some(item)
    }

    /// Returns the sequence number of the first item.
    pub fn first(&self) -> Option<u64> {
        (!self.places.is_empty()).then_some(self.first)
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Iterates over the items in order.
    pub fn items(&self) -> impl Iterator<Item = &WriterItem> {
        self.places.iter().flatten()
    }

    /// Removes all items. Returns them in order, with their numbers.
    pub fn take_all(&mut self) -> impl DoubleEndedIterator<Item = (u64, WriterItem)> + use<> {
        let Self { first, places, .. } = std::mem::take(self);
        places.into_iter().enumerate().filter_map(move |(index, item)| Some((first + index as u64, item?)))
    }
}
