//! The formats of dm-reverb ("the reference"): messages, chunks, items, tables, patterns and record files.
//!
//! The modules convert between types of the core and bytes, in both directions. They do not wait, open files or use a
//! network. Input may be hostile, so every allocation is bounded by a limit or by the number of bytes received.

pub mod chunk;
pub mod definitions;
pub mod item;
pub mod patterns;
pub mod proto;
pub mod signature;
pub mod table;
pub mod tfrecord;
pub mod wire;
