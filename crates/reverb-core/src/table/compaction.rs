//! Memory that a few live items hold without using it: most of a chunk's rows are gone, the chunk is not.
//!
//! Who owns the table copies the rows still in use to new chunks, outside of the lock, a few items at a time.

use super::{Table, referenced_bytes};
use crate::usage::is_sparse;
use crate::{ItemKey, Trajectory};
use std::sync::Arc;

/// Unused memory below this is not worth a copy.
const MIN_UNUSED_BYTES: u64 = 1 << 20;

impl Table {
    /// Whether chunks hold much more than items refer to, and enough removals since the last search have left chunks
    /// that could be copied: a search looks at every item, so it must be due to as many changes.
    pub fn wants_compaction(&self) -> bool {
        let worth_a_search = self.sparse_removals * 8 > self.slab.len() as u64;
        worth_a_search && self.usage.bytes() > self.referenced_bytes / 2 * 3 + MIN_UNUSED_BYTES
    }

    /// Items in `max_pages` pages of slots, beginning at `from_page`, that use a chunk of which little is in use; and
    /// the page to go on with. A search begins at page 0.
    pub fn sparse_items(&mut self, from_page: usize, max_pages: usize) -> (Vec<(ItemKey, Trajectory)>, Option<usize>) {
        if from_page == 0 {
            self.sparse_removals = 0;
        }
        let pages = self.slab.pages();
        let end = from_page.saturating_add(max_pages.max(1)).min(pages.len());
        let searched = pages.get(from_page..end).unwrap_or_default();
        let items = searched.iter().flat_map(|page| page.items());
        let sparse = items
            .filter(|item| uses_sparse_chunk(&item.trajectory))
            .map(|item| (item.key, item.trajectory.clone()))
            .collect();
        (sparse, (end < pages.len()).then_some(end))
    }

    /// Gives an item other data of the same content, if it still has `old`. Returns whether it had.
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
        // The item is still there, and so are its episodes.
        self.usage.set_num_deleted_episodes(num_deleted_episodes);
        self.referenced_bytes -= referenced_bytes(&old);
        removed.push(old);
        true
    }
}

fn uses_sparse_chunk(trajectory: &Trajectory) -> bool {
    let mut sparse = false;
    trajectory.for_each_use(|chunk, _| sparse |= is_sparse(chunk));
    sparse
}

/// Whether both refer to the same rows of the same chunks. Trajectories of slices are compared by their slices'
/// address, since clones share them.
fn is_same(a: &Trajectory, b: &Trajectory) -> bool {
    match (a, b) {
        (
            Trajectory::Rows { chunk, offset, length },
            Trajectory::Rows { chunk: other, offset: other_offset, length: other_length },
        ) => Arc::ptr_eq(chunk, other) && (offset, length) == (other_offset, other_length),
        (Trajectory::Columns(columns), Trajectory::Columns(other)) => Arc::ptr_eq(columns, other),
        _ => false,
    }
}
