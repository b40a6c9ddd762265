//! The tests of reverb-service in one executable, which is built and linked once. Tests that count the memory of the process
//! have executables of their own, beside this folder.

mod bench_tables;
mod closed_journal;
#[path = "../common/mod.rs"]
mod common;
mod group_commit;
mod held_races;
mod item_size;
mod journal;
mod later_commits;
mod local_draws;
mod long_turns;
mod long_waits;
mod rooms;
mod shared_chunks;
mod turns;
mod waiting;
mod waiting_races;
mod waits;
