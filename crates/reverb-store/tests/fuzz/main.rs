//! Damaged input for every decoder of files and of chunks of the reference: no decoder panics or takes more memory than
//! twice the message limit.
//!
//! An ordinary run takes a few thousand inputs for each target. `REVERB_FUZZ_SECONDS=600` runs each target for 600
//! seconds, with a new random seed each time (`make fuzz`). A failing input is stored in the folder of its target in
//! `tests/data/fuzz`, and every later run uses it.

#[path = "../effects/content.rs"]
mod content;
mod engine;
mod frames;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../common/memory.rs"]
mod memory;
mod memory_disk;
mod targets;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../effects/world.rs"]
mod world;

use engine::{Target, fuzz};
use std::sync::Mutex;
use targets::LIMIT;

/// Bytes that readers, threads and the tables of a small checkpoint take in addition to twice the limit.
const BUFFERS: usize = 4 << 20;
/// Number of inputs of an ordinary run.
const INPUTS: u64 = 5000;

/// Locked by a running target: memory is counted for the whole process.
static ALONE: Mutex<()> = Mutex::new(());

macro_rules! targets {
    ($($name:ident),*) => {
        $(
            #[test]
            fn $name() {
                let _alone = ALONE.lock();
                let (name, run) = (stringify!($name), targets::$name);
                fuzz(Target { name, run, most_bytes: 2 * LIMIT + BUFFERS, inputs: INPUTS }, targets::seeds::$name());
            }
        )*
    };
}

targets!(
    chunk,
    table,
    records,
    stored_records,
    item_of_a_checkpoint,
    table_of_a_checkpoint,
    file_of_chunks,
    sidecar,
    segment,
    sealed_segment,
    frame
);
