//! Items on their way to the server, by number.

use reverb_core::writer::WriterItem;
use std::collections::VecDeque;

/// Items that were handed over in the order of their numbers, and are answered in any order. A window of places from the
/// first that is not answered to the last: nearly all are taken, so no search is needed.
#[derive(Debug, Default)]
pub struct InFlight {
    /// Number of the first place.
    first: u64,
    places: VecDeque<Option<WriterItem>>,
    len: usize,
}

impl InFlight {
    /// Adds an item whose number is above all before.
    pub fn push(&mut self, sequence: u64, item: WriterItem) {
        if self.places.is_empty() {
            self.first = sequence;
        }
        // Numbers between were answered before the road was lost and the others were sent again.
        while self.first + (self.places.len() as u64) < sequence {
            self.places.push_back(None);
        }
        self.places.push_back(Some(item));
        self.len += 1;
    }

    /// Takes an item out, if it is there.
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

    /// Number of the first item.
    pub fn first(&self) -> Option<u64> {
        (!self.places.is_empty()).then_some(self.first)
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The items in order.
    pub fn items(&self) -> impl Iterator<Item = &WriterItem> {
        self.places.iter().flatten()
    }

    /// Takes all items out, in order, with their numbers.
    pub fn take_all(&mut self) -> impl DoubleEndedIterator<Item = (u64, WriterItem)> + use<> {
        let Self { first, places, .. } = std::mem::take(self);
        places.into_iter().enumerate().filter_map(move |(index, item)| Some((first + index as u64, item?)))
    }
}
