//! Draws in which all items have the same probability.

use super::by_slot::at;
use super::contract::Selector;
use crate::prefetch::prefetch;
use rand::{Rng, rngs::SmallRng};

/// The slots in an array without holes, and the position of each slot in it. Every operation is O(1).
#[derive(Debug, Default)]
pub struct Uniform {
    slots: Vec<u32>,
    /// Index into `slots`, by slot.
    positions: Vec<u32>,
}

impl Uniform {
    /// Number of slots.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether the selector has no slots.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

impl Selector for Uniform {
    #[inline]
    fn insert(&mut self, slot: u32, _priority: f64) {
        *at(&mut self.positions, slot) = self.slots.len() as u32;
        self.slots.push(slot);
    }

    #[inline]
    fn update(&mut self, _slot: u32, _priority: f64) {}

    #[inline]
    fn remove(&mut self, slot: u32) {
        let position = self.positions[slot as usize];
        self.slots.swap_remove(position as usize);
        if let Some(&moved) = self.slots.get(position as usize) {
            self.positions[moved as usize] = position;
        }
    }

    #[inline]
    fn replace(&mut self, _slot: u32, _priority: f64) {}

    #[inline]
    fn sample(&mut self, rng: &mut SmallRng) -> (u32, f64) {
        let count = self.slots.len();
        let slot = self.slots[rng.random_range(0..count as u32) as usize];
        (slot, 1.0 / count as f64)
    }

    /// Most of ten million slots are not cached, so all are prefetched before the first is read.
    #[inline]
    fn sample_many(&mut self, rng: &mut SmallRng, draws: &mut [(u32, f64)]) {
        let count = self.slots.len();
        for draw in &mut *draws {
            let position = rng.random_range(0..count as u32);
            prefetch(&raw const self.slots[position as usize]);
            *draw = (position, 1.0 / count as f64);
        }
        for (slot, _) in draws {
            *slot = self.slots[*slot as usize];
        }
    }

    fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    fn place(&self, _slot: u32) -> u64 {
        0
    }

    fn insert_at(&mut self, slot: u32, priority: f64, _place: u64) {
        self.insert(slot, priority);
    }

    fn held_bytes(&self) -> usize {
        (self.slots.capacity() + self.positions.capacity()) * size_of::<u32>()
    }
}
