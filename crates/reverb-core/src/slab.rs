//! Storage of a table's items: slots in pages, and an index from keys to slots.
//!
//! Pages hold 256 slots. Snapshots and samples of pages share them with the slab: a flag marks a page that may be shared,
//! and the slab copies such a page before it changes it. The index stores the hash of each key beside its slot and is seeded at
//! random. A small index is at most three sixteenths full, because tombstones slow down a fuller one.

use crate::prefetch::prefetch;
use crate::{Chunk, ItemKey, ItemView, NewItem, Trajectory};
use foldhash::quality::RandomState;
use hashbrown::{HashTable, hash_table};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

pub(crate) const PAGE_SLOTS: usize = 256;
/// Up to this number of items, at most three sixteenths of the index are full. In a fuller index, removals leave
/// tombstones that later searches must pass: inserts into a full table become slower by a third until the index is
/// rebuilt. With more items a look-up is slow anyway, and the additional room would cost more than it saves.
const ROOMY_ITEMS: usize = 1 << 13;
/// An index of more items is usually not cached.
const CACHED_ITEMS: usize = 1 << 17;
/// Slots are counted in 32 bits; selectors use the last number for "none".
pub(crate) const MAX_SLOTS: u64 = u32::MAX as u64;

/// An item as the table stores it, in a cache line of its own: a large table is read at random, one line at a time.
#[derive(Debug, Clone)]
#[repr(align(64))]
pub(crate) struct Item {
    pub(crate) key: ItemKey,
    pub(crate) priority: f64,
    /// Time of the insert in nanoseconds since the Unix epoch.
    pub(crate) inserted_at: u64,
    pub(crate) trajectory: Trajectory,
    pub(crate) times_sampled: i32,
    /// Hash of the key, as in the index.
    pub(crate) hash: u32,
}

impl From<&Item> for ItemView {
    fn from(item: &Item) -> Self {
        Self {
            key: item.key,
            priority: item.priority,
            times_sampled: item.times_sampled,
            inserted_at: item.inserted_at,
            trajectory: item.trajectory.clone(),
        }
    }
}

const _: () = assert!(size_of::<Option<Item>>() == 64, "an item fits its cache line");

#[derive(Debug, Clone)]
pub(crate) struct Page {
    slots: [Option<Item>; PAGE_SLOTS],
}

impl Page {
    pub(crate) fn items(&self) -> impl Iterator<Item = &Item> {
        self.slots.iter().flatten()
    }
}

/// An entry of the index. It stores the hash, so that the index can grow without reading the items: for ten million
/// items, that would be ten million cache misses in one insert.
#[derive(Debug, Clone, Copy)]
struct Entry {
    hash: u32,
    slot: u32,
}

impl Entry {
    /// The hash table takes 64 bits: it compares the upper ones, and chooses a bucket by the lower ones.
    fn wide_hash(hash: u32) -> u64 {
        u64::from(hash) << 32 | u64::from(hash)
    }
}

/// A key that has an entry in the index, whose item [`Slab::fill`] or [`Slab::replace`] puts into the slot.
#[derive(Debug)]
#[must_use]
pub(crate) struct Entered {
    pub(crate) slot: u32,
    hash: u32,
}

/// Items by slot, and slots by key.
///
/// A page that a snapshot shares is copied when it is first changed; the snapshot keeps the old page.
#[derive(Debug, Default)]
pub(crate) struct Slab {
    pages: Vec<Arc<Page>>,
    /// Empty slots below `end`. The last one is used next, because its page is most likely cached.
    free: Vec<u32>,
    /// The lowest slot that was never used.
    end: u32,
    /// For each page, whether a snapshot may share it. Reading the page's reference count instead would be an atomic
    /// operation for every change.
    shared: Vec<AtomicBool>,
    index: HashTable<Entry>,
    /// The number of items at which the index grows although it still has room.
    grow_at: usize,
    /// Seeded at random for each table, so that a writer which chooses keys cannot make them collide.
    hasher: RandomState,
}

impl Slab {
    /// Number of items.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether the slab has no items.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reserves room for `count` more items in the index, which is rebuilt whenever it grows.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.index.reserve(count, |entry| Entry::wide_hash(entry.hash));
        // Seven eighths of the index can be filled.
        let items = self.index.capacity() * 3 / 14;
        self.grow_at = if items <= ROOMY_ITEMS { items } else { usize::MAX };
    }

    /// The slot that holds a key.
    #[inline]
    pub(crate) fn find(&self, key: ItemKey) -> Option<u32> {
        let hash = self.hash(key);
        let is_key = |entry: &Entry| entry.hash == hash && self.get(entry.slot).key == key;
        let entry = self.index.find(Entry::wide_hash(hash), is_key)?;
        Some(entry.slot)
    }

    /// Whether most of the index is not cached.
    #[inline]
    pub(crate) fn is_large(&self) -> bool {
        self.len() > CACHED_ITEMS
    }

    /// Reads the places of new keys in the index, and those of the items in some slots, so that they are cached when
    /// the keys replace these items. The reads overlap here. In the inserts they would not: each is too long.
    pub(crate) fn read_ahead(&self, keys: impl Iterator<Item = ItemKey>, slots: impl Iterator<Item = u32>) {
        let mut found = 0;
        for key in keys {
            let hash = self.hash(key);
            found += usize::from(self.index.find(Entry::wide_hash(hash), |entry| entry.hash == hash).is_some());
        }
        for slot in slots {
            let Item { hash, trajectory, .. } = self.get(slot);
            if let Trajectory::Rows { chunk, .. } = trajectory {
                Chunk::prefetch(chunk);
            }
            found += usize::from(self.index.find(Entry::wide_hash(*hash), |entry| entry.slot == slot).is_some());
        }
        std::hint::black_box(found);
    }

    /// The item in a slot, which must hold one.
    #[inline]
    pub(crate) fn get(&self, slot: u32) -> &Item {
        item_in(&self.pages, slot)
    }

    /// Prefetches the item in a slot.
    #[inline]
    pub(crate) fn prefetch(&self, slot: u32) {
        let page = &self.pages[slot as usize / PAGE_SLOTS];
        prefetch(&raw const page.slots[slot as usize % PAGE_SLOTS]);
    }

    /// The item in a slot, which must hold one, for changes.
    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut Item {
        self.slot_mut(slot).as_mut().expect("the slot holds an item")
    }

    /// The slot of the next item that replaces no other.
    #[inline]
    pub(crate) fn free_slot(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.end)
    }

    /// Puts an item into [`Slab::free_slot`], for which its key was entered.
    #[inline]
    pub(crate) fn fill(&mut self, Entered { slot, hash }: Entered, item: NewItem, inserted_at: u64) {
        if self.free.pop().is_none() {
            self.grow();
        }
        let NewItem { key, priority, times_sampled, trajectory, .. } = item;
        // Written field by field in place: building the item elsewhere and copying it costs more than the search.
        self.slot_mut(slot).get_or_insert_with(|| Item { key, priority, inserted_at, trajectory, times_sampled, hash });
    }

    /// Replaces the item in a slot, for which the key of the new one was entered. Returns the data of the old one and the
    /// number of its draws.
    #[inline]
    pub(crate) fn replace(
        &mut self,
        Entered { slot, hash }: Entered,
        item: NewItem,
        inserted_at: u64,
    ) -> (Trajectory, i32) {
        let here = self.get_mut(slot);
        let old_hash = std::mem::replace(&mut here.hash, hash);
        here.key = item.key;
        here.priority = item.priority;
        here.inserted_at = inserted_at;
        let times_sampled = std::mem::replace(&mut here.times_sampled, item.times_sampled);
        let old = std::mem::replace(&mut here.trajectory, item.trajectory);
        self.leave(old_hash, slot);
        (old, times_sampled)
    }

    /// Removes the item from a slot, which must hold one.
    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) -> Item {
        let item = self.slot_mut(slot).take().expect("the slot holds an item");
        self.leave(item.hash, slot);
        self.free.push(slot);
        item
    }

    /// Enters a key with its slot into the index; the item must follow. If the index has the key, returns its slot as an
    /// error. One search finds the key or the place for it.
    #[inline]
    pub(crate) fn enter(&mut self, key: ItemKey, slot: u32) -> Result<Entered, u32> {
        if self.index.len() >= self.grow_at {
            self.make_room();
        }
        let hash = self.hash(key);
        let Self { index, pages, .. } = self;
        let is_key = |entry: &Entry| entry.hash == hash && item_in(pages, entry.slot).key == key;
        match index.entry(Entry::wide_hash(hash), is_key, |entry| Entry::wide_hash(entry.hash)) {
            hash_table::Entry::Occupied(known) => Err(known.get().slot),
            hash_table::Entry::Vacant(vacant) => {
                vacant.insert(Entry { hash, slot });
                Ok(Entered { slot, hash })
            }
        }
    }

    /// Removes the entry of a hash and a slot from the index. While a slot passes from one item to another, it has two
    /// entries; if these have the same hash, they are interchangeable.
    #[inline]
    fn leave(&mut self, hash: u32, slot: u32) {
        let is_it = |entry: &Entry| entry.slot == slot && entry.hash == hash;
        if let Ok(entry) = self.index.find_entry(Entry::wide_hash(hash), is_it) {
            entry.remove();
        }
    }

    /// Empties the slab, and returns it as it was.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// The pages, for reading.
    pub(crate) fn pages(&self) -> &[Arc<Page>] {
        &self.pages
    }

    /// The items, in the order of their slots.
    pub(crate) fn items(&self) -> impl Iterator<Item = &Item> {
        self.pages.iter().flat_map(|page| page.items())
    }

    /// The slots of a page whose items match.
    pub(crate) fn slots_of(&self, page: usize, matches: impl Fn(&Item) -> bool) -> Vec<u32> {
        let slots = (page * PAGE_SLOTS) as u32..;
        let slots = slots.zip(&self.pages[page].slots);
        slots.filter(|(_, item)| item.as_ref().is_some_and(&matches)).map(|(slot, _)| slot).collect()
    }

    /// Size in bytes of the pages and the index, without the data of the items.
    pub(crate) fn held_bytes(&self) -> usize {
        let entries = self.index.capacity() * (size_of::<Entry>() + 1);
        let pages = self.pages.len() * (size_of::<Page>() + size_of::<Arc<Page>>() + 1);
        pages + entries + self.free.capacity() * size_of::<u32>()
    }

    /// The pages as they are now, whatever changes later. Copies only pointers.
    pub(crate) fn share_pages(&self) -> Vec<Arc<Page>> {
        self.shared.iter().for_each(|shared| shared.store(true, Relaxed));
        self.pages.clone()
    }

    /// One page as it is now, whatever changes later. `None` if there is no such page.
    pub(crate) fn share_page(&self, number: usize) -> Option<Arc<Page>> {
        self.shared.get(number)?.store(true, Relaxed);
        self.pages.get(number).cloned()
    }

    fn hash(&self, key: ItemKey) -> u32 {
        self.hasher.hash_one(key) as u32
    }

    #[inline]
    fn slot_mut(&mut self, slot: u32) -> &mut Option<Item> {
        let number = slot as usize / PAGE_SLOTS;
        let page = &mut self.pages[number];
        let shared = self.shared[number].get_mut();
        let page = if *shared {
            *shared = false;
            own(page)
        } else {
            // SAFETY: pages leave the slab only through `share_pages` and `share_page`, which mark them as shared, and
            // `make_mut` has replaced a shared page by one of our own. So this reference is the only one, and `self` is borrowed.
            unsafe { &mut *Arc::as_ptr(page).cast_mut() }
        };
        &mut page.slots[slot as usize % PAGE_SLOTS]
    }

    /// Doubles the capacity of the index.
    #[cold]
    fn make_room(&mut self) {
        self.reserve(self.index.capacity() + 1 - self.index.len());
    }

    /// Adds one slot.
    #[cold]
    fn grow(&mut self) {
        if self.end as usize == self.pages.len() * PAGE_SLOTS {
            let slots = [const { None }; PAGE_SLOTS];
            self.pages.push(Arc::new(Page { slots }));
            self.shared.push(AtomicBool::new(false));
        }
        self.end += 1;
    }
}

/// Makes a page that is shared our own. Not inlined, because its caller would then always reserve stack for the copy of
/// a page.
#[cold]
#[inline(never)]
fn own(page: &mut Arc<Page>) -> &mut Page {
    Arc::make_mut(page)
}

/// The item in a slot of some pages, which must hold one.
#[inline]
fn item_in(pages: &[Arc<Page>], slot: u32) -> &Item {
    let page = &pages[slot as usize / PAGE_SLOTS];
    page.slots[slot as usize % PAGE_SLOTS].as_ref().expect("the slot holds an item")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, EpisodeIds, Layout, StepRange, random_key};
    use smallvec::smallvec;

    #[test]
    fn the_index_of_a_small_full_table_does_not_fill_with_tombstones() {
        let layout = Arc::new(Layout::new(1, [(DType::UInt8, smallvec![1], 0)]).unwrap());
        let chunk = Chunk::new(1, EpisodeIds::Same(1), StepRange::default(), layout, vec![0].into()).unwrap();
        let trajectory = Trajectory::rows(Arc::new(chunk), 0, 1).unwrap();
        let item = || NewItem {
            key: random_key(),
            priority: 1.0,
            takes_largest: false,
            others: None,
            times_sampled: 0,
            trajectory: trajectory.clone(),
        };
        let mut slab = Slab::default();
        for _ in 0..4096 {
            let item = item();
            let entered = slab.enter(item.key, slab.free_slot()).unwrap();
            slab.fill(entered, item, 0);
        }
        let room = slab.index.capacity();
        for slot in (0..4096).cycle().take(500_000) {
            let item = item();
            let entered = slab.enter(item.key, slot).unwrap();
            slab.replace(entered, item, 0);
        }
        // Tombstones use up capacity until the index is rebuilt, and larger.
        let left = slab.index.capacity();
        assert!((room - room / 100..=room).contains(&left), "{left} of {room}");
    }
}
