//! First or last in, first out: one list in the order of insertion, from which either end is taken.

use super::by_slot::at;
use super::contract::Selector;
use rand::rngs::SmallRng;
use std::collections::BTreeMap;

const NONE: u32 = u32::MAX;

/// The end of the list from which slots are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Fifo.
    Oldest,
    /// Lifo.
    Newest,
}

#[derive(Debug, Clone, Copy, Default)]
struct Node {
    older: u32,
    newer: u32,
    place: u64,
}

/// A doubly linked list in an array indexed by slots. Every operation is O(1), except that [`Selector::insert_at`]
/// searches the marked slots in O(log n) and then walks past a few hundred slots.
#[derive(Debug)]
pub struct Queue {
    end: End,
    nodes: Vec<Node>,
    oldest: u32,
    newest: u32,
    next_place: u64,
    /// The marked slots by place: about one of 256 slots.
    marks: BTreeMap<u64, u32>,
    /// Decides which places are marked. Random, so that nobody can choose to remove the marked slots only.
    seed: u64,
}

impl Queue {
    /// Creates an empty queue.
    pub fn new(end: End) -> Self {
        Self {
            end,
            nodes: Vec::new(),
            oldest: NONE,
            newest: NONE,
            next_place: 1,
            marks: BTreeMap::new(),
            seed: rand::random(),
        }
    }

    /// The next slot, if this queue takes the oldest and is not empty.
    #[inline]
    pub fn oldest(&self) -> Option<u32> {
        (self.end == End::Oldest && self.oldest != NONE).then_some(self.oldest)
    }

    #[inline]
    fn link(&mut self, slot: u32, older: u32, newer: u32, place: u64) {
        *at(&mut self.nodes, slot) = Node { older, newer, place };
        match older {
            NONE => self.oldest = slot,
            _ => self.nodes[older as usize].newer = slot,
        }
        match newer {
            NONE => self.newest = slot,
            _ => self.nodes[newer as usize].older = slot,
        }
        if self.is_marked(place) {
            self.mark(place, slot);
        }
    }

    /// Whether the slot at a place is marked. The places are chosen by a hash, because items that leave together often
    /// have regular places, such as the first row of each batch.
    #[inline]
    fn is_marked(&self, place: u64) -> bool {
        (place ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56 == 0
    }

    #[cold]
    fn mark(&mut self, place: u64, slot: u32) {
        self.marks.insert(place, slot);
    }

    #[cold]
    fn unmark(&mut self, place: u64) {
        self.marks.remove(&place);
    }

    /// The slots older than a place, from the last marked one on.
    fn older_than(&self, place: u64) -> impl Iterator<Item = u32> {
        let is_older = move |&slot: &u32| slot != NONE && self.nodes[slot as usize].place < place;
        let start = match self.marks.range(..place).next_back() {
            // Most draws that return were the newest or the oldest.
            _ if is_older(&self.newest) => self.newest,
            Some((_, &marked)) => marked,
            None => self.oldest,
        };
        self.from(start).take_while(is_older)
    }

    /// The slots from one on, towards the newest.
    fn from(&self, slot: u32) -> impl Iterator<Item = u32> {
        let exists = |&slot: &u32| slot != NONE;
        let newer = move |&slot: &u32| Some(self.nodes[slot as usize].newer).filter(exists);
        std::iter::successors(Some(slot).filter(exists), newer)
    }

    /// The neighbours of a place.
    fn around(&self, place: u64) -> (u32, u32) {
        match self.older_than(place).last() {
            Some(older) => (older, self.nodes[older as usize].newer),
            None => (NONE, self.oldest),
        }
    }
}

impl Selector for Queue {
    #[inline]
    fn insert(&mut self, slot: u32, _priority: f64) {
        let place = self.next_place;
        self.next_place += 1;
        self.link(slot, self.newest, NONE, place);
    }

    fn update(&mut self, _slot: u32, _priority: f64) {}

    #[inline]
    fn remove(&mut self, slot: u32) {
        let Node { older, newer, place } = self.nodes[slot as usize];
        match older {
            NONE => self.oldest = newer,
            _ => self.nodes[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            _ => self.nodes[newer as usize].older = older,
        }
        if self.is_marked(place) {
            self.unmark(place);
        }
    }

    fn sample(&mut self, _rng: &mut SmallRng) -> (u32, f64) {
        let slot = match self.end {
            End::Oldest => self.oldest,
            End::Newest => self.newest,
        };
        (slot, 1.0)
    }

    fn take(&mut self) -> Self {
        let empty = Self { next_place: self.next_place, seed: self.seed, ..Self::new(self.end) };
        std::mem::replace(self, empty)
    }

    fn place(&self, slot: u32) -> u64 {
        self.nodes[slot as usize].place
    }

    fn insert_at(&mut self, slot: u32, _priority: f64, place: u64) {
        let (older, newer) = self.around(place);
        self.link(slot, older, newer, place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_any_slot_is_found_in_few_steps_whatever_has_left() {
        const SLOTS: u32 = 100_000;
        let removals: [fn(u32) -> bool; 4] = [|_| false, |slot| slot % 2 == 0, |slot| slot % 256 != 0, |_| true];
        for leaves in removals {
            let mut queue = Queue { seed: 1, ..Queue::new(End::Oldest) };
            (0..SLOTS).for_each(|slot| queue.insert(slot, 0.0));
            let places: Vec<u64> = (0..SLOTS).map(|slot| queue.place(slot)).collect();
            (0..SLOTS).filter(|&slot| leaves(slot)).for_each(|slot| queue.remove(slot));
            let mut longest = 0;
            // Last drawn first, and scattered over the whole list.
            for slot in (0..7).flat_map(|rest| (0..SLOTS).rev().filter(move |slot| slot % 7 == rest)) {
                let place = places[slot as usize];
                longest = longest.max(queue.older_than(place).count());
                if leaves(slot) {
                    queue.insert_at(slot, 0.0, place);
                }
            }
            assert!(longest < 4096, "{longest} steps");
            assert!(queue.from(queue.oldest).eq(0..SLOTS));
        }
    }
}
