//! The servers of a client whose address names several.
//!
//! Each server has its own connection. Streams take the servers in turn. Calls that concern all data go to all servers,
//! and their answers are merged.

mod members;
mod merge;
mod set;
mod to_all;
mod told;

pub use set::{Servers, Turn};
pub use to_all::at_server;
