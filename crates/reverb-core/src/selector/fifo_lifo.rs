//! First or last in, first out: one list in the order of insertion, from which either end is taken.

use super::by_slot::at;
use super::contract::Selector;
use rand::rngs::SmallRng;
use std::collections::BTreeMap;

const NONE: u32 = u32::MAX;
/// The bit of the places of marked slots.
const MARK: u64 = 1;
/// The mean number of slots from one marked slot to the next.
const MEAN_DISTANCE: u64 = 256;

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
    /// Places are even, those of marked slots odd. A slot keeps its place when it is put back, and so its mark.
    next_place: u64,
    /// The next place to be marked. The distances are random, because slots that are removed together often have
    /// regular places, such as the first row of each batch.
    next_mark: u64,
    /// The marked slots by place.
    marks: BTreeMap<u64, u32>,
}

impl Queue {
    /// Creates an empty queue.
    pub fn new(end: End) -> Self {
        Self { end, nodes: Vec::new(), oldest: NONE, newest: NONE, next_place: 2, next_mark: 2, marks: BTreeMap::new() }
    }

    /// The next slot, if this queue takes the oldest and is not empty.
    #[inline]
    pub fn oldest(&self) -> Option<u32> {
        (self.end == End::Oldest && self.oldest != NONE).then_some(self.oldest)
    }

    /// All slots in the order of insertion, or in reverse order.
    pub fn in_order(&self, newest_first: bool) -> impl Iterator<Item = u32> {
        self.from(if newest_first { self.newest } else { self.oldest }, newest_first)
    }

    /// The slots from one on, towards the oldest or the newest.
    fn from(&self, slot: u32, to_older: bool) -> impl Iterator<Item = u32> {
        let exists = |&slot: &u32| slot != NONE;
        let next = move |&slot: &u32| {
            let Node { older, newer, .. } = self.nodes[slot as usize];
            Some(if to_older { older } else { newer }).filter(exists)
        };
        std::iter::successors(Some(slot).filter(exists), next)
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
    }

    /// Adds a slot and marks it.
    #[cold]
    fn insert_marked(&mut self, slot: u32) {
        let place = self.next_place | MARK;
        self.next_mark = self.next_place + 2 * rand::random_range(1..2 * MEAN_DISTANCE);
        self.next_place += 2;
        self.marks.insert(place, slot);
        self.link(slot, self.newest, NONE, place);
    }

    #[cold]
    fn remove_and_insert(&mut self, slot: u32) {
        self.remove(slot);
        self.insert(slot, 0.0);
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
        self.from(start, false).take_while(is_older)
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
        if place == self.next_mark {
            return self.insert_marked(slot);
        }
        self.next_place += 2;
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
        if place & MARK != 0 {
            self.unmark(place);
        }
    }

    /// In a full table whose oldest item leaves, every insert moves the oldest slot to the other end.
    #[inline]
    fn replace(&mut self, slot: u32, _priority: f64) {
        let Node { older, newer, place: old_place } = self.nodes[slot as usize];
        let place = self.next_place;
        if older != NONE || newer == NONE || old_place & MARK != 0 || place == self.next_mark {
            return self.remove_and_insert(slot);
        }
        self.oldest = newer;
        self.nodes[newer as usize].older = NONE;
        self.nodes[self.newest as usize].newer = slot;
        self.nodes[slot as usize] = Node { older: self.newest, newer: NONE, place };
        self.newest = slot;
        self.next_place += 2;
    }

    fn sample(&mut self, _rng: &mut SmallRng) -> (u32, f64) {
        let slot = match self.end {
            End::Oldest => self.oldest,
            End::Newest => self.newest,
        };
        (slot, 1.0)
    }

    fn take(&mut self) -> Self {
        let empty = Self { next_place: self.next_place, next_mark: self.next_mark, ..Self::new(self.end) };
        std::mem::replace(self, empty)
    }

    fn place(&self, slot: u32) -> u64 {
        self.nodes[slot as usize].place
    }

    fn insert_at(&mut self, slot: u32, _priority: f64, place: u64) {
        let (older, newer) = self.around(place);
        if place & MARK != 0 {
            self.marks.insert(place, slot);
        }
        self.link(slot, older, newer, place);
    }

    fn held_bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>() + self.marks.len() * size_of::<(u64, u32)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_any_slot_is_found_in_few_steps_whatever_has_left() {
        const SLOTS: u32 = 100_000;
        let removals: [fn(u32) -> bool; 4] = [|_| false, |slot| slot % 2 == 0, |slot| slot % 256 != 1, |_| true];
        for leaves in removals {
            let mut queue = Queue::new(End::Oldest);
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
            assert!(longest < 16_384, "{longest} steps");
            assert!(queue.in_order(false).eq(0..SLOTS));
        }
    }
}
