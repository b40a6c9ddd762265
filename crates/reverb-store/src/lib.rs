//! Stores of the tables of a service: checkpoints, and the disk below them.

pub mod checkpoint;
pub mod disk;
mod lock;
mod parent_file;
