//! Snapshots: the state of a table at one moment, and how a table is restored from one.

use super::config::TableConfig;
use super::contents::Table;
use super::in_flight::Flight;
use crate::published_room::Tally;
use crate::slab::{MAX_SLOTS, Page};
use crate::{Error, ItemKey, ItemView, NewItem, RateLimiter, Result, Trajectory};
use hashbrown::HashMap;
use std::cmp::Reverse;
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
    /// The largest finite priority above 0 that the table has seen since the last reset. `None` before the first.
    pub largest_priority: Option<f64>,
    /// What a shard of a cluster knows of the counts of all shards; empty for a table alone.
    pub tally: Tally,
    pages: Vec<Arc<Page>>,
    num_items: usize,
    /// Draws that the items of the pages have counted and that did not reach their callers.
    undelivered: Undelivered,
}

/// The draws in flight that a snapshot takes back.
#[derive(Debug, Clone, Default)]
struct Undelivered {
    /// Items that return to the table without these draws, by key.
    returned: HashMap<ItemKey, ItemView>,
    /// The number of these draws of each item.
    draws: HashMap<Flight, i32>,
}

impl Undelivered {
    /// Takes these draws back from the count of an item.
    fn uncount(&self, mut item: ItemView) -> ItemView {
        if !self.draws.is_empty()
            && let Some(draws) = self.draws.get(&Flight { key: item.key, inserted_at: item.inserted_at })
        {
            item.times_sampled = (item.times_sampled - draws).max(0);
        }
        item
    }
}

impl TableSnapshot {
    /// Number of items.
    pub fn num_items(&self) -> usize {
        self.num_items
    }

    /// The items in the order of their inserts. This sorts, in O(n log n) time.
    pub fn items(&self) -> impl ExactSizeIterator<Item = ItemView> {
        self.clone().into_items()
    }

    /// As [`TableSnapshot::items`], but releases each item once it was taken. Items that have left the table meanwhile
    /// are freed during the iteration instead of at its end.
    pub fn into_items(self) -> impl ExactSizeIterator<Item = ItemView> {
        let Self { pages, mut undelivered, .. } = self;
        let returned = std::mem::take(&mut undelivered.returned).into_values();
        let items = pages.iter().flat_map(|page| page.items()).map(ItemView::from);
        let mut items: Vec<_> = items.chain(returned).map(|item| undelivered.uncount(item)).collect();
        // Without the snapshot's pages, changes of the table copy no pages any more.
        drop(pages);
        // Stable, so that restored items with equal time stamps stay in the order of their slots, in which they were
        // restored.
        items.sort_by_key(|item| item.inserted_at);
        items.into_iter()
    }
}

impl Table {
    /// Takes a snapshot of the state as if the draws in flight had not been made: what a checkpoint saves. It has what
    /// [`Table::give_back`] of all of them would leave. Of two items with one key that return, the one that was inserted
    /// later does.
    pub fn snapshot_without_flights(&self) -> TableSnapshot {
        let mut snapshot = self.snapshot();
        let undelivered = &mut snapshot.undelivered;
        let mut items = Vec::new();
        for (item, gone) in self.in_flight.iter() {
            let draws = undelivered.draws.entry(item).or_insert(0);
            if *draws == 0 {
                items.push((item, gone));
            }
            *draws += 1;
        }
        items.sort_unstable_by_key(|(item, _)| Reverse(item.inserted_at));
        for (item, gone) in items {
            let found = self.slab.find(item.key);
            let draws = undelivered.draws[&item];
            let times_sampled = match gone {
                Some(_) if found.is_some() || undelivered.returned.contains_key(&item.key) => continue,
                Some(gone) => {
                    if gone.is_kept(draws) {
                        undelivered.returned.insert(item.key, gone.view(item));
                    }
                    Some(gone.times_sampled)
                }
                None => found
                    .map(|slot| self.slab.get(slot))
                    .filter(|found| found.inserted_at == item.inserted_at)
                    .map(|found| found.times_sampled),
            };
            snapshot.limiter.samples -= i64::from(draws);
            snapshot.num_unique_samples -= u64::from(times_sampled.is_some_and(|times| times <= draws));
        }
        let returned = undelivered.returned.values();
        snapshot.num_items += returned.len();
        snapshot.limiter.deletes -= returned.len() as i64;
        snapshot.num_deleted_episodes -= self.usage.num_missing_episodes(returned.map(|item| &item.trajectory));
        snapshot
    }

    /// Takes a snapshot of the current state.
    pub fn snapshot(&self) -> TableSnapshot {
        TableSnapshot {
            config: self.config.clone(),
            limiter: self.limiter.clone(),
            num_deleted_episodes: self.usage.num_deleted_episodes(),
            num_unique_samples: self.num_unique_samples,
            largest_priority: Some(self.largest_priority).filter(|&largest| largest > 0.0),
            tally: Tally::default(),
            pages: self.slab.share_pages(),
            num_items: self.len(),
            undelivered: Undelivered::default(),
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
        let key = item.key;
        let slot = self.put_again(item, inserted_at).ok_or_else(|| {
            Error::invalid(format!("InsertCheckpointItem called for item with already present key: {key}"))
        })?;
        self.note_priority(self.slab.get(slot).priority);
        self.last_inserted_at = self.last_inserted_at.max(inserted_at);
        self.last_restored_at = self.last_inserted_at;
        self.place(slot, None);
        Ok(())
    }

    /// Removes items that the remover chooses until the table is within `max_size` and `max_bytes`. Returns the number
    /// of removed items.
    pub fn evict_to_limits(&mut self, removed: &mut Vec<Trajectory>) -> u64 {
        let before = self.len();
        self.evict_size(removed);
        self.evict_bytes(removed);
        (before - self.len()) as u64
    }

    /// Sets [`Table::largest_priority`] of a checkpoint, unless an item that was restored has a larger one, or the
    /// selectors cannot take it.
    pub fn restore_largest_priority(&mut self, largest: f64) {
        if self.check_priority(largest).is_ok() {
            self.note_priority(largest);
        }
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
