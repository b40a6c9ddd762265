//! What every selector does.

use rand::rngs::SmallRng;

/// A set of slots that chooses the next one.
///
/// Callers keep this contract: a slot is inserted at most once until it is removed; only slots in the set are updated
/// or removed; nothing is drawn from an empty selector; and priorities have passed [`crate::selector::check_priority`].
pub trait Selector {
    /// Adds a slot.
    fn insert(&mut self, slot: u32, priority: f64);
    /// Changes the priority of a slot.
    fn update(&mut self, slot: u32, priority: f64);
    /// Removes a slot.
    fn remove(&mut self, slot: u32);
    /// Removes a slot and adds it again for another item.
    #[inline]
    fn replace(&mut self, slot: u32, priority: f64) {
        self.remove(slot);
        self.insert(slot, priority);
    }
    /// Chooses a slot, and returns it with the probability of the choice. The slot stays in the set.
    fn sample(&mut self, rng: &mut SmallRng) -> (u32, f64);
    /// Makes as many draws as `draws` has places, like consecutive calls of [`Selector::sample`].
    fn sample_many(&mut self, rng: &mut SmallRng, draws: &mut [(u32, f64)]) {
        draws.iter_mut().for_each(|draw| *draw = self.sample(rng));
    }
    /// Removes all slots. Returns the selector as it was, so that a caller can drop its arrays later.
    #[must_use]
    fn take(&mut self) -> Self
    where
        Self: Sized;
    /// The place of the slot among its equals: lower places come earlier. 0 for selectors that choose at random.
    fn place(&self, slot: u32) -> u64;
    /// Adds a slot again at the place it had before it was removed.
    fn insert_at(&mut self, slot: u32, priority: f64, place: u64);
    /// Size in bytes of the memory that the selector holds.
    fn held_bytes(&self) -> usize;
}
