//! Draws with a probability proportional to a power of the priority.

use super::contract::Selector;
use super::kind::weight;
use super::sum_tree::SumTree;
use super::uniform::Uniform;
use rand::{Rng, rngs::SmallRng};

/// Weights in a tree of sums: O(log n) for every change and every draw. While all weights are 0, all slots have the
/// same probability.
#[derive(Debug)]
pub struct Prioritized {
    exponent: f64,
    weights: SumTree,
    /// All slots, for draws while all weights are 0.
    all: Uniform,
    /// Number of slots with a weight above 0. A count, because a sum of zeros must not be recognised by its value.
    num_weighted: usize,
    /// The last priority and its weight: items of a batch often have the same priority, and a power is expensive.
    last: (f64, f64),
}

impl Prioritized {
    /// Creates an empty selector.
    pub fn new(exponent: f64) -> Self {
        Self { exponent, weights: SumTree::default(), all: Uniform::default(), num_weighted: 0, last: (0.0, 0.0) }
    }

    /// The probability of a slot.
    pub fn probability(&mut self, slot: u32) -> f64 {
        if self.num_weighted == 0 { 1.0 / self.all.len() as f64 } else { self.weights.get(slot) / self.weights.total() }
    }

    /// The sum of the weights of all slots; exactly 0 while all weights are 0.
    #[inline]
    pub fn total_weight(&mut self) -> f64 {
        self.weights.total()
    }

    fn weight(&mut self, priority: f64) -> f64 {
        if self.last.0 != priority {
            self.last = (priority, weight(self.exponent, priority));
        }
        self.last.1
    }

    #[inline]
    fn set(&mut self, slot: u32, weight: f64) {
        let old = self.weights.set(slot, weight);
        self.num_weighted += usize::from(weight > 0.0);
        self.num_weighted -= usize::from(old > 0.0);
    }
}

impl Selector for Prioritized {
    fn insert(&mut self, slot: u32, priority: f64) {
        self.all.insert(slot, priority);
        let weight = self.weight(priority);
        self.set(slot, weight);
    }

    #[inline]
    fn update(&mut self, slot: u32, priority: f64) {
        let weight = self.weight(priority);
        self.set(slot, weight);
    }

    fn remove(&mut self, slot: u32) {
        self.all.remove(slot);
        self.set(slot, 0.0);
    }

    #[inline]
    fn replace(&mut self, slot: u32, priority: f64) {
        self.update(slot, priority);
    }

    #[inline]
    fn sample(&mut self, rng: &mut SmallRng) -> (u32, f64) {
        if self.num_weighted == 0 {
            return self.all.sample(rng);
        }
        let total = self.weights.total();
        let (slot, weight) = self.weights.find(rng.random::<f64>() * total);
        (slot, weight / total)
    }

    fn sample_many(&mut self, rng: &mut SmallRng, draws: &mut [(u32, f64)]) {
        if self.num_weighted == 0 {
            return self.all.sample_many(rng, draws);
        }
        let total = self.weights.total();
        draws.iter_mut().for_each(|(_, target)| *target = rng.random::<f64>() * total);
        self.weights.find_many(draws);
        draws.iter_mut().for_each(|(_, weight)| *weight /= total);
    }

    fn take(&mut self) -> Self {
        let empty = Self::new(self.exponent);
        std::mem::replace(self, empty)
    }

    fn place(&self, _slot: u32) -> u64 {
        0
    }

    fn insert_at(&mut self, slot: u32, priority: f64, _place: u64) {
        self.insert(slot, priority);
    }

    fn held_bytes(&self) -> usize {
        self.weights.held_bytes() + self.all.held_bytes()
    }
}
