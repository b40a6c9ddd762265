//! The tests of reverb-core in one executable, which is built and linked once. Tests that count the memory of the process
//! have executables of their own, beside this folder.

mod chunk_memory;
#[path = "../common/mod.rs"]
mod common;
mod compaction;
mod compression;
mod copied;
mod counters;
mod frames;
mod interleaved;
mod largest;
mod merge;
mod packed;
mod pattern;
mod published_room;
mod race;
mod race_statistics;
mod rate_limiter;
mod replay;
mod selector;
#[path = "../common/steps.rs"]
mod steps;
mod table;
mod table_counters;
mod table_model;
