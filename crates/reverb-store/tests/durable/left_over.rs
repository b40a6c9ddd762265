//! Starts that do not go on with the log of the folder, and those with other definitions.

use crate::bits::end_of_log;
use crate::crash_disk::{CrashDisk, Fault};
use crate::life::Life;
use crate::service::config;
use crate::story::Op;
use crate::world::{BOOTS, Folder, ITEMS, Server, contents, insert, options};
use reverb_core::{Error, SelectorKind, Table, TableConfig};
use reverb_service::write_ledger::Ledgers;
use reverb_service::{LogMode, TableHandle};
use reverb_store::checkpoint::{CheckpointOptions, Checkpointer, Definitions, LoadOptions};

#[test]
fn a_start_that_ends_while_it_lets_go_of_a_damaged_log_loses_nothing_of_what_could_be_repeated() {
    let mut life = Life::new(LogMode::Power);
    let server = life.start(&life.disk, BOOTS[0]).unwrap();
    life.make(&server, &[Op::Insert(ITEMS, 1, 1.0), Op::Insert(ITEMS, 2, 1.0)]);
    let (path, before) = end_of_log(&life.disk.files());
    life.make(&server, &[Op::Insert(ITEMS, 3, 1.0), Op::Insert(ITEMS, 4, 1.0)]);
    life.kill(server);
    let mut files = life.disk.files();
    // In the header of a frame behind that of item 2.
    files.get_mut(&path).unwrap()[before.next_multiple_of(8) + 60] ^= 1;
    let accepts = || CheckpointOptions { accept_loss: true, ..life.options() };
    let start = |disk: &CrashDisk, options| Server::start_on(disk, options, BOOTS[0]);
    assert!(matches!(start(&CrashDisk::of(&files), life.options()), Err(Error::DataLoss(_))));
    let kept = [(1, 1.0), (2, 1.0)];
    for call in 0.. {
        let disk = CrashDisk::of(&files);
        disk.fail(call, Fault::Ends, false);
        let ended = start(&disk, accepts());
        let is_over = !disk.has_ended();
        let left = disk.after_kill();
        ended.iter().for_each(|server| drop(server.store.close()));
        match start(&left, life.options()) {
            Ok(server) => {
                assert_eq!(contents(server.items()), kept, "at call {call}");
                server.store.close().unwrap();
            }
            Err(error) => {
                assert!(matches!(error, Error::DataLoss(_)), "at call {call}: {error}");
                let server = start(&left, accepts()).unwrap();
                assert_eq!(contents(server.items()), kept, "at call {call}");
                server.store.close().unwrap();
            }
        }
        if is_over {
            assert!(call > 20, "{call}");
            return;
        }
    }
}

#[test]
fn a_log_goes_on_under_the_new_names_of_tables() {
    let folder = Folder::new();
    let server = Server::start(options(&folder.0, Some(LogMode::Process))).unwrap();
    (1..=2).for_each(|key| insert(server.items(), key).unwrap());
    server.store.close().unwrap();
    let names = [("items", "prioritized"), ("prioritized", "items"), ("queue", "queue"), ("thrice", "thrice")];
    let tables = Some(names.map(|(from, to)| (from.into(), to.into())).into());
    let renamed = CheckpointOptions {
        load: LoadOptions { tables, ..LoadOptions::default() },
        ..options(&folder.0, Some(LogMode::Process))
    };
    let server = Server::start(renamed).unwrap();
    insert(&server.tables[1], 5).unwrap();
    drop(server);
    let server = Server::start(options(&folder.0, Some(LogMode::Process))).unwrap();
    assert_eq!(contents(&server.tables[1]), [(1, 1.0), (2, 1.0), (5, 1.0)]);
    assert_eq!(contents(server.items()), []);
    server.store.close().unwrap();
}

#[test]
fn changes_that_do_not_fit_another_selector_are_no_damage() {
    let folder = Folder::new();
    let start = |sampler| {
        let table = TableHandle::new(Table::new(TableConfig { sampler, ..config("items") }).unwrap());
        let load = LoadOptions { definitions: Definitions::Here, ..LoadOptions::default() };
        let options = CheckpointOptions { load, accept_loss: true, ..options(&folder.0, Some(LogMode::Process)) };
        let store = Checkpointer::open(options).unwrap();
        let restored = store.restore(std::slice::from_ref(&table), &Ledgers::default(), 1 << 30);
        (store, table, restored)
    };
    let (store, table, _) = start(SelectorKind::Uniform);
    insert(&table, 1).unwrap();
    table.mutate(&[(1, -1.0)], &[]).unwrap();
    store.close().unwrap();
    let (store, _, refused) = start(SelectorKind::Prioritized { priority_exponent: 1.0 });
    assert!(matches!(&refused, Err(Error::InvalidPriority(text)) if text.contains("of the log")), "{refused:?}");
    store.close().unwrap();
    let (store, table, restored) = start(SelectorKind::Uniform);
    restored.unwrap();
    assert_eq!(contents(&table), [(1, -1.0)]);
    store.close().unwrap();
}

#[test]
fn a_start_that_was_given_up_keeps_no_log() {
    let folder = Folder::new();
    let table = TableHandle::new(Table::new(config("items")).unwrap());
    let store = Checkpointer::open(options(&folder.0, Some(LogMode::Process))).unwrap();
    store.close().unwrap();
    let given_up = store.restore(std::slice::from_ref(&table), &Ledgers::default(), 1 << 30);
    assert!(matches!(given_up, Err(Error::Cancelled(_))), "{given_up:?}");
    assert!(insert(&table, 1).is_err(), "nothing can confirm it");
}
