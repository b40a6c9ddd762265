//! Checkpoints: saved tables load, damaged checkpoints do not, and no error of the disk loses a confirmed checkpoint.

mod damage;
mod faults;
mod formats;
mod status;
mod tallies;
mod world;

use world::{World, contents, fill, handle, options, options_of, temp_dir};

use proptest::prelude::*;
use reverb_core::TableChanges;
use reverb_core::{Error, SelectorKind};
use reverb_service::write_ledger::Ledgers;
use reverb_store::checkpoint::{Checkpointer, Definitions, LoadOptions, Plan, SizeLimit, list, verify};
use std::fs;

const LIMIT: u64 = 16 << 20;

#[test]
fn a_restored_table_continues_where_it_was_saved() {
    for selector in [
        SelectorKind::Fifo,
        SelectorKind::Lifo,
        SelectorKind::Uniform,
        SelectorKind::Prioritized { priority_exponent: 0.7 },
        SelectorKind::MinHeap,
        SelectorKind::MaxHeap,
    ] {
        let root = temp_dir();
        let table = handle("a", selector.clone(), 50);
        fill(&table, 0..70);
        world::draw(&table, 9);
        let saved = contents(&table);
        let saver = Checkpointer::open(options(&root)).unwrap();
        let path = saver.save(std::slice::from_ref(&table)).unwrap();
        fill(&table, 100..120);
        saver.close().unwrap();

        let restored = handle("a", selector, 50);
        let loader = Checkpointer::open(options(&root)).unwrap();
        assert_eq!(loader.restore(std::slice::from_ref(&restored), &Ledgers::default(), LIMIT).unwrap(), Some(path));
        assert_eq!(contents(&restored), saved);
    }
}

#[test]
fn two_tables_that_share_chunks_share_them_again() {
    let root = temp_dir();
    let tables = [handle("a", SelectorKind::Fifo, 50), handle("b", SelectorKind::Lifo, 50)];
    world::fill_all(&tables, 0..10);
    let saver = Checkpointer::open(options(&root)).unwrap();
    let path = saver.save(&tables).unwrap();
    drop(saver);
    let summary = verify(&path, SizeLimit::default()).unwrap();
    assert_eq!(summary.tables.iter().map(|table| table.items).collect::<Vec<_>>(), [Some(10), Some(10)]);
    let restored = [handle("b", SelectorKind::Lifo, 50), handle("a", SelectorKind::Fifo, 50)];
    Checkpointer::open(options(&root)).unwrap().restore(&restored, &Ledgers::default(), LIMIT).unwrap();
    assert_eq!(contents(&restored[1]), contents(&tables[0]));
    assert_eq!(contents(&restored[0]), contents(&tables[1]));
    assert_eq!(world::distinct_chunks(&restored), world::distinct_chunks(&tables));
}

#[test]
fn large_chunks_that_compress_well_stay_so_until_they_are_read() {
    let root = temp_dir();
    let tables = || [handle("a", SelectorKind::Fifo, 50), handle("b", SelectorKind::Fifo, 50)];
    let saved = tables();
    world::insert_large(&saved[0], 1, |_| 7);
    world::insert_large(&saved[0], 2, |i| i as i64 / 1000);
    world::insert_large(&saved[1], 3, |i| (i as i64).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64));
    Checkpointer::open(options(&root)).unwrap().save(&saved).unwrap();
    let restored = tables();
    let checkpointer = Checkpointer::open(options(&root)).unwrap();
    checkpointer.restore(&restored, &Ledgers::default(), LIMIT).unwrap();
    assert_eq!((world::packed(&restored[0]), world::packed(&restored[1])), (vec![1, 2], vec![]));
    // Saving does not unpack them either.
    checkpointer.save(&restored).unwrap();
    assert_eq!(world::packed(&restored[0]), [1, 2]);
    let again = tables();
    checkpointer.restore(&again, &Ledgers::default(), LIMIT).unwrap();
    for tables in [&restored, &again] {
        assert_eq!(world::draw_columns(&tables[0], 1), world::draw_columns(&saved[0], 1));
        assert_eq!(world::packed(&tables[0]), [2]);
        for (table, expected) in tables.iter().zip(&saved) {
            assert_eq!(contents(table).items.len(), contents(expected).items.len());
            assert!(
                contents(table)
                    .items
                    .iter()
                    .map(|item| &item.4)
                    .eq(contents(expected).items.iter().map(|item| &item.4))
            );
        }
        assert!(world::packed(&tables[0]).is_empty());
    }
}

#[test]
fn a_chunk_that_the_reference_has_written_twice_is_loaded_once() {
    let root = temp_dir();
    let tables = [handle("a", SelectorKind::Fifo, 50), handle("b", SelectorKind::Lifo, 50)];
    world::fill_all(&tables, 0..10);
    let path = Checkpointer::open(options(&root)).unwrap().save(&tables).unwrap();
    std::fs::remove_file(path.join("reverb.jsonl")).unwrap();
    world::write_records_twice(&path.join("chunks.tfrecord"));
    let restored = [handle("a", SelectorKind::Fifo, 50), handle("b", SelectorKind::Lifo, 50)];
    Checkpointer::open(options(&root)).unwrap().restore(&restored, &Ledgers::default(), LIMIT).unwrap();
    assert_eq!(contents(&restored[0]).items, contents(&tables[0]).items);
    assert_eq!(world::distinct_chunks(&restored), world::distinct_chunks(&tables));
}

#[test]
fn different_chunks_under_one_key_stay_different() {
    let root = temp_dir();
    let table = handle("a", SelectorKind::Fifo, 50);
    world::insert_chunk(&table, 1, 7, 10);
    world::insert_chunk(&table, 2, 7, 20);
    let saver = Checkpointer::open(options(&root)).unwrap();
    saver.save(std::slice::from_ref(&table)).unwrap();
    drop(saver);
    let restored = handle("a", SelectorKind::Fifo, 50);
    Checkpointer::open(options(&root))
        .unwrap()
        .restore(std::slice::from_ref(&restored), &Ledgers::default(), LIMIT)
        .unwrap();
    assert_eq!(world::values(&restored), world::values(&table));
}

#[test]
fn a_table_over_its_size_is_restored_whole() {
    let root = temp_dir();
    let table = handle("a", SelectorKind::Fifo, 3);
    fill(&table, 0..3);
    world::overfill(&table);
    let saved = contents(&table);
    assert_eq!(saved.items.len(), 4, "one more than the table may hold");
    let saver = Checkpointer::open(options(&root)).unwrap();
    saver.save(std::slice::from_ref(&table)).unwrap();
    drop(saver);
    let restored = handle("a", SelectorKind::Fifo, 3);
    Checkpointer::open(options(&root))
        .unwrap()
        .restore(std::slice::from_ref(&restored), &Ledgers::default(), LIMIT)
        .unwrap();
    assert_eq!(contents(&restored), saved);
}

#[test]
fn older_checkpoints_go_when_newer_ones_are_good_and_foreign_files_stay() {
    let root = temp_dir();
    for name in ["notes.txt", "zzz"] {
        fs::write(root.join(name), "mine").unwrap();
    }
    fs::create_dir(root.join("2020-01-01T00:00:00+00:00")).unwrap();
    fs::write(root.join("2020-01-01T00:00:00+00:00/DONE"), "").unwrap();
    let table = handle("a", SelectorKind::Fifo, 10);
    let saver = Checkpointer::open(options_of(&root, 2, LoadOptions::default())).unwrap();
    let tables = std::slice::from_ref(&table);
    let paths: Vec<_> = (0..4)
        .map(|round| {
            fill(&table, round * 10..round * 10 + 1);
            saver.save(tables).unwrap()
        })
        .collect();
    assert!(!paths[0].exists() && !paths[1].exists() && paths[2].exists() && paths[3].exists());
    assert!(root.join("zzz").exists() && root.join("notes.txt").exists());
    assert!(root.join("2020-01-01T00:00:00+00:00/DONE").exists(), "it was not saved by this package");

    // A damaged checkpoint is not counted and not removed.
    fs::write(paths[3].join("items.tfrecord"), "torn").unwrap();
    drop(saver);
    let saver = Checkpointer::open(options_of(&root, 2, LoadOptions::default())).unwrap();
    let newest = saver.save(tables).unwrap();
    assert!(newest.exists() && paths[3].exists() && paths[2].exists());
    let newer = saver.save(tables).unwrap();
    assert!(newer.exists() && newest.exists() && paths[3].exists() && !paths[2].exists());
}

#[test]
fn incomplete_checkpoints_of_a_killed_process_are_removed() {
    let root = temp_dir();
    let begun = root.join(".saving-2026-01-01T00:00:00.000000000+00:00");
    fs::create_dir(&begun).unwrap();
    fs::write(begun.join("items.tfrecord"), "half").unwrap();
    let foreign = root.join(".removing-2026-01-01T00:00:00.000000000+00:00");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("notes"), "mine").unwrap();
    let _saver = Checkpointer::open(options(&root)).unwrap();
    assert!(!begun.exists());
    assert!(foreign.join("notes").exists());
}

#[test]
fn a_folder_has_one_server() {
    let root = temp_dir();
    let first = Checkpointer::open(options(&root)).unwrap();
    let refused = Checkpointer::open(options(&root)).unwrap_err();
    assert!(matches!(&refused, Error::InvalidArgument(text) if text.contains("another server")), "{refused}");
    first.close().unwrap();
    let second = Checkpointer::open(options(&root)).unwrap();
    let closed = first.save(&[]).unwrap_err();
    assert!(matches!(closed, Error::Cancelled(_)), "{closed}");
    drop(first);
    let still_held = Checkpointer::open(options(&root)).unwrap_err();
    assert!(still_held.to_string().contains("another server"), "{still_held}");
    drop(second);
}

#[test]
fn some_tables_are_loaded_and_under_new_names() {
    let root = temp_dir();
    let tables = [handle("a", SelectorKind::Fifo, 50), handle("b", SelectorKind::Fifo, 50)];
    fill(&tables[0], 0..3);
    fill(&tables[1], 0..5);
    let saver = Checkpointer::open(options(&root)).unwrap();
    let path = saver.save(&tables).unwrap();
    drop(saver);
    let wanted = |tables: &[(&str, &str)], path| LoadOptions {
        tables: Some(tables.iter().map(|(from, to)| ((*from).into(), (*to).into())).collect()),
        path,
        ..LoadOptions::default()
    };
    let load = |options: LoadOptions, into: &reverb_service::TableHandle| {
        let loader = Checkpointer::open(options_of(&root, 1, options)).unwrap();
        loader.restore(std::slice::from_ref(into), &Ledgers::default(), LIMIT)
    };
    let c = handle("c", SelectorKind::Fifo, 50);
    load(wanted(&[("b", "c")], Some(path.clone())), &c).unwrap();
    assert_eq!(contents(&c).items.len(), 5);
    let a = handle("a", SelectorKind::Fifo, 50);
    load(wanted(&[("a", "a")], None), &a).unwrap();
    assert_eq!(contents(&a).items.len(), 3);
    let missing = load(wanted(&[("x", "a")], None), &a).unwrap_err().to_string();
    assert!(missing.contains("no table 'x'"), "{missing}");
    let lacking = load(LoadOptions::default(), &a).unwrap_err().to_string();
    assert_eq!(
        lacking,
        "Trying to load table 'b' but table was not found in provided list of tables. Available tables: ['a']"
    );
    let no_checkpoint = load(LoadOptions { path: Some(root.clone()), ..LoadOptions::default() }, &a).unwrap_err();
    assert!(no_checkpoint.to_string().starts_with("Load called with invalid checkpoint path"), "{no_checkpoint}");
}

#[test]
fn definitions_are_those_of_the_checkpoint_unless_the_server_keeps_its_own() {
    let root = temp_dir();
    let table = handle("a", SelectorKind::Fifo, 50);
    fill(&table, 0..20);
    let saver = Checkpointer::open(options(&root)).unwrap();
    saver.save(std::slice::from_ref(&table)).unwrap();
    drop(saver);
    for definitions in [Definitions::Saved, Definitions::Here] {
        let other = handle("a", SelectorKind::Lifo, 5);
        let load = LoadOptions { definitions, ..LoadOptions::default() };
        let loader = Checkpointer::open(options_of(&root, 1, load)).unwrap();
        loader.restore(std::slice::from_ref(&other), &Ledgers::default(), LIMIT).unwrap();
        let info = other.status().info;
        if definitions == Definitions::Here {
            assert_eq!((info.config.sampler, info.config.max_size, info.current_size), (SelectorKind::Lifo, 5, 5));
            assert_eq!(info.inserts - other.with_table(|table| table.limiter().deletes), 5);
            assert_eq!(world::values(&other), [15, 16, 17, 18, 19], "the remover has taken the oldest");
        } else {
            assert_eq!((info.config.sampler, info.config.max_size, info.current_size), (SelectorKind::Fifo, 50, 20));
        }
    }
}

/// A server that is defined with `max_size`, at a folder whose checkpoints have 20 items at most.
fn serve_edited(root: &std::path::Path, max_size: u64) -> (Checkpointer, reverb_service::TableHandle) {
    let table = handle("a", SelectorKind::Fifo, max_size);
    let load = LoadOptions { definitions: Definitions::Edited, ..LoadOptions::default() };
    let options = options_of(root, 1, load);
    let planned = Plan::new(&options, std::slice::from_ref(&table)).unwrap();
    let server = Checkpointer::open(options).unwrap();
    assert_eq!(server.restore(std::slice::from_ref(&table), &Ledgers::default(), LIMIT).unwrap(), planned.path);
    let served = table.status().info.config.max_size.to_string();
    for option in planned.tables.into_iter().flat_map(|table| table.options.expect("the server has this table")) {
        if option.name == "max_size" {
            assert_eq!((option.here, &option.used), (max_size.to_string(), &served));
        }
    }
    (server, table)
}

#[test]
fn an_edited_definition_holds_and_what_a_running_server_was_told_stays_until_the_next_edit() {
    let root = temp_dir();
    let max_size = |table: &reverb_service::TableHandle| {
        let info = table.status().info;
        (info.config.max_size, info.current_size)
    };
    // Saved by a server that knew nothing of definitions, like one of an earlier version.
    let old = handle("a", SelectorKind::Fifo, 50);
    fill(&old, 0..20);
    let saver = Checkpointer::open(options(&root)).unwrap();
    saver.save(std::slice::from_ref(&old)).unwrap();
    drop(saver);
    let (server, table) = serve_edited(&root, 15);
    assert_eq!(max_size(&table), (15, 15), "an edit holds");
    table.configure(&TableChanges { max_size: Some(12), ..TableChanges::default() }).unwrap();
    server.save(std::slice::from_ref(&table)).unwrap();
    drop(server);
    for _ in 0..2 {
        let (server, table) = serve_edited(&root, 15);
        assert_eq!(max_size(&table), (12, 12), "nothing was edited since");
        server.save(std::slice::from_ref(&table)).unwrap();
    }
    let (server, table) = serve_edited(&root, 10);
    assert_eq!(max_size(&table), (10, 10), "another edit");
    server.save(std::slice::from_ref(&table)).unwrap();
    drop(server);
    let (_server, table) = serve_edited(&root, 15);
    assert_eq!(max_size(&table), (15, 10), "and one back");
}

#[test]
fn a_folder_that_must_be_writable_and_is_not_is_refused() {
    let folder = temp_dir();
    fs::write(folder.join("file"), "").unwrap();
    let of = |must_be_writable| {
        let root = folder.join("file/root");
        reverb_store::checkpoint::CheckpointOptions { must_be_writable, ..options(&root) }
    };
    let refused = Checkpointer::open(of(true)).unwrap_err();
    assert!(matches!(&refused, Error::Storage(why) if why.contains("file/root")), "{refused}");
    let saver = Checkpointer::open(of(false)).unwrap();
    assert!(matches!(saver.save(&[]), Err(Error::Storage(_))));
    let good = Checkpointer::open(reverb_store::checkpoint::CheckpointOptions {
        must_be_writable: true,
        durability: None,
        accept_loss: false,
        ..options(&folder.join("root"))
    });
    good.unwrap().save(&[]).unwrap();
    let names: Vec<_> = fs::read_dir(folder.join("root")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().contains("probe")), "{names:?}");
}

#[test]
fn a_folder_without_checkpoints_has_a_fallback_which_is_not_changed() {
    let (old, root) = (temp_dir(), temp_dir());
    let table = handle("a", SelectorKind::Fifo, 50);
    fill(&table, 0..4);
    let saver = Checkpointer::open(options(&old)).unwrap();
    let path = saver.save(std::slice::from_ref(&table)).unwrap();
    drop(saver);
    let fallback = Some(path.clone());
    let loader =
        Checkpointer::open(reverb_store::checkpoint::CheckpointOptions { fallback, ..options(&root) }).unwrap();
    let restored = handle("a", SelectorKind::Fifo, 50);
    assert_eq!(
        loader.restore(std::slice::from_ref(&restored), &Ledgers::default(), LIMIT).unwrap(),
        Some(path.clone())
    );
    assert_eq!(contents(&restored), contents(&table));
    loader.save(std::slice::from_ref(&restored)).unwrap();
    assert_eq!(list(&old).unwrap(), [path]);
    assert_eq!(list(&root).unwrap().len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_tables_are_restored_as_they_were(world in World::strategy()) {
        let root = temp_dir();
        let tables = world.make();
        let saver = Checkpointer::open(options(&root)).unwrap();
        let path = saver.save(&tables).unwrap();
        drop(saver);
        let restored = world.empty();
        let loader = Checkpointer::open(options(&root)).unwrap();
        prop_assert_eq!(loader.restore(&restored, &Ledgers::default(), LIMIT).unwrap(), Some(path));
        for (restored, saved) in restored.iter().zip(&tables) {
            prop_assert_eq!(contents(restored), contents(saved));
        }
    }
}
