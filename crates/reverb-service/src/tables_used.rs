//! Which tables of a server a peer has used.

use parking_lot::RwLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The place of a table among those of its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place(pub usize);

impl Place {
    /// That of a table which belongs to no server, or is there for measurements only.
    pub const NONE: Self = Self(usize::MAX);
}

/// A set of tables that only grows. A table that is in it costs a read of one number.
#[derive(Debug, Default)]
pub struct TablesUsed {
    /// The first 64 tables, one bit each.
    first: AtomicU64,
    /// The others, one bit each.
    others: RwLock<Vec<u64>>,
}

impl TablesUsed {
    /// Adds a table.
    #[inline]
    pub fn add(&self, Place(place): Place) {
        if place >= 64 {
            self.add_other(place);
        } else if self.first.load(Relaxed) & 1 << place == 0 {
            self.first.fetch_or(1 << place, Relaxed);
        }
    }

    #[cold]
    fn add_other(&self, place: usize) {
        let (word, bit) = (place / 64 - 1, 1 << (place % 64));
        let has_bit = |words: &[u64]| words.get(word).is_some_and(|bits| bits & bit != 0);
        if Place(place) == Place::NONE || has_bit(&self.others.read()) {
            return;
        }
        let mut words = self.others.write();
        let length = words.len().max(word + 1);
        words.resize(length, 0);
        words[word] |= bit;
    }

    /// Returns the places of its tables.
    pub fn places(&self) -> Vec<usize> {
        let others = self.others.read();
        let places = |(word, bits): (usize, u64)| {
            (0..64).filter(move |bit| bits & 1 << bit != 0).map(move |bit| 64 * word + bit)
        };
        std::iter::once(self.first.load(Relaxed)).chain(others.iter().copied()).enumerate().flat_map(places).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_tables_are_told_in_their_order() {
        let used = TablesUsed::default();
        assert_eq!(used.places(), []);
        for place in [700, 3, 63, 64, 3, 127, 128, 0, 700] {
            used.add(Place(place));
        }
        used.add(Place::NONE);
        assert_eq!(used.places(), [0, 3, 63, 64, 127, 128, 700]);
        assert_eq!(used.others.read().len(), 10, "one bit a table");
    }
}
