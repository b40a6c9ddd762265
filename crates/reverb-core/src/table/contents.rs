//! The items of a table and its counts: how items enter, are updated, and leave.

use super::config::TableConfig;
use super::counters::{Counting, TimesSampled};
use super::in_flight::{Flight, InFlight};
use super::noted::Noted;
use super::removal::{RemovalCounts, RemovalReason};
use crate::selector::{AnySelector, Selector};
use crate::slab::{Entered, Item, MAX_SLOTS, Slab};
use crate::{NewItem, RateLimiter, Result, SelectorKind, TableUsage, Trajectory};
use rand::{SeedableRng, rngs::SmallRng};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Items that can be sampled, updated and removed. A plain struct: a caller that shares one puts a lock around it.
#[derive(Debug)]
pub struct Table {
    pub(super) config: TableConfig,
    pub(super) limiter: RateLimiter,
    pub(super) sampler: AnySelector,
    pub(super) remover: AnySelector,
    pub(super) slab: Slab,
    pub(super) usage: TableUsage,
    /// Sum of [`referenced_bytes`] over the items.
    pub(super) referenced_bytes: u64,
    /// Number of removals since the last search for sparse chunks that left a chunk sparse.
    pub(super) sparse_removals: u64,
    pub(super) num_unique_samples: u64,
    /// How often the items of the table were drawn, all together.
    pub(super) draws_of_items: i64,
    /// Removals by reason, since the table was created.
    pub(super) removed: RemovalCounts,
    pub(super) counting: Counting,
    /// The largest finite priority above 0 of inserts and updates since the last reset. 0 before the first.
    pub(super) largest_priority: f64,
    /// Time stamp of the latest insert.
    pub(super) last_inserted_at: u64,
    /// Time stamp of the latest restored item.
    pub(super) last_restored_at: u64,
    /// Whether draws are tracked until they are delivered: whether [`TableConfig::counts_samples`] is or was true.
    pub(super) tracks_draws: bool,
    /// Maximum number of evictions of one call; no limit unless another call shrinks the table in steps.
    pub(super) max_evictions: usize,
    /// Draws that have not reached their callers.
    pub(super) in_flight: InFlight,
    /// Set if the table is journaled.
    pub(super) noted: Option<Box<Noted>>,
    /// Changes with each reset. No other table has the same one, so a table that was replaced by a restored one leaves
    /// no draws that the latter would take back.
    pub(super) epoch: u64,
    /// The first epoch, which no other table has.
    first_epoch: u64,
    pub(super) rng: SmallRng,
}

/// What a table held before a reset.
#[derive(Debug)]
#[must_use]
pub struct OldContents {
    slab: Slab,
    _selectors: [AnySelector; 2],
    usage: TableUsage,
    _in_flight: InFlight,
    /// [`Table::first_epoch`].
    table: u64,
}

/// How often the items that a reset removed had been drawn, for [`Table::count_old`].
#[derive(Debug)]
#[must_use]
pub struct OldCounts {
    times_sampled: TimesSampled,
    table: u64,
}

impl OldContents {
    /// Number of items.
    pub fn num_items(&self) -> usize {
        self.slab.len()
    }

    /// Size in bytes of the chunks that the items refer to; each chunk counts once.
    pub fn bytes(&self) -> u64 {
        self.usage.bytes()
    }

    /// Looks at each item, for [`Table::count_old`].
    pub fn counts(&self) -> OldCounts {
        OldCounts { times_sampled: TimesSampled::of(self.slab.items()), table: self.table }
    }
}

impl Drop for OldContents {
    /// Tells the chunks that the table has let go of them, because other tables may share them.
    fn drop(&mut self) {
        for item in self.slab.items() {
            self.usage.let_go(&item.trajectory);
        }
    }
}

impl Table {
    /// Creates an empty table.
    ///
    /// # Errors
    /// The errors of [`TableConfig::validate`].
    pub fn new(config: TableConfig) -> Result<Self> {
        config.validate()?;
        let epoch = next_epoch();
        Ok(Self {
            limiter: RateLimiter::new(config.rate_limiter.clone()),
            sampler: AnySelector::new(&config.sampler),
            remover: AnySelector::new(&config.remover),
            slab: Slab::default(),
            usage: TableUsage::default(),
            referenced_bytes: 0,
            sparse_removals: 0,
            num_unique_samples: 0,
            draws_of_items: 0,
            removed: RemovalCounts::default(),
            counting: Counting::default(),
            largest_priority: 0.0,
            last_inserted_at: 0,
            last_restored_at: 0,
            tracks_draws: config.counts_samples(),
            max_evictions: usize::MAX,
            in_flight: InFlight::new(config.max_times_sampled),
            noted: None,
            epoch,
            first_epoch: epoch,
            rng: config.seed.map_or_else(SmallRng::from_os_rng, SmallRng::seed_from_u64),
            config,
        })
    }

    /// Whether the rate limiter allows `n` inserts now.
    #[inline]
    pub fn can_insert(&self, n: i64) -> bool {
        self.limiter.can_insert(n)
    }

    /// Whether the rate limiter allows `n` samples now. The rate limiter counts inserts, samples and deletes, and does
    /// not look at items.
    #[inline]
    pub fn can_sample(&self, n: i64) -> bool {
        self.limiter.can_sample(n)
    }

    /// Inserts an item that has passed [`Table::check_item`]. If the table holds an item with this key, that item gets
    /// the new priority instead.
    ///
    /// A table that is then over `max_size` or `max_bytes` removes the items that its remover chooses, possibly the new
    /// one. The time stamp of the item is `now_nanos`, or one nanosecond after the previous stamp if the clock has not
    /// advanced: stamps give the order of inserts.
    pub fn insert(&mut self, mut item: NewItem, now_nanos: u64, removed: &mut Vec<Trajectory>) {
        if item.takes_largest {
            item.priority = item.priority.max(self.largest_beside(item.others.as_deref()));
        }
        self.note_priority(item.priority);
        let inserted_at = now_nanos.max(self.last_inserted_at.saturating_add(1));
        let oldest = self.remover.oldest().filter(|_| self.is_full());
        let entered = match self.slab.enter(item.key, oldest.unwrap_or_else(|| self.slab.free_slot())) {
            Ok(entered) => entered,
            Err(slot) => {
                self.set_priority(slot, item.priority);
                if self.noted.is_some() {
                    self.note_sent_again(&item);
                }
                self.counting.priority_updates += 1;
                removed.push(item.trajectory);
                return;
            }
        };
        if self.noted.is_some() {
            self.note_insert(&item, inserted_at, entered.slot, oldest.is_some());
        }
        if oldest.is_some() {
            self.replace(entered, item, inserted_at, removed);
        } else {
            let slot = self.put(entered, item, inserted_at);
            self.place(slot, None);
        }
        self.last_inserted_at = inserted_at;
        self.evict_size(removed);
        self.evict_bytes(removed);
        self.limiter.inserts += 1;
        self.counting.inserts += 1;
    }

    /// Reads memory that the inserts of these items will need, if the table is large: half of the time of an insert into
    /// ten million items goes into the search of the index. Changes nothing.
    #[inline]
    pub fn read_ahead(&self, items: &[NewItem]) {
        if self.slab.is_large() && items.len() > 1 {
            let oldest = self.remover.queue().filter(|_| self.is_full());
            let evicted = oldest.into_iter().flat_map(|queue| queue.in_order(false)).take(items.len());
            self.slab.read_ahead(items.iter().map(|item| item.key), evicted);
        }
    }

    /// Removes all items and clears all counts except those of removals and those in `counters.rs`.
    /// Draws from before the reset can no longer be given back.
    ///
    /// This is O(1). The caller counts and drops the returned contents outside the lock that guards the table; see
    /// [`Table::count_old`].
    pub fn reset(&mut self) -> OldContents {
        self.note_reset();
        *self.removed.of(RemovalReason::Reset) += self.slab.len() as u64;
        let old = OldContents {
            slab: self.slab.take(),
            _selectors: [self.sampler.take(), self.remover.take()],
            // A new set of counts replaces one subtraction for each item.
            usage: std::mem::take(&mut self.usage),
            _in_flight: self.in_flight.take(),
            table: self.first_epoch,
        };
        self.limiter = RateLimiter::new(self.config.rate_limiter.clone());
        self.referenced_bytes = 0;
        self.sparse_removals = 0;
        self.num_unique_samples = 0;
        self.draws_of_items = 0;
        self.largest_priority = 0.0;
        self.epoch = next_epoch();
        old
    }

    /// Adds how often the items of a reset were drawn to the counters. Ignores those of another table, since a restored
    /// one may have replaced the table meanwhile.
    pub fn count_old(&mut self, old: &OldCounts) {
        if old.table == self.first_epoch {
            self.counting.count_all_removed(&old.times_sampled);
        }
    }

    /// Puts an item whose key was entered into the slab, and counts its data. Returns its slot.
    #[inline]
    fn put(&mut self, entered: Entered, item: NewItem, inserted_at: u64) -> u32 {
        let slot = entered.slot;
        self.slab.fill(entered, item, inserted_at);
        self.count_put(slot);
        slot
    }

    /// Puts in an item that was inserted before: a restored one, or one that a draw had removed. Returns its slot; `None`
    /// if the key is taken.
    pub(super) fn put_again(&mut self, item: NewItem, inserted_at: u64) -> Option<u32> {
        let entered = self.slab.enter(item.key, self.slab.free_slot()).ok()?;
        let insert_bytes = self.counting.insert_bytes;
        let slot = self.put(entered, item, inserted_at);
        self.counting.insert_bytes = insert_bytes;
        Some(slot)
    }

    /// Replaces an item by one whose key was entered, with the effects of [`Table::put`] and [`Table::remove`]. A full
    /// table whose oldest item leaves does this with every insert, and the sampler handles it as one change.
    #[inline]
    fn replace(&mut self, entered: Entered, item: NewItem, inserted_at: u64, removed: &mut Vec<Trajectory>) {
        let (slot, priority) = (entered.slot, item.priority);
        let (old, times_sampled) = self.slab.replace(entered, item, inserted_at);
        self.count_put(slot);
        self.sampler.replace(slot, priority);
        self.remover.replace(slot, priority);
        self.count_removed(&old, times_sampled, RemovalReason::MaxSize);
        removed.push(old);
    }

    #[inline]
    fn count_put(&mut self, slot: u32) {
        let Item { trajectory, times_sampled, .. } = self.slab.get(slot);
        self.draws_of_items += i64::from(*times_sampled);
        self.usage.add(trajectory);
        let bytes = referenced_bytes(trajectory);
        self.referenced_bytes += bytes;
        self.counting.insert_bytes += bytes;
    }

    #[inline]
    fn count_removed(&mut self, trajectory: &Trajectory, times_sampled: i32, reason: RemovalReason) {
        self.referenced_bytes -= referenced_bytes(trajectory);
        self.sparse_removals += u64::from(self.usage.remove(trajectory));
        self.limiter.deletes += 1;
        self.draws_of_items -= i64::from(times_sampled);
        *self.removed.of(reason) += 1;
        self.counting.count_removed(times_sampled);
    }

    /// Adds an item of the slab to both selectors. `places` are the places that it had in the sampler and in the
    /// remover, if it is put back.
    pub(super) fn place(&mut self, slot: u32, places: Option<(u64, u64)>) {
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

    /// Takes a priority into account for [`Table::largest_priority`].
    #[inline]
    pub(super) fn note_priority(&mut self, priority: f64) {
        if priority > self.largest_priority {
            self.raise_largest(priority);
        }
    }

    #[cold]
    fn raise_largest(&mut self, priority: f64) {
        if priority.is_finite() {
            self.largest_priority = priority;
        }
    }

    #[inline]
    pub(super) fn set_priority(&mut self, slot: u32, priority: f64) {
        self.slab.get_mut(slot).priority = priority;
        self.sampler.update(slot, priority);
        self.remover.update(slot, priority);
    }

    pub(super) fn evict(&mut self, reason: RemovalReason, removed: &mut Vec<Trajectory>) {
        let (slot, _) = self.remover.sample(&mut self.rng);
        removed.push(self.remove(slot, reason).trajectory);
    }

    /// Removes items while the table is over `max_size`. Usually this is one item or none. It removes more only after
    /// draws were given back to a table that others had filled, or if the limit was lowered.
    #[inline]
    pub(super) fn evict_size(&mut self, removed: &mut Vec<Trajectory>) {
        if self.slab.len() as u64 > self.max_items() {
            self.evict_over_max_size(removed);
        }
    }

    #[inline(never)]
    fn evict_over_max_size(&mut self, removed: &mut Vec<Trajectory>) {
        let mut evictions = 0;
        while self.slab.len() as u64 > self.max_items() && evictions < self.max_evictions {
            self.evict(RemovalReason::MaxSize, removed);
            evictions += 1;
        }
    }

    /// Removes items while the table is over `max_bytes`.
    #[inline]
    pub(super) fn evict_bytes(&mut self, removed: &mut Vec<Trajectory>) {
        if self.config.max_bytes.is_some() {
            self.evict_over_max_bytes(removed);
        }
    }

    #[inline(never)]
    fn evict_over_max_bytes(&mut self, removed: &mut Vec<Trajectory>) {
        let mut evictions = 0;
        while self.is_over_max_bytes() && evictions < self.max_evictions {
            self.evict(RemovalReason::MaxBytes, removed);
            evictions += 1;
        }
    }

    fn is_over_max_bytes(&self) -> bool {
        // A chunk is freed with the last item that refers to it. A remover that takes items from everywhere would have
        // to empty the table before a chunk is freed. For such a remover, rows that no item refers to do not count:
        // compaction frees them.
        let bytes = match self.config.remover {
            SelectorKind::Fifo | SelectorKind::Lifo => self.usage.bytes(),
            _ => self.usage.bytes().min(self.referenced_bytes),
        };
        self.config.max_bytes.is_some_and(|max_bytes| bytes > max_bytes)
    }

    /// Removes an item for good.
    pub(super) fn remove(&mut self, slot: u32, reason: RemovalReason) -> Item {
        if self.noted.is_some() {
            self.note_gone(Flight::at(self.slab.get(slot)), reason);
        }
        self.take_out(slot, reason)
    }

    /// Removes an item from the slab and from both selectors.
    #[inline]
    pub(super) fn take_out(&mut self, slot: u32, reason: RemovalReason) -> Item {
        self.sampler.remove(slot);
        self.remover.remove(slot);
        let item = self.slab.remove(slot);
        self.count_removed(&item.trajectory, item.times_sampled, reason);
        item
    }

    /// Whether an item leaves for each that enters. Of a table that is over its limit, more may leave.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.slab.len() as u64 == self.max_items()
    }

    /// Maximum number of items: one less than there are slots, because a new item enters before another leaves.
    pub(super) fn max_items(&self) -> u64 {
        self.config.max_size.min(MAX_SLOTS - 1)
    }
}

fn next_epoch() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Relaxed)
}

/// Size in bytes of the rows that an item refers to. For the same rows of all columns, this is their share of the
/// chunk: the function runs for every insert and removal, and columns differ only by padding and the lengths of
/// strings.
pub(super) fn referenced_bytes(trajectory: &Trajectory) -> u64 {
    match trajectory {
        Trajectory::Rows { chunk, length, .. } if *length == chunk.rows() => chunk.size_bytes() as u64,
        Trajectory::Rows { chunk, length, .. } => chunk.bytes_per_row() * u64::from(*length),
        Trajectory::Columns(_) => trajectory.held_bytes(),
    }
}
