//! The tables that this process has drawn from: a thread that writes to one of them and waits may wait for itself.

use parking_lot::Mutex;
use reverb_core::fork;
use std::collections::BTreeSet;

/// Addresses with names of tables, and the process that they belong to, as a number of forks.
static DRAWN: Mutex<(u32, BTreeSet<(String, String)>)> = Mutex::new((0, BTreeSet::new()));

/// Notes that this process draws from a table. The address is that which the program has given.
pub fn note_drawn(address: &str, table: &str) {
    let Some(mut drawn) = DRAWN.try_lock_for(fork::LOCK_TIME) else { return };
    let generation = fork::generation();
    if drawn.0 != generation {
        // What the parent has drawn, a child has not.
        *drawn = (generation, BTreeSet::new());
    }
    drawn.1.insert((address.into(), table.into()));
}

/// Whether this process has drawn from a table.
pub fn has_drawn(address: &str, table: &str) -> bool {
    let Some(drawn) = DRAWN.try_lock_for(fork::LOCK_TIME) else { return false };
    drawn.0 == fork::generation() && drawn.1.contains(&(address.into(), table.into()))
}
