//! Draws of a client of a cluster: from all shards as from one table, by races (`race.rs` of reverb-core).
//!
//! A round asks every shard at the same time, and counts only if all shards have answered that are not missing. If one is
//! lost within a round, the draw begins again.

mod gathered;
mod known;
mod listed;
mod members;
mod parts;
mod round;
mod sample;
mod sorted;
mod wait;

pub use known::{Cluster, Counts};
pub use listed::{ListedShard, listed};
pub use parts::Parts;
pub use sample::{begin_sample, sample};
pub use sorted::{check_shards, present};
