//! Changes of a table's options while it has items.

use super::config::TableChanges;
use super::contents::Table;
use super::in_flight::Flight;
use crate::slab::PAGE_SLOTS;
use crate::{Result, Trajectory};

/// Number of items that an insert may evict while another call shrinks the table.
const EVICTIONS_PER_INSERT: usize = 16;

/// What a change of options leaves to do: the removal of items that no longer fit.
#[derive(Debug)]
#[must_use]
pub struct Shrinking {
    /// The page where the search continues for items that were drawn often enough. `None` if there is no search.
    page: Option<usize>,
}

impl Table {
    /// Changes options. The caller then calls [`Table::shrink`] until it returns false, and may unlock the table in
    /// between. The counts of the rate limiter stay. In O(1), except that a lower `max_times_sampled` takes O(n) for the
    /// draws in flight and the items that they keep.
    ///
    /// # Errors
    /// Those of [`TableConfig::validate`]; [`Error::InvalidArgument`] if the table could never hold as many items as the
    /// rate limiter wants for a sample. Nothing has changed then.
    pub fn configure(&mut self, changes: &TableChanges) -> Result<Shrinking> {
        let config = changes.apply(&self.config)?;
        let limit = |times: i32| if times < 1 { i32::MAX } else { times };
        let is_lower = limit(config.max_times_sampled) < limit(self.config.max_times_sampled);
        let was_limited = self.config.max_times_sampled > 0;
        self.config = config;
        self.limiter.config = self.config.rate_limiter.clone();
        // Once on, it stays on: of a batch that is drawn in several steps, the tracked draws are the last then.
        self.tracks_draws |= self.config.counts_samples();
        if is_lower {
            // Items now leave that have several draws in flight.
            self.in_flight.track_items();
            self.lower_returns(self.config.max_times_sampled);
        }
        self.note_options(changes, is_lower && !was_limited);
        self.max_evictions = EVICTIONS_PER_INSERT;
        Ok(Shrinking { page: is_lower.then_some(0) })
    }

    /// Makes a step of about `operations` removals or looks at items: the remover chooses items until the table is
    /// within `max_size` and `max_bytes`, and items that were drawn `max_times_sampled` times leave. Returns whether
    /// there is more to do.
    pub fn shrink(&mut self, shrinking: &mut Shrinking, operations: usize, removed: &mut Vec<Trajectory>) -> bool {
        self.max_evictions = operations;
        let before = removed.len();
        self.evict_size(removed);
        self.max_evictions = operations - (removed.len() - before).min(operations);
        self.evict_bytes(removed);
        if removed.len() - before >= operations {
            self.max_evictions = EVICTIONS_PER_INSERT;
            return true;
        }
        self.max_evictions = usize::MAX;
        let pages = (operations / PAGE_SLOTS).max(1);
        shrinking.page = shrinking.page.and_then(|page| self.remove_drawn(page, pages, removed));
        shrinking.page.is_some()
    }

    /// Removes the items in some pages that were drawn often enough. Those with draws in flight return if these are
    /// given back. Returns the page at which to continue.
    fn remove_drawn(&mut self, from: usize, pages: usize, removed: &mut Vec<Trajectory>) -> Option<usize> {
        let limit = self.config.max_times_sampled;
        // The limit may have been lifted since.
        if limit < 1 {
            return None;
        }
        let end = from.saturating_add(pages).min(self.slab.pages().len());
        for page in from..end {
            for slot in self.slab.slots_of(page, |item| item.times_sampled >= limit) {
                self.remove_drawn_item(slot, removed);
            }
            if self.are_draws_new() {
                let left = self.slab.slots_of(page, |_| true);
                left.into_iter().for_each(|slot| self.note_times(Flight::at(self.slab.get(slot))));
            }
        }
        let next = (end < self.slab.pages().len()).then_some(end);
        if next.is_none() {
            self.end_new_draws();
        }
        next
    }

    fn remove_drawn_item(&mut self, slot: u32, removed: &mut Vec<Trajectory>) {
        let limit = self.config.max_times_sampled;
        let item = Flight::at(self.slab.get(slot));
        let gone = self.set_aside(slot, limit);
        if self.in_flight.has_draws_of(item) {
            self.in_flight.set_gone(item, gone);
        } else {
            removed.push(gone.trajectory);
        }
        if self.noted.is_some() {
            self.note_drawn_item(item);
        }
    }
}
