//! Frees the memory of chunks that only a few items still use.
//!
//! With a remover that picks items at random, one item can keep a chunk of a hundred rows alive. A chunk is sparse if
//! less than half of it is in use (see [`Table::is_sparse`]). Compaction is due when two conditions hold: the removals since the last search that
//! left a sparse chunk outnumber an eighth of the items, and the chunks have more than 1.5 times the bytes that items
//! refer to, plus 1 MiB. Then the rows in use are copied into new chunks, and the old chunks are freed. The search for
//! sparse chunks and the moves to new ones lock the table for a few hundred items at a time; the copy runs without the
//! lock.

use crate::table_handle::TableHandle;
use reverb_core::{Chunk, ItemKey, MovedRows, Result, Table, Trajectory, UsedRows, keep_rows_encoded};

/// Number of pages of items searched under one lock. Whoever needs the lock meanwhile waits 0.1 ms or so, and a message of
/// a writer may need it a thousand times.
const PAGES_PER_LOCK: usize = 2;
/// Number of items moved under one lock. Locks for one item each would follow so fast that nobody else gets one.
const MOVES_PER_LOCK: usize = 256;

/// Copies the rows of items in sparse chunks into smaller chunks, and moves the items there.
pub fn compact(handle: &TableHandle) {
    let (items, used) = sparse_items(handle);
    let (mut moved, mut scratch) = (MovedRows::default(), Vec::new());
    for (chunk, rows) in used {
        match smaller_copy(&chunk, &rows, &mut scratch) {
            Ok(Some(copy)) => moved.insert(chunk, copy, rows),
            Ok(None) => {}
            Err(error) => tracing::warn!("table `{}`: chunk {} cannot be compacted: {error}", handle.name(), chunk.key),
        }
    }
    for items in items.chunks(MOVES_PER_LOCK) {
        let moves: Vec<_> = items.iter().filter_map(|(key, old)| Some((*key, old, moved.rewrite(old)?))).collect();
        handle.with_table_mut(|table, removed| {
            for (key, old, new) in moves {
                table.replace_trajectory(key, old, new, removed);
            }
        });
    }
}

/// Copies rows into a chunk with the encoding of the old chunk. `None` if the copy is not smaller, because fewer rows
/// may compress less.
fn smaller_copy(chunk: &Chunk, rows: &[u32], scratch: &mut Vec<u8>) -> Result<Option<Chunk>> {
    let copy = keep_rows_encoded(chunk, rows, scratch)?;
    Ok((!chunk.is_compressed() || copy.size_bytes() < chunk.size_bytes()).then_some(copy))
}

/// Returns the items that use sparse chunks, and the rows of these chunks that they use.
fn sparse_items(handle: &TableHandle) -> (Vec<(ItemKey, Trajectory)>, UsedRows) {
    let (mut items, mut used) = (Vec::new(), UsedRows::default());
    let mut page = Some(0);
    while let Some(from) = page {
        let mut search = |table: &mut Table| {
            let (some, next) = table.sparse_items(from, PAGES_PER_LOCK);
            some.iter().for_each(|(_, trajectory)| used.add(trajectory, |chunk| table.is_sparse(chunk)));
            items.extend(some);
            next
        };
        page = handle.with_table_mut(|table, _| search(table));
    }
    (items, used)
}

#[cfg(test)]
mod tests {
    use super::*;
    use reverb_core::{
        Codec, DType, EpisodeIds, Layout, NewItem, RateLimiterConfig, SelectorKind, Slice, StepRange, Table,
        TableConfig, TrajectoryColumn, random_key,
    };
    use smallvec::smallvec;
    use std::sync::Arc;

    const ROWS: u32 = 100;
    const ROW_BYTES: usize = 1000;

    /// Row `i` counts up from `i`, so that all rows differ and compress.
    fn row(index: u32) -> Vec<u8> {
        (0..ROW_BYTES).map(|byte| (index as usize + byte / 10) as u8).collect()
    }

    fn item(chunk: &Arc<Chunk>, offset: u32, by_slices: bool) -> NewItem {
        let trajectory = if by_slices {
            let slice = Slice { chunk: chunk.clone(), column: 0, offset, length: 1 };
            Trajectory::columns(vec![TrajectoryColumn { slices: smallvec![slice], squeeze: false }]).unwrap()
        } else {
            Trajectory::rows(chunk.clone(), offset, 1).unwrap()
        };
        NewItem {
            key: u64::from(offset),
            priority: 1.0,
            takes_largest: false,
            others: None,
            times_sampled: 0,
            trajectory,
        }
    }

    /// A table whose items use every tenth row of a chunk, which `encode` encodes.
    fn sparse_table(encode: fn(Chunk) -> Chunk) -> TableHandle {
        let rate_limiter = RateLimiterConfig {
            samples_per_insert: 1.0,
            min_size_to_sample: 1,
            min_diff: -f64::MAX,
            max_diff: f64::MAX,
        };
        let config = TableConfig {
            name: "table".into(),
            sampler: SelectorKind::Uniform,
            remover: SelectorKind::Fifo,
            max_size: 1000,
            max_times_sampled: 0,
            rate_limiter,
            signature: None,
            max_bytes: None,
            seed: Some(1),
        };
        let layout = Arc::new(Layout::new(ROWS as usize, [(DType::UInt8, smallvec![ROW_BYTES], 0)]).unwrap());
        let data: Vec<u8> = (0..ROWS).flat_map(row).collect();
        let chunk = Chunk::new(random_key(), EpisodeIds::Same(1), StepRange::default(), layout, data.into()).unwrap();
        let chunk = Arc::new(encode(chunk));
        let handle = TableHandle::new(Table::new(config).unwrap());
        handle.with_table_mut(|table, removed| {
            for offset in (0..ROWS).step_by(10) {
                table.insert(item(&chunk, offset, offset % 20 == 0), 0, removed);
            }
        });
        handle
    }

    #[test]
    fn rows_of_an_encoded_chunk_move_to_a_smaller_one() {
        let encodings: [fn(Chunk) -> Chunk; 3] = [
            |chunk| chunk.compress(Codec::Lz4, &[false]),
            |chunk| chunk.compress(Codec::Lz4, &[true]),
            |chunk| chunk.interleave().unwrap(),
        ];
        for encode in encodings {
            let handle = sparse_table(encode);
            let before = handle.with_table(Table::bytes);
            compact(&handle);
            let after = handle.with_table(Table::bytes);
            assert!(after < before, "{after} of {before}");
            let snapshot = handle.with_table_mut(|table, _| table.snapshot());
            assert_eq!(snapshot.items().count(), 10);
            for item in snapshot.items() {
                let [chunk] = &item.trajectory.chunks()[..] else { panic!("one chunk") };
                assert_eq!((chunk.rows(), chunk.is_encoded()), (10, true));
                let mut scratch = Vec::new();
                let view = chunk.view(&mut scratch).unwrap();
                assert!(view.rows_of(0, item.key as u32 / 10, 1) == row(item.key as u32));
            }
        }
    }
}
