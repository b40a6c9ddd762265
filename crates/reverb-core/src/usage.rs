//! The chunks that a table keeps alive: their bytes, their episodes, and how sparsely they are used.
//!
//! A use is counted in cells (a cell is a row of a column), once for each item. The first table that uses a chunk owns
//! it and counts in the chunk itself, without a look-up on the hot path; other tables count in a map of their own.
//!
//! A chunk is sparse for its owner if the owner's items use less than half of it. For another table it is sparse if that
//! is true of both: while the owner uses most of the chunk, a copy of the other rows would free nothing. A table that has
//! let go of a chunk, or was reset, uses none of it.

use crate::trajectory::cells_of_rows;
use crate::{Chunk, EpisodeId, EpisodeIds, Trajectory};
use hashbrown::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

static NEXT_TABLE: AtomicU32 = AtomicU32::new(1);

/// Counts the uses of chunks by the items of one table; see the module.
#[derive(Debug)]
pub struct TableUsage {
    table: u32,
    shared: HashMap<*const Chunk, u64, foldhash::fast::RandomState>,
    episodes: HashMap<EpisodeId, u32, foldhash::fast::RandomState>,
    row_episodes: u64,
    num_deleted_episodes: u64,
    num_chunks: u64,
    bytes: u64,
}

// SAFETY: the pointers identify chunks and are never dereferenced. The items that count here keep the chunks alive, so
// no other chunk can have the same address.
unsafe impl Send for TableUsage {}
// SAFETY: as above; the struct has no interior mutability.
unsafe impl Sync for TableUsage {}

impl Default for TableUsage {
    fn default() -> Self {
        Self {
            table: NEXT_TABLE.fetch_add(1, Relaxed),
            shared: HashMap::default(),
            episodes: HashMap::default(),
            row_episodes: 0,
            num_deleted_episodes: 0,
            num_chunks: 0,
            bytes: 0,
        }
    }
}

impl TableUsage {
    /// Counts an item that entered the table.
    #[inline]
    pub fn add(&mut self, trajectory: &Trajectory) {
        // Rows of one chunk are by far the most common case, so they are counted without a call.
        let Trajectory::Rows { chunk, length, .. } = trajectory else { return self.add_columns(trajectory) };
        self.add_cells(chunk, cells_of_rows(chunk, *length));
        if matches!(chunk.episodes, EpisodeIds::PerRow(_)) {
            self.row_episodes += u64::from(*length);
        }
    }

    /// Counts an item that left the table. Returns whether one of its chunks is sparse now (see the module).
    #[inline]
    pub fn remove(&mut self, trajectory: &Trajectory) -> bool {
        let Trajectory::Rows { chunk, length, .. } = trajectory else { return self.remove_columns(trajectory) };
        if matches!(chunk.episodes, EpisodeIds::PerRow(_)) {
            self.row_episodes -= u64::from(*length);
            self.num_deleted_episodes += u64::from(*length);
        }
        self.remove_cells(chunk, cells_of_rows(chunk, *length))
    }

    #[inline(never)]
    fn add_columns(&mut self, trajectory: &Trajectory) {
        trajectory.for_each_use(|chunk, cells| self.add_cells(chunk, cells));
    }

    #[inline(never)]
    fn remove_columns(&mut self, trajectory: &Trajectory) -> bool {
        let mut sparse = false;
        trajectory.for_each_use(|chunk, cells| sparse |= self.remove_cells(chunk, cells));
        sparse
    }

    #[inline]
    fn add_cells(&mut self, chunk: &Arc<Chunk>, cells: u64) {
        if self.owns(chunk) {
            // Only the thread that holds the owner's lock writes the count, so a load and a store are enough.
            let used = chunk.used_cells.load(Relaxed);
            chunk.used_cells.store(used + cells, Relaxed);
            if used == 0 {
                self.first_use(chunk);
            }
        } else {
            self.add_shared(chunk, cells);
        }
    }

    #[inline(never)]
    fn add_shared(&mut self, chunk: &Arc<Chunk>, cells: u64) {
        let used = self.shared.entry(Arc::as_ptr(chunk)).or_insert(0);
        let first = *used == 0;
        *used += cells;
        if first {
            self.first_use(chunk);
        }
    }

    #[inline]
    fn remove_cells(&mut self, chunk: &Arc<Chunk>, cells: u64) -> bool {
        if self.owns(chunk) {
            let used = chunk.used_cells.load(Relaxed) - cells;
            chunk.used_cells.store(used, Relaxed);
            if used == 0 {
                self.last_use(chunk);
            }
            return used > 0 && is_sparse(chunk, used);
        }
        self.remove_shared(chunk, cells)
    }

    #[inline(never)]
    fn remove_shared(&mut self, chunk: &Arc<Chunk>, cells: u64) -> bool {
        let name = Arc::as_ptr(chunk);
        let used = self.shared.get_mut(&name).expect("an item that leaves was counted when it entered");
        *used -= cells;
        let used = *used;
        if used == 0 {
            self.shared.remove(&name);
            self.last_use(chunk);
        }
        used > 0 && is_sparse(chunk, used) && is_sparse_for_owner(chunk)
    }

    /// Whether a chunk that the table's items use is sparse; see the module.
    pub fn is_sparse(&self, chunk: &Arc<Chunk>) -> bool {
        let used = self.shared.get(&Arc::as_ptr(chunk));
        is_sparse_for_owner(chunk) && used.is_none_or(|&used| is_sparse(chunk, used))
    }

    /// Clears this table's use counts in an item's chunks at once, for items that are not removed one by one. After the
    /// first such call, the counts may only be dropped.
    pub(crate) fn let_go(&self, trajectory: &Trajectory) {
        trajectory.for_each_use(|chunk, _| {
            if chunk.owner.load(Relaxed) == self.table {
                chunk.used_cells.store(0, Relaxed);
            }
        });
    }

    #[inline]
    fn owns(&self, chunk: &Chunk) -> bool {
        match chunk.owner.load(Relaxed) {
            0 => chunk
                .owner
                .compare_exchange(0, self.table, Relaxed, Relaxed)
                .map_or_else(|owner| owner == self.table, |_| true),
            owner => owner == self.table,
        }
    }

    #[inline(never)]
    fn first_use(&mut self, chunk: &Chunk) {
        self.bytes += chunk.size_bytes() as u64;
        self.num_chunks += 1;
        if let EpisodeIds::Same(episode) = chunk.episodes {
            *self.episodes.entry(episode).or_insert(0) += 1;
        }
    }

    #[inline(never)]
    fn last_use(&mut self, chunk: &Chunk) {
        self.bytes -= chunk.size_bytes() as u64;
        self.num_chunks -= 1;
        if let EpisodeIds::Same(episode) = chunk.episodes
            && let Some(uses) = self.episodes.get_mut(&episode)
        {
            *uses -= 1;
            if *uses == 0 {
                self.episodes.remove(&episode);
                self.num_deleted_episodes += 1;
            }
        }
    }

    /// Size in bytes of the chunks that the table's items refer to; each chunk counts once.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of distinct chunks that the table's items refer to.
    pub fn num_chunks(&self) -> u64 {
        self.num_chunks
    }

    /// Number of distinct episodes that the table's items refer to.
    pub fn num_episodes(&self) -> u64 {
        self.episodes.len() as u64 + self.row_episodes
    }

    /// Number of episodes whose last item has been removed since the last reset.
    pub fn num_deleted_episodes(&self) -> u64 {
        self.num_deleted_episodes
    }

    /// Takes back the deletion of episodes whose items have come back.
    pub fn uncount_deleted_episodes(&mut self, count: u64) {
        self.num_deleted_episodes -= count;
    }

    /// Number of distinct episodes of these items that no item of the table refers to.
    pub fn num_missing_episodes<'a>(&self, items: impl Iterator<Item = &'a Trajectory>) -> u64 {
        let (mut missing, mut rows) = (HashSet::new(), 0);
        for item in items {
            match item {
                Trajectory::Rows { chunk, length, .. } if matches!(chunk.episodes, EpisodeIds::PerRow(_)) => {
                    rows += u64::from(*length);
                }
                _ => item.for_each_use(|chunk, _| {
                    if let EpisodeIds::Same(episode) = chunk.episodes
                        && !self.episodes.contains_key(&episode)
                    {
                        missing.insert(episode);
                    }
                }),
            }
        }
        missing.len() as u64 + rows
    }

    /// Sets the number of deleted episodes to the value of a checkpoint.
    pub fn set_num_deleted_episodes(&mut self, count: u64) {
        self.num_deleted_episodes = count;
    }
}

/// Whether this number of cells is less than half of a chunk. Always false for a chunk of one row.
#[inline]
fn is_sparse(chunk: &Chunk, used_cells: u64) -> bool {
    chunk.rows() > 1 && used_cells * 2 < chunk.cells()
}

/// Whether the owner of a chunk uses less than half of it, or none of it. Another thread may change the answer.
fn is_sparse_for_owner(chunk: &Chunk) -> bool {
    is_sparse(chunk, chunk.used_cells.load(Relaxed))
}
