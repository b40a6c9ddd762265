//! Memory that few items hold without using it: most rows of a chunk are no longer referred to, but the chunk is still
//! there.
//!
//! The owner of the table copies the rows still in use to new chunks, outside the lock, a few items at a time.

use super::contents::Table;
use super::contents::referenced_bytes;
use crate::{Chunk, ItemKey, Trajectory};
use std::sync::Arc;

/// Unused memory below this size in bytes is not worth a copy.
const MIN_UNUSED_BYTES: u64 = 1 << 20;

impl Table {
    /// Whether chunks hold much more than items refer to, and enough removals since the last search have left sparse
    /// chunks. A search looks at every item, so it must follow a proportional number of changes.
    pub fn wants_compaction(&self) -> bool {
        let worth_a_search = self.sparse_removals * 8 > self.slab.len() as u64;
        worth_a_search && self.usage.bytes() > self.referenced_bytes / 2 * 3 + MIN_UNUSED_BYTES
    }

    /// Returns the items in `max_pages` pages of slots, starting at `from_page`, that use a sparse chunk, and the page
    /// at which to continue. A search starts at page 0.
    pub fn sparse_items(&mut self, from_page: usize, max_pages: usize) -> (Vec<(ItemKey, Trajectory)>, Option<usize>) {
        if from_page == 0 {
            self.sparse_removals = 0;
        }
        let pages = self.slab.pages();
        let end = from_page.saturating_add(max_pages.max(1)).min(pages.len());
        let searched = pages.get(from_page..end).unwrap_or_default();
        let items = searched.iter().flat_map(|page| page.items());
        let sparse = items
            .filter(|item| self.uses_sparse_chunk(&item.trajectory))
            .map(|item| (item.key, item.trajectory.clone()))
            .collect();
        (sparse, (end < pages.len()).then_some(end))
    }

    /// Whether a chunk that items of this table use is worth a copy of their rows: neither they nor the items of the
    /// table that was the first to use the chunk refer to half of it.
    pub fn is_sparse(&self, chunk: &Arc<Chunk>) -> bool {
        self.usage.is_sparse(chunk)
    }

    /// Makes the next search begin without waiting for removals: another table has let go of chunks that it may have
    /// shared with this one.
    pub fn expect_sparse_chunks(&mut self) {
        self.sparse_removals = self.sparse_removals.max(self.slab.len() as u64);
    }

    fn uses_sparse_chunk(&self, trajectory: &Trajectory) -> bool {
        let mut sparse = false;
        trajectory.for_each_use(|chunk, _| sparse |= self.is_sparse(chunk));
        sparse
    }

    /// Replaces the data of an item by a copy with the same content, if the item still has `old`. Returns whether it
    /// did.
    pub fn replace_trajectory(
        &mut self,
        key: ItemKey,
        old: &Trajectory,
        new: Trajectory,
        removed: &mut Vec<Trajectory>,
    ) -> bool {
        let held = self.slab.find(key);
        let Some(slot) = held.filter(|&slot| is_same(&self.slab.get(slot).trajectory, old)) else {
            removed.push(new);
            return false;
        };
        let num_deleted_episodes = self.usage.num_deleted_episodes();
        self.usage.add(&new);
        self.referenced_bytes += referenced_bytes(&new);
        let old = std::mem::replace(&mut self.slab.get_mut(slot).trajectory, new);
        self.usage.remove(&old);
        // The item stays, and so do its episodes.
        self.usage.set_num_deleted_episodes(num_deleted_episodes);
        self.referenced_bytes -= referenced_bytes(&old);
        removed.push(old);
        true
    }
}

/// Whether both refer to the same rows of the same chunks. Trajectories of slices are compared by the address of their
/// slices, which clones share.
fn is_same(a: &Trajectory, b: &Trajectory) -> bool {
    match (a, b) {
        (
            Trajectory::Rows { chunk, offset, length, .. },
            Trajectory::Rows { chunk: other, offset: other_offset, length: other_length, .. },
        ) => Arc::ptr_eq(chunk, other) && (offset, length) == (other_offset, other_length),
        (Trajectory::Columns(columns), Trajectory::Columns(other)) => Arc::ptr_eq(columns, other),
        _ => false,
    }
}
