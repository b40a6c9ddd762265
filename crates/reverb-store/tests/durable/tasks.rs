//! Tasks, which are told later that their items are kept.

use crate::crash_disk::{CrashDisk, Fault, LEFT, Left};
use crate::service::{here, item, silent};
use crate::world::{BOOTS, Folder, Server, contents, options};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use reverb_core::{Error, ItemKey, Result};
use reverb_service::write_queue::{Done, WriteQueue};
use reverb_service::{Arrival, Call, LogMode, TableHandle};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use tokio::runtime::Runtime;

const TASKS: u64 = 8;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap()
}

fn start(disk: &CrashDisk, folder: &Folder, boot: usize) -> Result<Server> {
    Server::start_on(disk, options(&folder.0, Some(LogMode::Power)), BOOTS[boot])
}

/// Inserts an item of a call, or of a writer.
pub async fn insert(table: &TableHandle, key: ItemKey) -> Result<()> {
    if key.is_multiple_of(2) {
        return match table.insert(vec![item(key)], here()) {
            Call::Done(result) => result,
            Call::Waiting(waiting) => waiting.result(None, silent).await,
        };
    }
    let (mut queue, mut done) = (WriteQueue::new(here(), None), Done::new());
    queue.push_all(table, vec![Arrival { sequence: 1, item: item(key), is_validated: true }], &mut done);
    if done.is_empty() {
        std::future::poll_fn(|context| queue.poll(context, &mut done)).await;
    }
    done.pop().unwrap().1
}

/// Lets tasks insert items until one is told of an error. Returns the keys that were confirmed, and the errors.
fn insert_all(runtime: &Runtime, table: &TableHandle, keys: std::ops::Range<u64>) -> (BTreeSet<ItemKey>, Vec<Error>) {
    let told = Arc::new(Mutex::new((BTreeSet::new(), Vec::new())));
    let tasks = (0..TASKS).map(|task| {
        let (table, told, keys) = (table.clone(), told.clone(), keys.clone());
        runtime.spawn(async move {
            for key in keys.filter(|key| key % TASKS == task) {
                let result = insert(&table, key).await;
                let told = &mut *told.lock().unwrap();
                match result {
                    Ok(()) => drop(told.0.insert(key)),
                    Err(error) => return told.1.push(error),
                }
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
    Arc::into_inner(told).unwrap().into_inner().unwrap()
}

fn keys(server: &Server) -> BTreeSet<ItemKey> {
    contents(server.queue()).into_iter().map(|(key, _)| key).collect()
}

#[test]
fn a_sync_is_of_all_tasks_that_came_before_it() {
    let (runtime, disk, folder) = (runtime(), CrashDisk::empty(), Folder::new());
    let server = start(&disk, &folder, 0).unwrap();
    let (begun, go_on) = disk.hold_sync();
    let spawn = |key| {
        let table = server.queue().clone();
        runtime.spawn(async move { insert(&table, key).await })
    };
    let first = spawn(0);
    begun.recv().unwrap();
    let others: Vec<_> = (1..100).map(spawn).collect();
    // They are in the table although the disk works, and nobody is told.
    while server.queue().with_table(|table| table.len()) < 100 {
        std::thread::yield_now();
    }
    assert!(!first.is_finished() && others.iter().all(|other| !other.is_finished()));
    let before = disk.calls();
    go_on.send(()).unwrap();
    for task in std::iter::once(first).chain(others) {
        runtime.block_on(task).unwrap().unwrap();
    }
    // A write, a sync and a look at the fence for each group, and what the log's own thread does.
    assert!(disk.calls() - before < 60, "{} calls of the disk", disk.calls() - before);
    server.store.close().unwrap();
}

#[test]
fn what_tasks_were_told_survives_the_end_at_any_call() {
    let runtime = runtime();
    let mut random = SmallRng::seed_from_u64(1);
    for call in (0..400).step_by(7) {
        let (disk, folder) = (CrashDisk::empty(), Folder::new());
        disk.fail(call, Fault::Ends, true);
        let Ok(server) = start(&disk, &folder, 0) else { continue };
        let (confirmed, _) = insert_all(&runtime, server.queue(), 0..200);
        drop(server);
        let left = LEFT[call as usize % LEFT.len()];
        for left in [left, Left::Nothing] {
            let lost = disk.after_power_loss(left, &mut random);
            let found = keys(&start(&lost, &folder, 1).unwrap());
            assert!(confirmed.is_subset(&found), "call {call}, {left:?}: {confirmed:?}, and {found:?} are there");
        }
    }
}

#[test]
fn all_tasks_are_told_of_a_failure_and_go_on_once_it_is_healed() {
    let runtime = runtime();
    for call in (3..60).step_by(3) {
        let (disk, folder) = (CrashDisk::empty(), Folder::new());
        let server = start(&disk, &folder, 0).unwrap();
        disk.fail(call, Fault::Error(libc::EIO), true);
        let (before, errors) = insert_all(&runtime, server.queue(), 0..2000);
        assert_eq!(errors.len(), TASKS as usize, "{errors:?}");
        assert!(errors.iter().all(|error| matches!(error, Error::Storage(_))), "{errors:?}");
        disk.mend();
        // The log's own thread may find the failure late, and close the log that a save has opened.
        while server.is_closed() {
            server.store.save(&server.tables).unwrap();
        }
        let (after, errors) = insert_all(&runtime, server.queue(), 2000..2100);
        assert_eq!((errors, after.len()), (Vec::new(), 100));
        server.store.close().unwrap();
        drop(server);
        let found = keys(&start(&disk.after_kill(), &folder, 1).unwrap());
        assert!(before.is_subset(&found) && after.is_subset(&found));
    }
}
