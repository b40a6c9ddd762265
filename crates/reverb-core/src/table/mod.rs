//! A table: items, a selector to sample by, a selector to remove by, and a rate limiter.
//!
//! A table never waits. Callers ask [`Table::can_insert`] or [`Table::can_sample`] first, and wait elsewhere. Calls that
//! let go of data put it into a list of the caller's, to be dropped outside of the lock that guards the table.

mod change;
mod compaction;
mod config;
mod copied;
mod draw;
mod info;
mod snapshot;

pub use config::{NewItem, TableConfig};
pub use copied::{CopiedBatch, CopiedDraws};
pub use draw::Drawn;
pub use info::{ItemView, TableInfo};
pub use snapshot::TableSnapshot;

use crate::selector::{AnySelector, Selector};
use crate::slab::{self, Item, MAX_SLOTS, Slab};
use crate::{RateLimiter, Result, SelectorKind, TableUsage, Trajectory};
use rand::{SeedableRng, rngs::SmallRng};

/// Items that can be sampled, updated and removed. A plain struct: whoever shares one puts a lock around it.
#[derive(Debug)]
pub struct Table {
    config: TableConfig,
    limiter: RateLimiter,
    sampler: AnySelector,
    remover: AnySelector,
    slab: Slab,
    usage: TableUsage,
    /// Sum of [`referenced_bytes`] over the items.
    referenced_bytes: u64,
    /// Removals since the last search for sparse chunks that left one.
    sparse_removals: u64,
    num_unique_samples: u64,
    /// Stamp of the latest insert.
    last_inserted_at: u64,
    /// Number of resets.
    epoch: u64,
    rng: SmallRng,
}

impl Table {
    /// An empty table.
    ///
    /// # Errors
    /// Those of [`TableConfig::validate`].
    pub fn new(config: TableConfig) -> Result<Self> {
        config.validate()?;
        Ok(Self {
            limiter: RateLimiter::new(config.rate_limiter.clone()),
            sampler: AnySelector::new(&config.sampler),
            remover: AnySelector::new(&config.remover),
            slab: Slab::default(),
            usage: TableUsage::default(),
            referenced_bytes: 0,
            sparse_removals: 0,
            num_unique_samples: 0,
            last_inserted_at: 0,
            epoch: 0,
            rng: config.seed.map_or_else(SmallRng::from_os_rng, SmallRng::seed_from_u64),
            config,
        })
    }

    /// Whether the rate limiter lets `n` inserts go now.
    #[inline]
    pub fn can_insert(&self, n: i64) -> bool {
        self.limiter.can_insert(n)
    }

    /// Whether the rate limiter lets `n` samples go now. It counts inserts, samples and deletes, and looks at no item.
    #[inline]
    pub fn can_sample(&self, n: i64) -> bool {
        self.limiter.can_sample(n)
    }

    /// Inserts an item that has passed [`Table::check_item`], or, if its key is in the table, assigns its priority to
    /// the item there.
    ///
    /// A table that is over `max_size` or `max_bytes` then removes what the remover chooses, which may be the new item.
    /// Items are stamped with `now_nanos`, or a nanosecond after the previous one where the clock has not moved on: the
    /// stamps say in which order items came.
    pub fn insert(&mut self, item: NewItem, now_nanos: u64, removed: &mut Vec<Trajectory>) {
        let inserted_at = now_nanos.max(self.last_inserted_at + 1);
        let entered = match self.remover.oldest() {
            Some(oldest) if self.slab.len() as u64 == self.max_items() => {
                self.replace(oldest, item, inserted_at, removed)
            }
            _ => self.put(item, inserted_at).map(|slot| self.place(slot, None)),
        };
        if let Err((slot, item)) = entered {
            self.set_priority(slot, item.priority);
            removed.push(item.trajectory);
            return;
        }
        self.last_inserted_at = inserted_at;
        // Mostly one, or none. More only after items came back to a table that others had filled.
        while self.slab.len() as u64 > self.max_items() {
            self.evict(removed);
        }
        self.evict_bytes(removed);
        self.limiter.inserts += 1;
    }

    /// Lets go of all items and forgets all counts. Draws from before can no longer be given back.
    pub fn reset(&mut self, removed: &mut Vec<Trajectory>) {
        removed.extend(slab::into_items(self.slab.take()).map(|item| item.trajectory));
        self.sampler.clear();
        self.remover.clear();
        self.limiter = RateLimiter::new(self.config.rate_limiter.clone());
        // A new set of counts, rather than one subtraction for each item: what chunks count for the old one is void.
        self.usage = TableUsage::default();
        self.referenced_bytes = 0;
        self.sparse_removals = 0;
        self.num_unique_samples = 0;
        self.epoch += 1;
    }

    /// Puts an item into the slab and counts its data. If its key is there it comes back, with the slot of that key.
    #[inline]
    fn put(&mut self, item: NewItem, inserted_at: u64) -> std::result::Result<u32, (u32, NewItem)> {
        let slot = self.slab.insert(item, inserted_at)?;
        self.count_put(slot);
        Ok(slot)
    }

    /// Puts an item in the place of another, as [`Table::put`] and [`Table::remove`] would. A full table whose oldest
    /// item goes does so with every insert, and the sampler need not hear of it twice.
    #[inline]
    fn replace(
        &mut self,
        slot: u32,
        item: NewItem,
        inserted_at: u64,
        removed: &mut Vec<Trajectory>,
    ) -> std::result::Result<(), (u32, NewItem)> {
        let priority = item.priority;
        let old = self.slab.replace(slot, item, inserted_at)?;
        self.count_put(slot);
        self.sampler.replace(slot, priority);
        self.remover.replace(slot, priority);
        self.count_removed(&old);
        removed.push(old);
        Ok(())
    }

    #[inline]
    fn count_put(&mut self, slot: u32) {
        let trajectory = &self.slab.get(slot).trajectory;
        self.usage.add(trajectory);
        self.referenced_bytes += referenced_bytes(trajectory);
    }

    #[inline]
    fn count_removed(&mut self, trajectory: &Trajectory) {
        self.referenced_bytes -= referenced_bytes(trajectory);
        self.sparse_removals += u64::from(self.usage.remove(trajectory));
        self.limiter.deletes += 1;
    }

    /// Tells the selectors of an item in the slab; `places` are those it had in the sampler and in the remover.
    fn place(&mut self, slot: u32, places: Option<(u64, u64)>) {
        let priority = self.slab.get(slot).priority;
        match places {
            None => {
                self.sampler.insert(slot, priority);
                self.remover.insert(slot, priority);
            }
            Some((in_sampler, in_remover)) => {
                self.sampler.insert_at(slot, priority, in_sampler);
                self.remover.insert_at(slot, priority, in_remover);
            }
        }
    }

    fn set_priority(&mut self, slot: u32, priority: f64) {
        self.slab.get_mut(slot).priority = priority;
        self.sampler.update(slot, priority);
        self.remover.update(slot, priority);
    }

    fn evict(&mut self, removed: &mut Vec<Trajectory>) {
        let (slot, _) = self.remover.sample(&mut self.rng);
        removed.push(self.remove(slot).trajectory);
    }

    fn evict_bytes(&mut self, removed: &mut Vec<Trajectory>) {
        while self.is_over_max_bytes() {
            self.evict(removed);
        }
    }

    fn is_over_max_bytes(&self) -> bool {
        // Chunks go with their last row. A remover that takes items from all over would have to empty the table before
        // one goes, so there rows that no item refers to are not held against the items left: compaction frees them.
        let bytes = match self.config.remover {
            SelectorKind::Fifo | SelectorKind::Lifo => self.usage.bytes(),
            _ => self.usage.bytes().min(self.referenced_bytes),
        };
        self.config.max_bytes.is_some_and(|max_bytes| bytes > max_bytes)
    }

    /// Takes an item out, from everywhere.
    fn remove(&mut self, slot: u32) -> Item {
        self.sampler.remove(slot);
        self.remover.remove(slot);
        let item = self.slab.remove(slot);
        self.count_removed(&item.trajectory);
        item
    }

    /// Items the table may hold: one less than there are slots, since a new item comes in before another goes.
    fn max_items(&self) -> u64 {
        self.config.max_size.min(MAX_SLOTS - 1)
    }
}

/// Bytes of the rows that an item refers to. For the same rows of all columns, their share of the chunk: this runs for
/// every insert and removal, and columns differ in size only by padding and the lengths of strings.
fn referenced_bytes(trajectory: &Trajectory) -> u64 {
    match trajectory {
        Trajectory::Rows { chunk, length, .. } if *length == chunk.rows() => chunk.size_bytes() as u64,
        Trajectory::Rows { chunk, length, .. } => chunk.bytes_per_row() * u64::from(*length),
        Trajectory::Columns(_) => trajectory.held_bytes(),
    }
}
