//! Damaged input for every decoder that reads a file or the reference's chunks: nothing panics, nothing takes more than
//! twice the limit of a message.
//!
//! A few thousand inputs each in an ordinary run. `REVERB_FUZZ_SECONDS=600` runs each target for so long, with another
//! seed each time (`make fuzz`); what fails is put into the target's folder in `tests/data/fuzz`, from where every later
//! run takes it.

mod engine;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../common/memory.rs"]
mod memory;
mod memory_disk;
mod targets;

use engine::fuzz;
use std::sync::Mutex;

/// Memory is counted for the whole process, so targets take turns.
static ALONE: Mutex<()> = Mutex::new(());

macro_rules! targets {
    ($($name:ident),*) => {
        $(
            #[test]
            fn $name() {
                let _alone = ALONE.lock();
                fuzz(stringify!($name), targets::seeds::$name(), targets::$name);
            }
        )*
    };
}

targets!(chunk, table, records, stored_records, item_of_a_checkpoint, table_of_a_checkpoint, file_of_chunks, sidecar);
