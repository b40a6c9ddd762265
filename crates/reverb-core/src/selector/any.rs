//! A selector of any kind.

use super::contract::Selector;
use super::fifo_lifo::{End, Queue};
use super::heap::{Heap, Order};
use super::kind::SelectorKind;
use super::prioritized::Prioritized;
use super::uniform::Uniform;
use rand::rngs::SmallRng;

/// Any of the selectors. An enum, so that calls on the hot path are direct.
#[derive(Debug)]
pub enum AnySelector {
    /// Fifo or Lifo.
    Queue(Queue),
    /// Uniform.
    Uniform(Uniform),
    /// Prioritized.
    Prioritized(Prioritized),
    /// MinHeap or MaxHeap.
    Heap(Heap),
}

impl AnySelector {
    /// Creates an empty selector of this kind.
    pub fn new(kind: &SelectorKind) -> Self {
        match kind {
            SelectorKind::Fifo => Self::Queue(Queue::new(End::Oldest)),
            SelectorKind::Lifo => Self::Queue(Queue::new(End::Newest)),
            SelectorKind::Uniform => Self::Uniform(Uniform::default()),
            SelectorKind::Prioritized { priority_exponent } => Self::Prioritized(Prioritized::new(*priority_exponent)),
            SelectorKind::MinHeap => Self::Heap(Heap::new(Order::LowestFirst)),
            SelectorKind::MaxHeap => Self::Heap(Heap::new(Order::HighestFirst)),
        }
    }

    /// The sum of the weights of all slots; `None` if this selector has no weights.
    pub fn total_weight(&mut self) -> Option<f64> {
        match self {
            Self::Prioritized(prioritized) => Some(prioritized.total_weight()),
            _ => None,
        }
    }

    /// The queue, if this selector is one.
    pub fn queue(&self) -> Option<&Queue> {
        match self {
            Self::Queue(queue) => Some(queue),
            _ => None,
        }
    }

    /// Whether the order is that of priorities.
    pub fn is_heap(&self) -> bool {
        matches!(self, Self::Heap(_))
    }

    /// Takes the place after all others; 0 if the order is that of the inserts or there is none.
    pub fn new_place(&mut self) -> u64 {
        match self {
            Self::Heap(heap) => heap.new_place(),
            _ => 0,
        }
    }

    /// The next slot, if this selector always takes the oldest and is not empty.
    #[inline]
    pub fn oldest(&self) -> Option<u32> {
        match self {
            Self::Queue(queue) => queue.oldest(),
            _ => None,
        }
    }
}

macro_rules! dispatch {
    ($self:ident, $selector:ident => $call:expr) => {
        match $self {
            AnySelector::Queue($selector) => $call,
            AnySelector::Uniform($selector) => $call,
            AnySelector::Prioritized($selector) => $call,
            AnySelector::Heap($selector) => $call,
        }
    };
}

impl Selector for AnySelector {
    #[inline]
    fn insert(&mut self, slot: u32, priority: f64) {
        dispatch!(self, selector => selector.insert(slot, priority));
    }

    #[inline]
    fn update(&mut self, slot: u32, priority: f64) {
        dispatch!(self, selector => selector.update(slot, priority));
    }

    #[inline]
    fn remove(&mut self, slot: u32) {
        dispatch!(self, selector => selector.remove(slot));
    }

    #[inline]
    fn replace(&mut self, slot: u32, priority: f64) {
        dispatch!(self, selector => selector.replace(slot, priority));
    }

    #[inline]
    fn sample(&mut self, rng: &mut SmallRng) -> (u32, f64) {
        dispatch!(self, selector => selector.sample(rng))
    }

    #[inline]
    fn sample_many(&mut self, rng: &mut SmallRng, draws: &mut [(u32, f64)]) {
        dispatch!(self, selector => selector.sample_many(rng, draws));
    }

    fn take(&mut self) -> Self {
        match self {
            Self::Queue(queue) => Self::Queue(queue.take()),
            Self::Uniform(uniform) => Self::Uniform(uniform.take()),
            Self::Prioritized(prioritized) => Self::Prioritized(prioritized.take()),
            Self::Heap(heap) => Self::Heap(heap.take()),
        }
    }

    fn place(&self, slot: u32) -> u64 {
        dispatch!(self, selector => selector.place(slot))
    }

    fn insert_at(&mut self, slot: u32, priority: f64, place: u64) {
        dispatch!(self, selector => selector.insert_at(slot, priority, place));
    }

    fn held_bytes(&self) -> usize {
        dispatch!(self, selector => selector.held_bytes())
    }
}
