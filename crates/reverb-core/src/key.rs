//! Keys of items, chunks and episodes: random 64-bit numbers. Those of the items of a shard are in its slots.

use crate::{Error, Result, fork};
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

/// Returns a new key for an item of a server that owns these slots.
pub fn item_key_in(slots: KeySlots) -> ItemKey {
    with_generator(|rng| slots.next_key(rng))
}

/// The keys of new items. Mostly there is one.
pub type ItemKeys = SmallVec<[ItemKey; 1]>;

/// Returns new keys for items of a server that owns these slots. They are uniform in the slots, except that [`u64::MAX`] is
/// none. All item keys that this process chooses come from here and from [`item_key_in`]. For many keys, this is faster.
pub fn item_keys_in(slots: KeySlots, count: usize) -> ItemKeys {
    let mut keys = smallvec![0; count];
    with_generator(|rng| keys.fill_with(|| slots.next_key(rng)));
    keys
}

/// Number of shards that a cluster may have unless it is made for another number.
pub const MAX_SHARDS: u32 = 256;
/// The top bits of a key are the number of its slot.
const SLOT_BITS: u32 = 12;
/// Number of slots.
pub const NUM_SLOTS: u32 = 1 << SLOT_BITS;

/// The keys that a shard owns for ever: 1 / `max_shards` of all slots, whose numbers follow one another. A slot is what the
/// top 12 bits of a key say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeySlots {
    /// The first key of the slots.
    first: u64,
    /// The bits that differ between keys of the slots: all but the top ones.
    free: u64,
}

impl KeySlots {
    /// All slots: those of a server that is not a shard.
    pub const ALL: Self = Self { first: 0, free: u64::MAX };

    /// Returns the slots of shard `id` of a cluster that is made for `max_shards` shards.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `max_shards` does not divide the number of slots, or there is no shard `id`.
    pub fn of_shard(id: u32, max_shards: u32) -> Result<Self> {
        // The slots are a power of two, so its divisors are, too.
        if !max_shards.is_power_of_two() || max_shards > NUM_SLOTS {
            return Err(Error::invalid(format!(
                "max_shards: expected a power of two from 1 to {NUM_SLOTS}, got {max_shards}"
            )));
        }
        if id >= max_shards {
            return Err(Error::invalid(format!(
                "shard id: expected 0 to {}, since a cluster has at most {max_shards} shards, got {id}",
                max_shards - 1
            )));
        }
        let own_bits = max_shards.ilog2();
        Ok(Self { first: u64::from(id).rotate_right(own_bits), free: u64::MAX >> own_bits })
    }

    /// Whether a key is in these slots.
    #[inline]
    pub fn contains(self, key: ItemKey) -> bool {
        key & !self.free == self.first
    }

    /// Returns the id of the shard that owns a key, where all shards own as many slots as this one.
    #[inline]
    pub fn shard_of(self, key: ItemKey) -> u32 {
        (key & !self.free).rotate_left(self.free.leading_zeros()) as u32
    }

    /// Returns the id of the shard that owns these slots.
    pub fn id(self) -> u32 {
        self.shard_of(self.first)
    }

    /// Returns the number of shards among which the slots are divided.
    pub fn max_shards(self) -> u32 {
        1 << self.free.leading_zeros()
    }

    #[inline]
    fn next_key(self, rng: &mut SmallRng) -> ItemKey {
        loop {
            let key = self.first | rng.next_u64() & self.free;
            if key != u64::MAX {
                return key;
            }
        }
    }
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
    KeySlots::ALL.next_key(rng)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of shards that a cluster can be made for.
    fn all_max_shards() -> impl Iterator<Item = u32> {
        (0..=SLOT_BITS).map(|bits| 1 << bits)
    }

    #[test]
    fn each_slot_has_one_owner_and_a_key_tells_it() {
        for max_shards in all_max_shards() {
            let slots_of_one = NUM_SLOTS / max_shards;
            let shards: Vec<_> = (0..max_shards).map(|id| KeySlots::of_shard(id, max_shards).unwrap()).collect();
            let told = shards.iter().map(|slots| (slots.id(), slots.max_shards()));
            assert!(told.eq((0..max_shards).map(|id| (id, max_shards))));
            for slot in (0..NUM_SLOTS).step_by(if max_shards > 64 { 61 } else { 1 }) {
                let first = u64::from(slot) << (64 - SLOT_BITS);
                for key in [first, first | u64::MAX >> SLOT_BITS] {
                    let owner = slot / slots_of_one;
                    assert_eq!(shards[0].shard_of(key), owner);
                    let owners = (0..max_shards).filter(|&id| shards[id as usize].contains(key));
                    assert!(owners.eq([owner]), "slot {slot} of {max_shards} shards");
                }
            }
        }
    }

    #[test]
    fn all_slots_contain_every_key() {
        assert_eq!(KeySlots::of_shard(0, 1).unwrap(), KeySlots::ALL);
        for key in [0, 1, 1 << 63, u64::MAX - 1] {
            assert!(KeySlots::ALL.contains(key));
            assert_eq!(KeySlots::ALL.shard_of(key), 0);
        }
    }

    #[test]
    fn new_keys_are_uniform_in_the_slots() {
        let count = 1 << 16;
        for (id, max_shards) in [(0, 256), (3, 256), (255, 256), (4095, 4096), (0, 1)] {
            let slots = KeySlots::of_shard(id, max_shards).unwrap();
            let keys = item_keys_in(slots, count);
            assert!(keys.len() == count && keys.iter().all(|&key| slots.contains(key) && key != u64::MAX));
            for bit in (0..64).filter(|bit| slots.free >> bit & 1 == 1) {
                let set = keys.iter().filter(|&key| key >> bit & 1 == 1).count() as f64;
                // Six standard deviations.
                let far = 6.0 * (count as f64).sqrt() / 2.0;
                assert!((set - count as f64 / 2.0).abs() < far, "bit {bit} is set in {set} of {count} keys");
            }
        }
    }

    #[test]
    fn there_is_no_shard_beyond_the_last() {
        let refusal = |id, max_shards| KeySlots::of_shard(id, max_shards).unwrap_err().to_string();
        assert!(KeySlots::of_shard(255, MAX_SHARDS).is_ok());
        let expected = "shard id: expected 0 to 255, since a cluster has at most 256 shards, got 256";
        assert_eq!(refusal(256, MAX_SHARDS), expected);
        for max_shards in [0, 3, 8192, u32::MAX] {
            let expected = format!("max_shards: expected a power of two from 1 to 4096, got {max_shards}");
            assert_eq!(refusal(0, max_shards), expected);
        }
    }
}
