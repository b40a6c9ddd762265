//! Snapshots: the state of a table at one moment, and how a table is restored from one.

use super::config::TableConfig;
use super::contents::Table;
use super::removal::RemovalReason;
use crate::slab::{MAX_SLOTS, Page};
use crate::{Error, ItemView, NewItem, RateLimiter, Result, Trajectory};
use std::sync::Arc;

/// The state of a table at one moment. Taking a snapshot copies no items: it shares pages of items with the table,
/// which copies a page before it changes it.
#[derive(Debug, Clone)]
pub struct TableSnapshot {
    /// The configuration of the table.
    pub config: TableConfig,
    /// The rate limiter with its counts.
    pub limiter: RateLimiter,
    /// Number of episodes whose last item has been removed.
    pub num_deleted_episodes: u64,
    /// Number of items that were drawn at least once.
    pub num_unique_samples: u64,
    pages: Vec<Arc<Page>>,
    num_items: usize,
}

impl TableSnapshot {
    /// Number of items.
    pub fn num_items(&self) -> usize {
        self.num_items
    }

    /// The items in the order of their inserts. This sorts, in O(n log n) time and with 16 bytes for each item.
    pub fn items(&self) -> impl ExactSizeIterator<Item = ItemView> + '_ {
        let items = self.pages.iter().flat_map(|page| page.items());
        let mut sorted: Vec<_> = items.map(|item| (item.inserted_at, item)).collect();
        // Stable, so that restored items with equal time stamps stay in the order of their slots, in which they were
        // restored.
        sorted.sort_by_key(|&(inserted_at, _)| inserted_at);
        sorted.into_iter().map(|(_, item)| ItemView::from(item))
    }

    /// As [`TableSnapshot::items`], but releases each item once it was taken. Items that have left the table meanwhile
    /// are freed during the iteration instead of at its end.
    pub fn into_items(self) -> impl ExactSizeIterator<Item = ItemView> {
        let mut items: Vec<_> = self.pages.iter().flat_map(|page| page.items()).map(ItemView::from).collect();
        // Without the snapshot's pages, changes of the table copy no pages any more.
        drop(self.pages);
        items.sort_by_key(|item| item.inserted_at);
        items.into_iter()
    }
}

impl Table {
    /// Takes a snapshot of the current state.
    pub fn snapshot(&self) -> TableSnapshot {
        TableSnapshot {
            config: self.config.clone(),
            limiter: self.limiter.clone(),
            num_deleted_episodes: self.usage.num_deleted_episodes(),
            num_unique_samples: self.num_unique_samples,
            pages: self.slab.share_pages(),
            num_items: self.len(),
        }
    }

    /// Reserves room for `count` more items.
    pub fn reserve(&mut self, count: usize) {
        self.slab.reserve(count);
    }

    /// Inserts an item of a checkpoint without asking the rate limiter and without counting an insert. Items are
    /// restored in the order of their original inserts.
    ///
    /// The limits are not enforced, because draws that were given back can leave more than `max_size` items in a table
    /// that is saved. A caller that restores into other limits calls [`Table::evict_to_limits`] afterwards.
    ///
    /// # Errors
    /// [`Error::InvalidPriority`]; [`Error::InvalidArgument`] if the table has the key already, if `times_sampled` is
    /// negative, or if no slot is free.
    pub fn restore_item(&mut self, item: NewItem, inserted_at: u64) -> Result<()> {
        self.check_priority(item.priority)?;
        if item.times_sampled < 0 {
            return Err(Error::invalid(format!("times_sampled must not be negative, got {}", item.times_sampled)));
        }
        if self.len() as u64 >= MAX_SLOTS - 1 {
            return Err(Error::invalid(format!("a table holds at most {} items", MAX_SLOTS - 1)));
        }
        let slot = self.put(item, inserted_at).map_err(|(_, item)| {
            Error::invalid(format!("InsertCheckpointItem called for item with already present key: {}", item.key))
        })?;
        self.last_inserted_at = self.last_inserted_at.max(inserted_at);
        self.place(slot, None);
        Ok(())
    }

    /// Removes items that the remover chooses until the table is within `max_size` and `max_bytes`. Returns the number
    /// of removed items.
    pub fn evict_to_limits(&mut self, removed: &mut Vec<Trajectory>) -> u64 {
        let before = self.len();
        while self.len() as u64 > self.max_items() {
            self.evict(RemovalReason::MaxSize, removed);
        }
        self.evict_bytes(removed);
        (before - self.len()) as u64
    }

    /// Sets the counts of a checkpoint, after its items were restored.
    pub fn restore_counters(
        &mut self,
        inserts: i64,
        samples: i64,
        deletes: i64,
        num_deleted_episodes: u64,
        num_unique_samples: u64,
    ) {
        self.limiter.inserts = inserts;
        self.limiter.samples = samples;
        self.limiter.deletes = deletes;
        self.usage.set_num_deleted_episodes(num_deleted_episodes);
        self.num_unique_samples = num_unique_samples;
    }
}
