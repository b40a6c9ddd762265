//! Stores of the tables of a service: checkpoints, logs of what changes between them and the bytes of these changes, and the disk below both.

pub mod checkpoint;
pub mod disk;
pub mod durable;
pub mod effects;
mod lock;
pub mod log;
mod parent_file;
