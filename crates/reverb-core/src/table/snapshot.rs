//! The state of a table at one moment, and how to build a table from one.

use super::{ItemView, NewItem, Table, TableConfig};
use crate::slab::{MAX_SLOTS, Page};
use crate::{Error, RateLimiter, Result, Trajectory};
use std::sync::Arc;

/// All of a table at one moment. Taking it copies no item: it shares pages of items with the table until that changes
/// them.
#[derive(Debug, Clone)]
pub struct TableSnapshot {
    /// What the table was made of.
    pub config: TableConfig,
    /// Counts of the rate limiter.
    pub limiter: RateLimiter,
    /// Episodes of which the last item has left.
    pub num_deleted_episodes: u64,
    /// Items that were drawn at least once.
    pub num_unique_samples: u64,
    pages: Vec<Arc<Page>>,
    num_items: usize,
}

impl TableSnapshot {
    /// Number of items.
    pub fn num_items(&self) -> usize {
        self.num_items
    }

    /// The items in the order in which they were inserted. Sorts: O(n log n), and 16 bytes an item.
    pub fn items(&self) -> impl ExactSizeIterator<Item = ItemView> + '_ {
        let items = self.pages.iter().flat_map(|page| page.items());
        let mut sorted: Vec<_> = items.map(|item| (item.inserted_at, item)).collect();
        // Stable, so that restored items of equal stamp stay in the order of their slots, in which they were restored.
        sorted.sort_by_key(|&(inserted_at, _)| inserted_at);
        sorted.into_iter().map(|(_, item)| ItemView::from(item))
    }

    /// The same, and lets go of each item once it was taken: what has left the table meanwhile is then freed as one goes
    /// along, instead of at the end.
    pub fn into_items(self) -> impl ExactSizeIterator<Item = ItemView> {
        let mut items: Vec<_> = self.pages.iter().flat_map(|page| page.items()).map(ItemView::from).collect();
        // The pages go, so that changes of the table need not copy them any more.
        drop(self.pages);
        items.sort_by_key(|item| item.inserted_at);
        items.into_iter()
    }
}

impl Table {
    /// The state now.
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

    /// Makes room for `count` more items.
    pub fn reserve(&mut self, count: usize) {
        self.slab.reserve(count);
    }

    /// Puts an item of a checkpoint in, without a look at the rate limiter, or a count of it. Items come in the order in
    /// which they were inserted.
    ///
    /// The limits are not enforced: draws that were given back can have left more items than `max_size` in the table
    /// that was saved. Whoever restores into other limits calls [`Table::evict_to_limits`] afterwards.
    ///
    /// # Errors
    /// [`Error::InvalidPriority`]; [`Error::InvalidArgument`] if the table has the key, `times_sampled` is negative, or
    /// there is no slot left.
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

    /// Lets the remover take items until the table is within `max_size` and `max_bytes`. Returns how many went.
    pub fn evict_to_limits(&mut self, removed: &mut Vec<Trajectory>) -> u64 {
        let before = self.len();
        while self.len() as u64 > self.max_items() {
            self.evict(removed);
        }
        self.evict_bytes(removed);
        (before - self.len()) as u64
    }

    /// Sets the counts that a checkpoint recorded, after its items.
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
