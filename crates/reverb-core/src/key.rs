//! Keys of items, chunks and episodes: random 64-bit numbers that the writer makes.

use crate::fork;
use rand::{RngCore, SeedableRng, rngs::SmallRng};
use std::cell::RefCell;

/// Names an item in its table.
pub type ItemKey = u64;
/// Names a chunk.
pub type ChunkKey = u64;
/// Names an episode.
pub type EpisodeId = u64;

thread_local! {
    static KEYS: RefCell<(u32, SmallRng)> = RefCell::new((fork::generation(), SmallRng::from_os_rng()));
}

/// A fresh uniform key in `[0, 2^64 - 1)`, from a generator per thread seeded by the operating system.
pub fn random_key() -> u64 {
    let mut key = 0;
    random_keys(|next| key = next());
    key
}

/// Lends a source of keys, for callers that need many.
///
/// A forked child would repeat its parent's keys, so there the generator is seeded anew.
pub fn random_keys<T>(make: impl FnOnce(&mut dyn FnMut() -> u64) -> T) -> T {
    KEYS.with_borrow_mut(|(generation, rng)| {
        let current = fork::generation();
        if *generation != current {
            (*generation, *rng) = (current, SmallRng::from_os_rng());
        }
        make(&mut || {
            loop {
                let key = rng.next_u64();
                if key != u64::MAX {
                    return key;
                }
            }
        })
    })
}
