//! Keys of items, chunks and episodes: random 64-bit numbers that the writer makes.

use rand::{RngCore, SeedableRng, rngs::SmallRng};
use std::cell::RefCell;

/// Names an item in its table.
pub type ItemKey = u64;
/// Names a chunk.
pub type ChunkKey = u64;
/// Names an episode.
pub type EpisodeId = u64;

thread_local! {
    static KEYS: RefCell<(u32, SmallRng)> = RefCell::new((std::process::id(), SmallRng::from_os_rng()));
}

/// A fresh uniform key in `[0, 2^64 - 1)`, from a generator per thread seeded by the operating system.
///
/// A forked child would repeat its parent's keys, so the generator is seeded anew in a new process.
pub fn random_key() -> u64 {
    KEYS.with_borrow_mut(|(pid, rng)| {
        let current = std::process::id();
        if *pid != current {
            (*pid, *rng) = (current, SmallRng::from_os_rng());
        }
        loop {
            let key = rng.next_u64();
            if key != u64::MAX {
                return key;
            }
        }
    })
}
