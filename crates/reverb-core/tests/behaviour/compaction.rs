//! Chunks of which items use only few rows: found, copied, and freed.

use crate::common::{self, config, row_item};
use bytes::Bytes;
use reverb_core::{Chunk, DType, EpisodeIds, Layout, SelectorKind, StepRange, Table, Trajectory, random_key};
use smallvec::smallvec;
use std::sync::Arc;

const ROWS: u32 = 100;
const ROW_BYTES: usize = 64 << 10;

/// A chunk with rows of `ROW_BYTES` bytes, each filled with its number plus `first`.
fn chunk(first: u8, rows: u32, episode: u64) -> Arc<Chunk> {
    let layout = Layout::new(rows as usize, [(DType::UInt8, smallvec![ROW_BYTES], 0)]).unwrap();
    let data: Vec<u8> = (0..rows).flat_map(|row| vec![first + row as u8; ROW_BYTES]).collect();
    let episodes = EpisodeIds::Same(episode);
    Arc::new(Chunk::new(random_key(), episodes, StepRange::default(), Arc::new(layout), Bytes::from(data)).unwrap())
}

/// Two chunks of 100 items; of the first, all items except every tenth are deleted.
fn sparse_table() -> (Table, std::sync::Weak<Chunk>) {
    let mut table = Table::new(config(SelectorKind::Fifo, SelectorKind::Fifo, 1000)).unwrap();
    let chunks = [chunk(0, ROWS, 1), chunk(100, ROWS, 2)];
    for key in 0..200_u64 {
        let item = row_item(key, 1.0, &chunks[key as usize / 100], key as u32 % ROWS);
        table.insert(item, 0, &mut Vec::new());
    }
    assert!(!table.wants_compaction());
    let deletes: Vec<u64> = (0..100).filter(|key| key % 10 != 0).collect();
    table.mutate(&[], &deletes, &mut Vec::new()).unwrap();
    // The dense chunk is removed, because otherwise its bytes in use would outweigh the others.
    let deletes: Vec<u64> = (110..200).collect();
    table.mutate(&[], &deletes, &mut Vec::new()).unwrap();
    (table, Arc::downgrade(&chunks[0]))
}

fn compact(table: &mut Table) -> usize {
    let (mut page, mut copied) = (Some(0), 0);
    while let Some(from) = page {
        let (items, next) = table.sparse_items(from, 1);
        for (key, old) in items {
            let new = Trajectory::rows(chunk(key as u8, 1, 1 + key / 100), 0, 1).unwrap();
            copied += usize::from(table.replace_trajectory(key, &old, new, &mut Vec::new()));
        }
        page = next;
    }
    copied
}

fn first_byte(trajectory: &Trajectory) -> u8 {
    match trajectory {
        Trajectory::Rows { chunk, offset, .. } => chunk.data()[*offset as usize * ROW_BYTES],
        Trajectory::Columns(_) => unreachable!("these tests make rows"),
    }
}

#[test]
fn compaction_keeps_the_data_and_frees_the_rest() {
    let (mut table, chunk) = sparse_table();
    assert!(table.wants_compaction());
    assert_eq!(table.bytes(), 200 * ROW_BYTES as u64);
    let deleted = table.info().num_deleted_episodes;
    assert_eq!(compact(&mut table), 20);
    assert!(!table.wants_compaction());
    assert_eq!(table.bytes(), 20 * ROW_BYTES as u64);
    assert_eq!(chunk.strong_count(), 0, "the chunk is freed");
    for item in table.snapshot().items() {
        assert_eq!(u64::from(first_byte(&item.trajectory)), item.key);
    }
    let info = table.info();
    assert_eq!((info.num_episodes, info.num_deleted_episodes), (2, deleted));
}

#[test]
fn search_that_finds_nothing_to_copy_is_not_repeated() {
    let (mut table, _) = sparse_table();
    let (items, next) = table.sparse_items(0, 10);
    assert_eq!((items.len(), next), (20, None));
    assert!(!table.wants_compaction());
    table.mutate(&[], &[0], &mut Vec::new()).unwrap();
    assert!(!table.wants_compaction(), "one removal is not worth a look at every item");
    table.mutate(&[], &[10, 20], &mut Vec::new()).unwrap();
    assert!(table.wants_compaction(), "removals of an eighth of the items are");
}

/// Two tables with the same items of two chunks, which the first table owns. In the second, every tenth item of the
/// first chunk is left.
fn two_tables() -> [Table; 2] {
    let mut tables = [(); 2].map(|()| Table::new(config(SelectorKind::Fifo, SelectorKind::Fifo, 1000)).unwrap());
    let chunks = [chunk(0, ROWS, 1), chunk(100, ROWS, 2)];
    for table in &mut tables {
        for key in 0..200_u64 {
            let item = row_item(key, 1.0, &chunks[key as usize / 100], key as u32 % ROWS);
            table.insert(item, 0, &mut Vec::new());
        }
    }
    let deletes: Vec<u64> = (0..200).filter(|key| *key >= 100 || key % 10 != 0).collect();
    tables[1].mutate(&[], &deletes, &mut Vec::new()).unwrap();
    tables
}

#[test]
fn a_table_that_shares_a_chunk_finds_it_sparse_once_its_owner_lets_go() {
    let [mut owner, mut other] = two_tables();
    other.mutate(&[], &[0, 10], &mut Vec::new()).unwrap();
    assert!(!other.wants_compaction(), "the owner uses all rows, so a copy would free nothing");
    assert_eq!(other.sparse_items(0, 10).0.len(), 0);
    owner.mutate(&[], &Vec::from_iter(0..200), &mut Vec::new()).unwrap();
    other.mutate(&[], &[20, 30], &mut Vec::new()).unwrap();
    assert!(other.wants_compaction());
    assert_eq!(other.bytes(), 100 * ROW_BYTES as u64);
    assert_eq!(compact(&mut other), 6);
    assert_eq!(other.bytes(), 6 * ROW_BYTES as u64);
    for item in other.snapshot().items() {
        assert_eq!(u64::from(first_byte(&item.trajectory)), item.key);
    }
}

#[test]
fn a_reset_lets_go_of_the_chunks_that_another_table_shares() {
    let [mut owner, mut other] = two_tables();
    let old = owner.reset();
    other.expect_sparse_chunks();
    assert!(other.wants_compaction());
    assert_eq!(other.sparse_items(0, 10).0.len(), 0, "the old contents still count");
    drop(old);
    other.expect_sparse_chunks();
    assert!(other.wants_compaction());
    assert_eq!(compact(&mut other), 10);
}

#[test]
fn a_table_that_uses_most_of_a_shared_chunk_keeps_it() {
    let [mut owner, mut other] = two_tables();
    let rest: Vec<u64> = (0..200).filter(|key| key % 10 != 5).collect();
    owner.mutate(&[], &rest, &mut Vec::new()).unwrap();
    assert_eq!(compact(&mut other), 10, "both use few rows");
    let [mut owner, mut other] = two_tables();
    std::mem::swap(&mut owner, &mut other);
    owner.mutate(&[], &[0], &mut Vec::new()).unwrap();
    assert_eq!(compact(&mut owner), 0);
    assert_eq!(compact(&mut other), 0);
}

#[test]
fn search_continues_where_it_stopped() {
    let mut table = Table::new(config(SelectorKind::Fifo, SelectorKind::Fifo, 10_000)).unwrap();
    let mut found = Vec::new();
    for key in 0..1000 {
        table.insert(row_item(key, 1.0, &common::chunk(5, key), 0), 0, &mut Vec::new());
    }
    let mut page = Some(0);
    while let Some(from) = page {
        let (items, next) = table.sparse_items(from, 1);
        assert!(items.len() <= 256);
        found.extend(items.into_iter().map(|(key, _)| key));
        page = next;
    }
    found.sort_unstable();
    assert_eq!(found, (0..1000).collect::<Vec<_>>());
    assert_eq!(table.sparse_items(99, 1).1, None);
}

#[test]
fn item_that_changed_meanwhile_keeps_its_data() {
    let (mut table, _) = sparse_table();
    let (items, _) = table.sparse_items(0, 10);
    let (key, old) = &items[0];
    let bytes = table.bytes();
    table.mutate(&[], &[*key], &mut Vec::new()).unwrap();
    let replacement = || Trajectory::rows(chunk(9, 1, 9), 0, 1).unwrap();
    let mut removed = Vec::new();
    assert!(!table.replace_trajectory(*key, old, replacement(), &mut removed));
    table.insert(row_item(*key, 1.0, &chunk(50, 1, 1), 0), 0, &mut Vec::new());
    assert!(!table.replace_trajectory(*key, old, replacement(), &mut removed));
    assert_eq!(removed.len(), 2);
    assert_eq!(first_byte(&table.get(*key).unwrap().trajectory), 50);
    assert_eq!(table.bytes(), bytes + ROW_BYTES as u64);
}

#[test]
fn rows_that_are_episodes_of_their_own_are_not_counted_as_deleted() {
    let mut table = Table::new(config(SelectorKind::Fifo, SelectorKind::Fifo, 10)).unwrap();
    let batch = |rows| {
        let layout = Layout::new(rows, [(DType::UInt8, smallvec![], 0)]).unwrap();
        let (episodes, data) = (EpisodeIds::PerRow(7), Bytes::from(vec![0; rows]));
        let chunk = Chunk::new(random_key(), episodes, StepRange::default(), Arc::new(layout), data);
        Arc::new(chunk.unwrap())
    };
    table.insert(row_item(1, 1.0, &batch(10), 3), 0, &mut Vec::new());
    let old = table.get(1).unwrap().trajectory;
    let new = Trajectory::rows(batch(1), 0, 1).unwrap();
    assert!(table.replace_trajectory(1, &old, new, &mut Vec::new()));
    let info = table.info();
    assert_eq!((info.num_episodes, info.num_deleted_episodes, info.size_bytes), (1, 0, Some(1)));
}
