//! The state of a table at one moment, and how to build a table from one.

use super::{ItemView, NewItem, Table, TableConfig};
use crate::slab::Page;
use crate::{Error, RateLimiter, Result};
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
}

impl TableSnapshot {
    /// The items in the order in which they were inserted. Sorts: O(n log n), and 16 bytes an item.
    pub fn items(&self) -> impl ExactSizeIterator<Item = ItemView> + '_ {
        let items = self.pages.iter().flat_map(|page| page.items());
        let mut sorted: Vec<_> = items.map(|item| (item.inserted_at, item)).collect();
        // Stable, so that restored items of equal stamp stay in the order of their slots, in which they were restored.
        sorted.sort_by_key(|&(inserted_at, _)| inserted_at);
        sorted.into_iter().map(|(_, item)| ItemView::from(item))
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
        }
    }

    /// Puts an item of a checkpoint in, without a look at the rate limiter or a count of it.
    ///
    /// # Errors
    /// Those of [`Table::check_item`]; [`Error::InvalidArgument`] if the table has the key or no room.
    pub fn restore_item(&mut self, item: NewItem, inserted_at: u64) -> Result<()> {
        self.check_item(&item)?;
        if !self.has_room() {
            return Err(Error::invalid(format!(
                "InsertCheckpointItem called on already full Table. table size: {}, maximum size: {}",
                self.len(),
                self.config.max_size
            )));
        }
        if self.contains(item.key) {
            return Err(Error::invalid(format!(
                "InsertCheckpointItem called for item with already present key: {}",
                item.key
            )));
        }
        self.last_inserted_at = self.last_inserted_at.max(inserted_at);
        let slot = self.put(item, inserted_at);
        self.place(slot, None);
        if self.is_over_max_bytes() {
            let size_bytes = self.bytes();
            self.remove(slot);
            return Err(Error::invalid(format!(
                "InsertCheckpointItem called on already full Table. table size: {size_bytes} bytes, max_bytes: {}",
                self.config.max_bytes.unwrap_or_default()
            )));
        }
        Ok(())
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
