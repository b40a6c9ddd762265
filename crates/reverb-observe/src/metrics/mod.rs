//! The metrics of a server, read when they are asked for.

mod collector;
mod families;
pub mod plain;
mod process;
mod security;
mod service;
mod tables;

pub use collector::collect;
