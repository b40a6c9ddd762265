//! Patterns, which decide when a stream of steps becomes items, and of which rows.
//!
//! A [`PatternConfig`] is the description from a user or from the wire; after its checks it is a [`Pattern`]. The
//! [`Evaluator`] evaluates the patterns of one writer at each step. It sees the steps only through the trait [`Steps`],
//! and returns the items that are due; the writer creates them.

mod cell;
mod config;
mod evaluator;

pub use cell::{Cell, StepId, Steps};
pub use config::{AgeRange, Comparison, ConditionConfig, Left, NodeConfig, Pattern, PatternConfig, PriorityFn};
pub use evaluator::{Evaluator, MadeItem, Pass};
