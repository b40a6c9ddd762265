//! Damaged messages for every decoder of our protocol and of dm-reverb's, on both ends. No message makes a decoder panic, or allocate more
//! than a small multiple of its size and of the limits that it was checked against. Items that a server accepts are
//! then drawn, peeked at and saved, and allocations are counted there, too.
//!
//! An ordinary run takes some hundreds of inputs for each target. `REVERB_FUZZ_SECONDS=600` runs each target for 600
//! seconds, with a new random seed each time (`make fuzz`). A failing input is stored in the folder of its target in
//! `tests/data/fuzz`, and every later run uses it.

#[path = "../common/mod.rs"]
mod common;
mod dm_seeds;
mod dm_targets;
#[path = "../../../reverb-store/tests/fuzz/engine.rs"]
mod engine;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../../reverb-store/tests/common/memory.rs"]
mod memory;
mod raw;
mod seeds;
mod targets;
mod world;

use engine::{Target, fuzz};
use std::sync::Mutex;

/// Number of inputs of an ordinary run.
const INPUTS: u64 = 300;

/// Locked by a running target: memory is counted for the whole process.
static ALONE: Mutex<()> = Mutex::new(());

macro_rules! targets {
    ($targets:ident, $seeds:ident: $($name:ident),*) => {
        $(
            #[test]
            fn $name() {
                let _alone = ALONE.lock();
                let (name, run) = (stringify!($name), $targets::$name);
                // The targets measure their steps one by one.
                fuzz(Target { name, run, most_bytes: usize::MAX, inputs: INPUTS }, $seeds::$name());
            }
        )*
    };
}

targets!(
    targets, seeds: insert_requests, write_requests, sample_requests, sums_requests, unary_requests, answers, race_answers
);
targets!(dm_targets, dm_seeds: dm_insert_requests, dm_sample_requests, dm_unary_requests, dm_answers);
