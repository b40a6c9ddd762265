//! First or last in, first out: one list in the order of insertion, from which either end is taken.

use super::by_slot::at;
use super::contract::Selector;
use rand::rngs::SmallRng;

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

/// A doubly linked list in an array indexed by slots. Every operation except [`Selector::insert_at`] is O(1).
#[derive(Debug)]
pub struct Queue {
    end: End,
    nodes: Vec<Node>,
    oldest: u32,
    newest: u32,
    next_place: u64,
}

impl Queue {
    /// Creates an empty queue.
    pub fn new(end: End) -> Self {
        Self { end, nodes: Vec::new(), oldest: NONE, newest: NONE, next_place: 1 }
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
    }

    /// The neighbours of a place, searched from the end that is nearer in time.
    fn around(&self, place: u64) -> (u32, u32) {
        if self.oldest == NONE {
            return (NONE, NONE);
        }
        let place_of = |slot: u32| self.nodes[slot as usize].place;
        let from_oldest = place.saturating_sub(place_of(self.oldest));
        let from_newest = place_of(self.newest).saturating_sub(place);
        if from_oldest <= from_newest {
            let mut newer = self.oldest;
            while newer != NONE && place_of(newer) < place {
                newer = self.nodes[newer as usize].newer;
            }
            let older = match newer {
                NONE => self.newest,
                _ => self.nodes[newer as usize].older,
            };
            (older, newer)
        } else {
            let mut older = self.newest;
            while older != NONE && place_of(older) > place {
                older = self.nodes[older as usize].older;
            }
            let newer = match older {
                NONE => self.oldest,
                _ => self.nodes[older as usize].newer,
            };
            (older, newer)
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
        let Node { older, newer, .. } = self.nodes[slot as usize];
        match older {
            NONE => self.oldest = newer,
            _ => self.nodes[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            _ => self.nodes[newer as usize].older = older,
        }
    }

    fn sample(&mut self, _rng: &mut SmallRng) -> (u32, f64) {
        let slot = match self.end {
            End::Oldest => self.oldest,
            End::Newest => self.newest,
        };
        (slot, 1.0)
    }

    fn clear(&mut self) {
        *self = Self { next_place: self.next_place, ..Self::new(self.end) };
    }

    fn place(&self, slot: u32) -> u64 {
        self.nodes[slot as usize].place
    }

    fn insert_at(&mut self, slot: u32, _priority: f64, place: u64) {
        let (older, newer) = self.around(place);
        self.link(slot, older, newer, place);
    }
}
