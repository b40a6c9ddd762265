//! Descriptors of all message types, for programs that use reflection.

/// A serialised `FileDescriptorSet` of all files in `proto/`. Dependencies come first.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
