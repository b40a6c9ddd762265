//! What a shard of a cluster knows of the counts of all shards, in checkpoints.

use crate::LIMIT;
use crate::world::{fill, handle, options, temp_dir};
use reverb_core::SelectorKind;
use reverb_core::published_room::{Counts, Incarnation, MAX_COUNT, Tally};
use reverb_formats::tfrecord::hash_text;
use reverb_service::{TableHandle, snapshot_all};
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

fn known(table: &TableHandle) -> Tally {
    snapshot_all(std::slice::from_ref(table)).remove(0).tally
}

#[test]
fn a_returned_shard_knows_what_it_knew_of_all_and_a_table_alone_saves_nothing_of_it() {
    let root = temp_dir();
    let saver = Checkpointer::open(options(&root)).unwrap();
    let alone = saver.save(&[table()]).unwrap();
    assert!(!fs::read_to_string(alone.join("reverb.jsonl")).unwrap().contains("tally"));
    let table = table();
    table.restore_tally(tally());
    saver.save(&[table]).unwrap();
    saver.close();
    let restored = handle("a", SelectorKind::Uniform, 50);
    Checkpointer::open(options(&root)).unwrap().restore(std::slice::from_ref(&restored), LIMIT).unwrap();
    assert_eq!(known(&restored), tally());
    assert_eq!(restored.with_table(|table| table.len()), 3);
}

#[test]
fn counts_that_no_shard_can_have_reached_are_damage() {
    let root = temp_dir();
    let saver = Checkpointer::open(options(&root)).unwrap();
    let table = table();
    table.restore_tally(tally());
    let path = saver.save(&[table]).unwrap().join("reverb.jsonl");
    saver.close();
    let text = fs::read_to_string(&path).unwrap();
    let line = text.lines().next().unwrap().replace(&(MAX_COUNT - 1).to_string(), &u64::MAX.to_string());
    let hash = hash_text(line.as_bytes());
    fs::write(&path, format!("{line}\n{{\"xxh3\":\"{hash}\"}}\n")).unwrap();
    let restored = handle("a", SelectorKind::Uniform, 50);
    let error = Checkpointer::open(options(&root)).unwrap().restore(&[restored], LIMIT).unwrap_err().to_string();
    assert!(error.contains("reverb.jsonl: ") && error.contains("expected a count of a shard below"), "{error}");
}
