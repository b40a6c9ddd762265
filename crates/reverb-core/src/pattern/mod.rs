//! Patterns: which items to make of a stream of steps, and when.
//!
//! A [`PatternConfig`] is what a user, or the wire, says; checked, it is a [`Pattern`]. The [`Evaluator`] asks the
//! patterns of one writer at each step. It sees the steps through the trait [`Steps`] only, and names the items to be
//! made; making them is the writer's part.

mod cell;
mod config;
mod evaluator;

pub use cell::{Cell, StepId, Steps};
pub use config::{Comparison, ConditionConfig, Left, NodeConfig, Pattern, PatternConfig, PriorityFn, Selection};
pub use evaluator::{Evaluator, MadeItem, Pass};
