//! Queries of a table that change no item.

use super::config::TableConfig;
use super::contents::Table;
use super::counters::unix_seconds;
use super::figures::TableInfo;
use super::limiter_words::LimiterView;
use crate::selector::Selector;
use crate::{ItemKey, ItemView, RateLimiter};

impl TableInfo {
    /// Returns the rate limiter of the table at that moment. Deletes that were not reported are inferred from the size.
    pub fn limiter(&self) -> RateLimiter {
        let deletes = self.inserts.saturating_sub(self.current_size.min(i64::MAX as u64) as i64);
        RateLimiter {
            deletes,
            inserts: self.inserts,
            samples: self.samples,
            ..RateLimiter::new(self.config.rate_limiter.clone())
        }
    }
}

impl TableInfo {
    /// What the rate limiter of the table, as [`TableInfo::limiter`] returns it, allowed at that moment.
    pub fn view<'a>(&'a self, limiter: &'a RateLimiter) -> LimiterView<'a> {
        LimiterView { table: &self.config, limiter, items: self.current_size }
    }
}

impl Table {
    /// The configuration of the table.
    pub fn config(&self) -> &TableConfig {
        &self.config
    }

    /// The rate limiter and what it has counted.
    pub fn limiter(&self) -> &RateLimiter {
        &self.limiter
    }

    /// Number of inserts and of draws that this process has made. They only grow.
    pub fn totals(&self) -> (u64, u64) {
        (self.counting.inserts, self.counting.draws())
    }

    /// Number of draws that this process has made, less those that were given back.
    pub fn kept_draws(&self) -> u64 {
        self.counting.draws().saturating_sub(self.counting.returned_samples)
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Whether the table has no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Size in bytes of the chunks that items refer to; each chunk counts once.
    pub fn bytes(&self) -> u64 {
        self.usage.bytes()
    }

    /// Whether the table has an item with this key.
    pub fn contains(&self, key: ItemKey) -> bool {
        self.slab.find(key).is_some()
    }

    /// The item with this key.
    pub fn get(&self, key: ItemKey) -> Option<ItemView> {
        let slot = self.slab.find(key)?;
        Some(self.slab.get(slot).into())
    }

    /// The sampling weight of all items together.
    ///
    /// For a table that samples with [`SelectorKind::Prioritized`](crate::SelectorKind::Prioritized), this is the sum
    /// of `priority^priority_exponent` over its items, where priority 0 has weight 0. For every other table it is the
    /// number of items. A caller that samples from several tables can choose a table with a probability proportional to
    /// its weight. If the sampler is Uniform or Prioritized, each item then has the probability that it would have in
    /// one table of all items. A table whose items all have priority 0 has weight 0, although a draw from it succeeds.
    ///
    /// If priorities have changed since the last draw, the call brings the sum up to date, which costs O(log n) for
    /// each changed item, as the next draw would. Otherwise it is O(1).
    pub fn weight(&mut self) -> f64 {
        self.sampler.total_weight().unwrap_or(self.slab.len() as f64)
    }

    /// How often the items can be drawn, all together, before each has left because it was drawn often enough. `None` if
    /// the table has no such limit.
    pub fn draws_left(&self) -> Option<u64> {
        let (size, limit) = (self.slab.len() as u64, self.config.max_times_sampled);
        let limit = u64::try_from(limit).ok().filter(|&limit| limit > 0)?;
        let drawn = u64::try_from(self.draws_of_items).unwrap_or(0);
        // An item that has entered with more draws than the limit can be drawn once.
        Some((size * limit).saturating_sub(drawn).max(size))
    }

    /// The largest finite priority of inserts and updates since the last reset; 1 before the first that is above 0.
    #[inline]
    pub fn largest_priority(&self) -> f64 {
        if self.largest_priority > 0.0 { self.largest_priority } else { 1.0 }
    }

    /// Configuration and figures, except those of waiting requests. Takes `&mut self` because [`Table::weight`] does.
    pub fn info(&mut self) -> TableInfo {
        // Stamps ascend, so that of an insert is above those of restored items.
        let last_insert = if self.last_inserted_at > self.last_restored_at { self.last_inserted_at } else { 0 };
        let mut info = TableInfo {
            current_size: self.len() as u64,
            num_episodes: self.usage.num_episodes(),
            num_deleted_episodes: self.usage.num_deleted_episodes(),
            num_unique_samples: self.num_unique_samples,
            inserts: self.limiter.inserts,
            samples: self.limiter.samples,
            size_bytes: Some(self.bytes()),
            removed: Some(self.removed),
            weight: Some(self.weight()),
            largest_priority: Some(self.largest_priority()),
            referenced_bytes: Some(self.referenced_bytes),
            index_bytes: Some((self.slab.held_bytes() + self.sampler.held_bytes() + self.remover.held_bytes()) as u64),
            chunks: Some(self.usage.num_chunks()),
            last_insert_at: unix_seconds(last_insert),
            ..TableInfo::new(self.config.clone())
        };
        self.counting.tell(&mut info);
        info
    }

    /// The rate limiter, and what it allows now.
    pub fn limiter_view(&self) -> LimiterView<'_> {
        LimiterView { table: &self.config, limiter: &self.limiter, items: self.len() as u64 }
    }
}
