//! The servers of a client whose address names several.
//!
//! Each server has its own connection. Streams take the servers in turn. Calls that concern all data go to all servers,
//! or to those that may have the items, and their answers are merged.

mod at_server;
mod members;
mod merge;
mod owners;
mod placer;
mod routing;
mod set;
mod shards;
mod to_all;
mod told;

pub use at_server::{at_server, is_lost};
pub use merge::{merge_items, merge_tables};
pub use routing::{Route, part_of, route};
pub use set::{Servers, Turn};
pub use shards::Shards;
pub use to_all::{All, ToAll, of_all, of_reached, reached_and_lost};
