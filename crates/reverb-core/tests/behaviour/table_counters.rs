//! Counters after a restore and after a reset, and the size of the index.

use crate::common::{SELECTORS, config, item};
use reverb_core::{NewItem, SelectorKind, Table};

#[test]
fn counters_of_a_restored_table_start_at_0() {
    let mut table = Table::new(config(SelectorKind::Fifo, SelectorKind::Fifo, 5)).unwrap();
    table.restore_item(NewItem { times_sampled: 3, ..item(1, 1.0) }, 1000).unwrap();
    table.restore_item(item(2, 1.0), 2000).unwrap();
    table.restore_counters(2, 3, 0, 0, 1);
    let info = table.info();
    let left = info.removed_times_sampled.unwrap();
    assert_eq!((info.insert_bytes, info.last_insert_at, left.count()), (Some(0), None, 0));
    assert_eq!((info.process_inserts, info.process_samples, info.inserts, info.samples), (Some(0), Some(0), 2, 3));
    table.mutate(&[], &[1, 2], &mut Vec::new()).unwrap();
    let info = table.info();
    assert_eq!((info.unsampled_removals, info.removed_times_sampled.unwrap().sum), (Some(1), 3.0));
}

#[test]
fn largest_priority_of_a_restored_table_is_that_of_the_checkpoint_or_of_the_items() {
    let mut table = Table::new(config(SelectorKind::Fifo, SelectorKind::Fifo, 5)).unwrap();
    assert_eq!(table.largest_priority(), 1.0);
    table.restore_item(item(1, 0.5), 1000).unwrap();
    table.restore_item(item(2, f64::INFINITY), 2000).unwrap();
    assert_eq!(table.largest_priority(), 0.5);
    table.restore_largest_priority(f64::NAN);
    assert_eq!(table.largest_priority(), 0.5);
    table.restore_largest_priority(7.0);
    assert_eq!((table.largest_priority(), table.snapshot().largest_priority), (7.0, Some(7.0)));
    table.insert(NewItem { takes_largest: true, ..item(3, 0.0) }, 0, &mut Vec::new());
    assert_eq!(table.get(3).unwrap().priority, 7.0);
}

#[test]
fn counts_of_a_reset_are_not_added_to_a_table_that_replaced_it() {
    let mut one = Table::new(config(SelectorKind::Fifo, SelectorKind::Fifo, 5)).unwrap();
    one.insert(item(1, 1.0), 0, &mut Vec::new());
    let old = one.reset();
    let mut restored = Table::new(config(SelectorKind::Fifo, SelectorKind::Fifo, 5)).unwrap();
    restored.count_old(&old.counts());
    assert_eq!(restored.info().unsampled_removals, Some(0));
    one.count_old(&old.counts());
    assert_eq!(one.info().unsampled_removals, Some(1));
}

#[test]
fn size_of_the_index_grows_with_the_table_and_shrinks_with_a_reset() {
    for kind in SELECTORS {
        let mut table = Table::new(config(kind.clone(), kind, 10_000)).unwrap();
        let empty = table.info().index_bytes.unwrap();
        (0..5000).for_each(|key| table.insert(item(key, 1.0), 0, &mut Vec::new()));
        let full = table.info().index_bytes.unwrap();
        // A slot has 64 bytes, an entry of the index at least 8.
        assert!(full - empty > 5000 * 72 && full - empty < 5000 * 1000, "{empty}, {full}");
        drop(table.reset());
        assert!(table.info().index_bytes.unwrap() < full / 10);
    }
}
