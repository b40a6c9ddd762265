//! What a shard of a cluster knows of the counts of all shards, in checkpoints.

use crate::LIMIT;
use crate::world::{draw, fill, handle, options, temp_dir};
use reverb_core::published_room::{Counts, Incarnation, MAX_COUNT, Sums, Tally};
use reverb_core::{MAX_SHARDS, RateLimiterConfig, SelectorKind, Table, TableConfig};
use reverb_formats::tfrecord::hash_text;
use reverb_service::write_ledger::Ledgers;
use reverb_service::{Replay, Shard, TableHandle, snapshot_all};
use reverb_store::checkpoint::Checkpointer;
use std::fs;

fn table() -> TableHandle {
    let table = handle("a", SelectorKind::Uniform, 50);
    fill(&table, 0..3);
    table
}

fn tally() -> Tally {
    let counts = |shard| Counts { restored: 1, inserts: 20 + u64::from(shard), deletes: 3, samples: MAX_COUNT - 1 };
    (0..3).map(|shard| (Incarnation { shard, number: 1_764_000_000_000_000 }, counts(shard))).collect()
}

/// A table that was told of the counts of all shards.
fn told() -> TableHandle {
    let table = handle("a", SelectorKind::Uniform, 50);
    let empty = Table::new(table.with_table(|table| table.config().clone())).unwrap();
    table.restore(empty, &tally());
    fill(&table, 0..3);
    table
}

fn known(table: &TableHandle) -> Tally {
    snapshot_all(std::slice::from_ref(table)).remove(0).tally
}

/// The table of a shard of a cluster that has restored the newest checkpoint, if there is one.
fn started(checkpointer: &Checkpointer) -> TableHandle {
    let plain = handle("a", SelectorKind::Uniform, 50).with_table(|table| table.config().clone());
    let rate_limiter = RateLimiterConfig { max_diff: 30.0, ..plain.rate_limiter.clone() };
    let table = TableHandle::new(Table::new(TableConfig { rate_limiter, ..plain }).unwrap());
    Replay::of_shard(vec![table.clone()], LIMIT, Some(shard())).unwrap();
    checkpointer.restore(std::slice::from_ref(&table), &Ledgers::default(), LIMIT).unwrap();
    table
}

fn shard() -> Shard {
    Shard::new(1, MAX_SHARDS, "replay".into()).unwrap()
}

fn sums(table: &TableHandle) -> Sums {
    known(table).sums(&[0, 1])
}

#[tokio::test]
async fn a_returned_shard_counts_what_happens_before_a_client_comes_also_if_none_comes() {
    let root = temp_dir();
    let checkpointer = Checkpointer::open(options(&root)).unwrap();
    let attach = |table: &TableHandle| drop(table.attach_to_room(&shard(), 7, &[0, 1]).unwrap().unwrap());
    let mut table = started(&checkpointer);
    fill(&table, 0..3);
    attach(&table);
    assert_eq!(sums(&table), Sums { inserts: 3, samples: 0, items: 3 });
    for first in [10, 20] {
        checkpointer.save(&[table]).unwrap();
        table = started(&checkpointer);
        let before = sums(&table);
        fill(&table, first..first + 5);
        drop(draw(&table, 2));
        let Sums { inserts, samples, items } = before;
        assert_eq!(sums(&table), Sums { inserts: inserts + 5, samples: samples + 2, items: items + 5 });
    }
    attach(&table);
    assert_eq!(sums(&table), Sums { inserts: 13, samples: 4, items: 13 });
    checkpointer.close().unwrap();
}

#[test]
fn a_returned_shard_knows_what_it_knew_of_all_and_a_table_alone_saves_nothing_of_it() {
    let root = temp_dir();
    let saver = Checkpointer::open(options(&root)).unwrap();
    let alone = saver.save(&[table()]).unwrap();
    assert!(!fs::read_to_string(alone.join("reverb.jsonl")).unwrap().contains("tally"));
    saver.save(&[told()]).unwrap();
    saver.close().unwrap();
    let restored = handle("a", SelectorKind::Uniform, 50);
    Checkpointer::open(options(&root))
        .unwrap()
        .restore(std::slice::from_ref(&restored), &Ledgers::default(), LIMIT)
        .unwrap();
    assert_eq!(known(&restored), tally());
    assert_eq!(restored.with_table(|table| table.len()), 3);
}

#[test]
fn counts_that_no_shard_can_have_reached_are_left_out() {
    let root = temp_dir();
    let saver = Checkpointer::open(options(&root)).unwrap();
    let path = saver.save(&[told()]).unwrap().join("reverb.jsonl");
    saver.close().unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let line = text.lines().next().unwrap().replace(&(MAX_COUNT - 1).to_string(), &u64::MAX.to_string());
    let hash = hash_text(line.as_bytes());
    fs::write(&path, format!("{line}\n{{\"xxh3\":\"{hash}\"}}\n")).unwrap();
    let restored = handle("a", SelectorKind::Uniform, 50);
    Checkpointer::open(options(&root))
        .unwrap()
        .restore(std::slice::from_ref(&restored), &Ledgers::default(), LIMIT)
        .unwrap();
    assert_eq!(known(&restored), Tally::default());
    assert_eq!(restored.with_table(|table| table.len()), 3);
}
