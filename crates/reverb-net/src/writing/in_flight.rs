//! The items of a writer that were sent and are not confirmed, by sequence number.

use reverb_core::writer::WriterItem;
use std::collections::VecDeque;

/// Number of places without an item that stay in the queue whatever the number of its items.
const FREE_PLACES: usize = 64;

/// Items that are sent in the order of their sequence numbers and confirmed in any order.
///
/// A confirmed item leaves its place empty. Places without an item are removed at the front, and everywhere once they
/// are more than the items. So the memory grows with the items, whatever the number of items that were confirmed while
/// the first waits.
#[derive(Debug, Default)]
pub struct InFlight {
    /// Sequence numbers in order, each with its item unless that is confirmed. The first place has an item.
    places: VecDeque<(u64, Option<WriterItem>)>,
    len: usize,
}

impl InFlight {
    /// Adds an item. Its number must be greater than all numbers before.
    pub fn push(&mut self, sequence: u64, item: WriterItem) {
        self.places.push_back((sequence, Some(item)));
        self.len += 1;
    }

    /// Removes and returns an item, if it is there.
    pub fn remove(&mut self, sequence: u64) -> Option<WriterItem> {
        let index = self.find(sequence)?;
        let item = self.places[index].1.take()?;
        self.len -= 1;
        while let Some((_, None)) = self.places.front() {
            self.places.pop_front();
        }
        if self.places.len() > 2 * self.len + FREE_PLACES {
            self.places.retain(|(_, item)| item.is_some());
            self.places.shrink_to(2 * self.places.len() + FREE_PLACES);
        }
        Some(item)
    }

    /// Returns the index of the place with this number.
    fn find(&self, sequence: u64) -> Option<usize> {
        // The numbers at the back are mostly consecutive, whatever was confirmed before them.
        let &(last, _) = self.places.back()?;
        let from_back = usize::try_from(last.checked_sub(sequence)?).ok()?;
        if let Some(index) = (self.places.len() - 1).checked_sub(from_back)
            && self.places[index].0 == sequence
        {
            return Some(index);
        }
        self.places.binary_search_by_key(&sequence, |&(number, _)| number).ok()
    }

    /// Returns the sequence number of the first item.
    pub fn first(&self) -> Option<u64> {
        self.places.front().map(|&(sequence, _)| sequence)
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Iterates over the items in order.
    pub fn items(&self) -> impl Iterator<Item = &WriterItem> {
        self.places.iter().filter_map(|(_, item)| item.as_ref())
    }

    /// Removes all items. Returns them in order, with their numbers.
    pub fn take_all(&mut self) -> impl DoubleEndedIterator<Item = (u64, WriterItem)> + use<> {
        std::mem::take(self).places.into_iter().filter_map(|(sequence, item)| Some((sequence, item?)))
    }
}
