//! Which item comes next: to be sampled, or to be removed.
//!
//! A selector knows items by the number of their slot in the table's slab, small and dense, so that it can keep what
//! it needs in plain arrays.

mod fifo_lifo;
mod heap;
mod prioritized;
mod sum_tree;
mod uniform;

pub use fifo_lifo::{End, Queue};
pub use heap::{Heap, Order};
pub use prioritized::Prioritized;
pub use uniform::Uniform;

use crate::{Error, Result};
use rand::rngs::SmallRng;

/// Largest weight an item may have: 2^33 of them, more than a table has slots, still have a finite sum.
const MAX_WEIGHT: f64 = f64::MAX / (1_u64 << 33) as f64;

/// How a table chooses items.
#[derive(Debug, Clone, PartialEq)]
pub enum SelectorKind {
    /// The oldest.
    Fifo,
    /// The newest.
    Lifo,
    /// Each with the same probability.
    Uniform,
    /// Each with a probability proportional to `priority^priority_exponent`, or 0 for priority 0.
    Prioritized {
        /// The exponent.
        priority_exponent: f64,
    },
    /// The one of lowest priority; among equals the one inserted or updated longest ago.
    MinHeap,
    /// The one of highest priority; among equals the one inserted or updated longest ago.
    MaxHeap,
}

impl SelectorKind {
    /// Whether the choice follows from the operations alone, without chance.
    pub fn is_deterministic(&self) -> bool {
        !matches!(self, Self::Uniform | Self::Prioritized { .. })
    }

    /// Whether the selector can be built.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the exponent is NaN or infinite.
    pub fn validate(&self) -> Result<()> {
        match self {
            Self::Prioritized { priority_exponent } if !priority_exponent.is_finite() => {
                Err(Error::invalid(format!("priority_exponent must be finite, got {priority_exponent}")))
            }
            _ => Ok(()),
        }
    }
}

/// Whether a selector of this kind can take the priority. Returns the weight it gives to an item (the priority itself
/// where the selector has no weights).
///
/// # Errors
/// [`Error::InvalidPriority`] for NaN, and for a Prioritized selector if the priority is negative or infinite, or its
/// weight too large for sums of weights to be finite.
#[inline]
pub fn check_priority(kind: &SelectorKind, priority: f64) -> Result<f64> {
    let weight = match kind {
        SelectorKind::Prioritized { priority_exponent } => prioritized::weight(*priority_exponent, priority),
        _ => priority,
    };
    let fits = match kind {
        SelectorKind::Prioritized { .. } => {
            (0.0..=f64::MAX).contains(&priority) && (0.0..=MAX_WEIGHT).contains(&weight)
        }
        _ => !priority.is_nan(),
    };
    if fits { Ok(weight) } else { Err(refusal(priority, weight)) }
}

#[cold]
fn refusal(priority: f64, weight: f64) -> Error {
    Error::InvalidPriority(if priority.is_nan() {
        "Priority must not be NaN.".into()
    } else if priority < 0.0 {
        "Priority must not be negative.".into()
    } else if priority.is_infinite() {
        format!("Priority must be finite for a Prioritized selector, got {priority}.")
    } else {
        format!(
            "Priority {priority} has weight {weight:e} in a Prioritized selector, which must not be above {MAX_WEIGHT:e}."
        )
    })
}

/// A set of slots that says which one comes next.
///
/// Callers keep the contract: a slot is inserted once until it is removed, only slots inside are updated or removed,
/// nothing is drawn from an empty selector, and priorities have passed [`check_priority`].
pub trait Selector {
    /// Takes a slot in.
    fn insert(&mut self, slot: u32, priority: f64);
    /// Changes the priority of a slot.
    fn update(&mut self, slot: u32, priority: f64);
    /// Forgets a slot.
    fn remove(&mut self, slot: u32);
    /// Forgets what was in a slot, and takes it in again for something new.
    fn replace(&mut self, slot: u32, priority: f64) {
        self.remove(slot);
        self.insert(slot, priority);
    }
    /// Chooses a slot, and says with which probability. The slot stays.
    fn sample(&mut self, rng: &mut SmallRng) -> (u32, f64);
    /// Makes as many draws as there are places, as [`Selector::sample`] does one after another.
    fn sample_many(&mut self, rng: &mut SmallRng, draws: &mut [(u32, f64)]) {
        draws.iter_mut().for_each(|draw| *draw = self.sample(rng));
    }
    /// Forgets every slot.
    fn clear(&mut self);
    /// Where the slot stands among its equals: lower comes earlier. 0 for selectors that choose by chance.
    fn place(&self, slot: u32) -> u64;
    /// Takes a slot back in at the place it had before it was removed.
    fn insert_at(&mut self, slot: u32, priority: f64, place: u64);
}

/// Any of the selectors. An enum, so that the calls of the hot path are direct.
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
    /// An empty selector of the kind.
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
}

impl AnySelector {
    /// The slot that comes next, where that is the oldest and there is one.
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

    fn clear(&mut self) {
        dispatch!(self, selector => selector.clear());
    }

    fn place(&self, slot: u32) -> u64 {
        dispatch!(self, selector => selector.place(slot))
    }

    fn insert_at(&mut self, slot: u32, priority: f64, place: u64) {
        dispatch!(self, selector => selector.insert_at(slot, priority, place));
    }
}

/// The element of a slot in an array indexed by slots, which grows to hold it.
fn at<T: Clone + Default>(array: &mut Vec<T>, slot: u32) -> &mut T {
    let index = slot as usize;
    if index >= array.len() {
        array.resize(index + 1, T::default());
    }
    &mut array[index]
}
