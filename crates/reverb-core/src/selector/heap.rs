//! Lowest or highest priority first.

use super::by_slot::at;
use super::contract::Selector;
use rand::rngs::SmallRng;

/// Number of children of an entry: four children lie side by side in memory, and the heap has half as many levels as
/// with two.
const ARITY: usize = 4;

/// The priority that comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// MinHeap.
    LowestFirst,
    /// MaxHeap.
    HighestFirst,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// The priority, negated for [`Order::HighestFirst`].
    rank: f64,
    /// Number of the insert or update that placed the entry.
    place: u64,
    slot: u32,
}

impl Entry {
    fn before(&self, other: &Self) -> bool {
        self.rank < other.rank || (self.rank == other.rank && self.place < other.place)
    }
}

/// A heap that tracks the position of each slot: O(log n) for every change, O(1) for a choice.
#[derive(Debug)]
pub struct Heap {
    order: Order,
    entries: Vec<Entry>,
    /// Index into `entries`, by slot.
    positions: Vec<u32>,
    next_place: u64,
}

impl Heap {
    /// Creates an empty heap.
    pub fn new(order: Order) -> Self {
        Self { order, entries: Vec::new(), positions: Vec::new(), next_place: 1 }
    }

    fn entry(&self, slot: u32, priority: f64, place: u64) -> Entry {
        let rank = match self.order {
            Order::LowestFirst => priority,
            Order::HighestFirst => -priority,
        };
        Entry { rank, place, slot }
    }

    /// Takes the place after all others.
    pub fn new_place(&mut self) -> u64 {
        self.next_place += 1;
        self.next_place - 1
    }

    fn put(&mut self, index: usize, entry: Entry) {
        self.entries[index] = entry;
        self.positions[entry.slot as usize] = index as u32;
    }

    /// Moves an entry to its position, starting from a hole at `index`.
    fn settle(&mut self, index: usize, entry: Entry) {
        let risen = self.rise(index, &entry);
        let index = if risen == index { self.sink(index, &entry) } else { risen };
        self.put(index, entry);
    }

    fn rise(&mut self, mut hole: usize, entry: &Entry) -> usize {
        while hole > 0 {
            let parent = (hole - 1) / ARITY;
            if !entry.before(&self.entries[parent]) {
                break;
            }
            self.put(hole, self.entries[parent]);
            hole = parent;
        }
        hole
    }

    fn sink(&mut self, mut hole: usize, entry: &Entry) -> usize {
        loop {
            let first = hole * ARITY + 1;
            let children = first..(first + ARITY).min(self.entries.len());
            let best = children.reduce(
                |best, child| {
                    if self.entries[child].before(&self.entries[best]) { child } else { best }
                },
            );
            match best.filter(|&child| self.entries[child].before(entry)) {
                Some(child) => {
                    self.put(hole, self.entries[child]);
                    hole = child;
                }
                None => return hole,
            }
        }
    }
}

impl Selector for Heap {
    fn insert(&mut self, slot: u32, priority: f64) {
        let place = self.new_place();
        self.insert_at(slot, priority, place);
    }

    fn update(&mut self, slot: u32, priority: f64) {
        let place = self.new_place();
        let entry = self.entry(slot, priority, place);
        self.settle(self.positions[slot as usize] as usize, entry);
    }

    fn remove(&mut self, slot: u32) {
        let index = self.positions[slot as usize] as usize;
        let last = self.entries.pop().expect("the heap holds the slot");
        if index < self.entries.len() {
            self.settle(index, last);
        }
    }

    fn sample(&mut self, _rng: &mut SmallRng) -> (u32, f64) {
        (self.entries[0].slot, 1.0)
    }

    fn take(&mut self) -> Self {
        let empty = Self { next_place: self.next_place, ..Self::new(self.order) };
        std::mem::replace(self, empty)
    }

    fn place(&self, slot: u32) -> u64 {
        self.entries[self.positions[slot as usize] as usize].place
    }

    fn insert_at(&mut self, slot: u32, priority: f64, place: u64) {
        let entry = self.entry(slot, priority, place);
        at(&mut self.positions, slot);
        self.entries.push(entry);
        self.settle(self.entries.len() - 1, entry);
    }

    fn held_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.positions.capacity() * size_of::<u32>()
    }
}
