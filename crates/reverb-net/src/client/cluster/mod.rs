//! Draws of a client of a cluster: from all shards as from one table, by races (`race.rs` of reverb-core).
//!
//! A round asks every shard at the same time, and counts only if all shards have answered that are not missing. If one is
//! lost within a round, the draw begins again.
//!
//! The shards do not ask their rate limiters. `min_size_to_sample` counts the items of all shards that take part. Those of
//! a missing shard do not count, because they cannot be drawn; what waits for them names the shard.
//!
//! A draw that finds too little gives back all that it holds. Then it waits at every shard for an amount ([`Lack`]) and
//! sends nothing meanwhile. Two draws that have taken the last items from each other see that there are more again; they
//! try again, after a random pause if that was in vain.
//!
//! [`Lack`]: sums::Lack

mod first;
mod gathered;
mod known;
mod listed;
mod members;
mod parts;
mod room;
mod round;
mod sample;
mod shortage;
mod sorted;
mod sums;
mod wait;

pub use known::{Cluster, Counts};
pub use listed::{ListedShard, listed};
pub use parts::Parts;
pub use room::RoomUse;
pub use sample::{begin_sample, sample};
pub use sorted::{check_shards, own, present};
