//! Rows of encoded chunks, decoded once for a whole batch.

use super::rows::Uniformity;
use crate::{Chunk, Drawn, MovedRows, Result, Trajectory, UsedRows, keep_rows};
use foldhash::fast::RandomState;
use std::collections::HashSet;
use std::sync::Arc;

/// Returns the size in bytes to which the chunks of these items decode when they are read: those that are compressed or
/// packed, each once.
pub fn decoded_bytes<'a>(items: impl IntoIterator<Item = &'a Trajectory>) -> u64 {
    if !Chunk::may_be_compressed() {
        return 0;
    }
    let (mut seen, mut bytes) = (HashSet::with_hasher(RandomState::default()), 0);
    for trajectory in items {
        trajectory.for_each_use(|chunk, _| {
            if (chunk.is_compressed() || chunk.is_packed()) && seen.insert(Arc::as_ptr(chunk)) {
                bytes += chunk.decoded_bytes() as u64;
            }
        });
    }
    bytes
}

/// Returns the items with the rows of encoded chunks decoded, each chunk once; empty if no chunk is encoded. Packed
/// chunks are unpacked.
#[inline]
pub(super) fn decode(items: &[Drawn], uniformity: Uniformity) -> Result<Vec<Drawn>> {
    // Single rows are read directly from interleaved chunks.
    let single_rows =
        || uniformity != Uniformity::Mixed && matches!(items[0].trajectory, Trajectory::Rows { length: 1, .. });
    if !Chunk::may_be_compressed() && (!Chunk::may_be_interleaved() || single_rows()) {
        return Ok(Vec::new());
    }
    let mut all_readable = true;
    for item in items {
        all_readable &= item.trajectory.is_readable();
        item.trajectory.for_each_use(|chunk, _| {
            if chunk.is_packed() {
                chunk.data();
            }
        });
    }
    if all_readable { Ok(Vec::new()) } else { decode_encoded(items) }
}

#[cold]
#[inline(never)]
fn decode_encoded(items: &[Drawn]) -> Result<Vec<Drawn>> {
    let mut used = UsedRows::default();
    let unreadable = items.iter().filter(|item| !item.trajectory.is_readable());
    unreadable.for_each(|item| used.add(&item.trajectory, |chunk| chunk.is_encoded()));
    let (mut moved, mut scratch) = (MovedRows::default(), Vec::new());
    for (chunk, rows) in used {
        let copy = keep_rows(&chunk, &rows, &mut scratch)?;
        moved.insert(chunk, copy, rows);
    }
    let read = |item: &Drawn| {
        let mut item = item.clone();
        if let Some(trajectory) = moved.rewrite(&item.trajectory) {
            item.trajectory = trajectory;
        }
        item
    };
    Ok(items.iter().map(read).collect())
}
