//! Selectors choose items, to be sampled or to be removed.
//!
//! A selector identifies items by the number of their slot in the table's slab. Slot numbers are small and dense, so a
//! selector can use plain arrays.

mod any;
mod by_slot;
mod contract;
mod fifo_lifo;
mod heap;
mod kind;
mod prioritized;
mod sum_tree;
mod uniform;

pub use any::AnySelector;
pub use contract::Selector;
pub use fifo_lifo::{End, Queue};
pub use heap::{Heap, Order};
pub use kind::{SelectorKind, check_priority};
pub use prioritized::Prioritized;
pub use uniform::Uniform;
