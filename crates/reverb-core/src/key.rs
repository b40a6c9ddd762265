//! Keys of items, chunks and episodes: random 64-bit numbers.

use crate::fork;
use rand::{RngCore, SeedableRng, rngs::SmallRng};
use smallvec::{SmallVec, smallvec};
use std::cell::RefCell;

/// Key of an item, unique in its table.
pub type ItemKey = u64;
/// Key of a chunk.
pub type ChunkKey = u64;
/// Key of an episode.
pub type EpisodeId = u64;

thread_local! {
    static GENERATOR: RefCell<(u32, SmallRng)> = RefCell::new((fork::generation(), SmallRng::from_os_rng()));
}

/// Returns a new key for anything but an item: a chunk, an episode, a writer. Keys are uniform in `[0, 2^64 - 1)` and
/// come from one generator for each thread, seeded by the operating system.
#[inline]
pub fn random_key() -> u64 {
    with_generator(next_key)
}

/// Returns a new key for an item. All item keys that this process chooses come from here and from [`item_keys`].
pub fn item_key() -> ItemKey {
    with_generator(next_key)
}

/// The keys of new items. Mostly there is one.
pub type ItemKeys = SmallVec<[ItemKey; 1]>;

/// Returns new keys for items. For many keys, this is faster than [`item_key`].
pub fn item_keys(count: usize) -> ItemKeys {
    let mut keys = smallvec![0; count];
    with_generator(|rng| keys.fill_with(|| next_key(rng)));
    keys
}

/// Calls `draw` with the generator of this thread. In a forked child the generator is seeded again, because otherwise
/// the child would repeat the keys of its parent.
#[inline]
fn with_generator<T>(draw: impl FnOnce(&mut SmallRng) -> T) -> T {
    GENERATOR.with_borrow_mut(|(generation, rng)| {
        let current = fork::generation();
        if *generation != current {
            (*generation, *rng) = (current, SmallRng::from_os_rng());
        }
        draw(rng)
    })
}

#[inline]
fn next_key(rng: &mut SmallRng) -> u64 {
    loop {
        let key = rng.next_u64();
        if key != u64::MAX {
            return key;
        }
    }
}
