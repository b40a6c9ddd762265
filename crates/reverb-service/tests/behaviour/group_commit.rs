//! Commits that wait for a disk in the call do not keep the workers of a runtime, so that many tasks can share one.

use crate::common::{exactly, here, items, uniform};
use crate::done;
use reverb_core::{Confirmation, Result};
use reverb_service::{Journal, TableHandle};
use std::sync::{Arc, Barrier};
use tokio::runtime::Builder;

/// A journal that syncs only for a group of so many callers.
#[derive(Debug)]
struct Group(Barrier);

impl Group {
    fn of(table: &TableHandle, callers: usize) {
        table.set_journal(Arc::new(Self(Barrier::new(callers))));
    }
}

impl Journal for Group {
    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn waits_for_disk(&self) -> bool {
        true
    }

    fn commit(&self, confirmation: Confirmation) -> Result<()> {
        if confirmation == Confirmation::Synced {
            self.0.wait();
        }
        Ok(())
    }
}

#[test]
fn more_tasks_than_there_are_workers_commit_together() {
    const TASKS: u64 = 8;
    let table = uniform("table");
    done!(table.insert(items(0..TASKS), here()));
    Group::of(&table, TASKS as usize);
    let runtime = Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let delete = |key| {
        let table = table.clone();
        runtime.spawn(async move { assert_eq!(table.mutate(&[], &[key]), Ok(1)) })
    };
    let tasks: Vec<_> = (0..TASKS).map(delete).collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert_eq!(table.with_table(|table| table.len()), 0);
}

/// One that commits, and one that draws and so does not, wherever they are called.
#[test]
fn threads_of_every_kind_commit() {
    let table = uniform("table");
    Group::of(&table, 1);
    let call = |key| {
        done!(table.insert(items([key]), here()));
        done!(table.sample(exactly(1), here()));
        table.reset().unwrap();
    };
    call(1);
    let current = Builder::new_current_thread().build().unwrap();
    current.block_on(async { call(2) });
    let several = Builder::new_multi_thread().worker_threads(1).build().unwrap();
    several.block_on(async { call(3) });
    let entered = several.enter();
    call(4);
    drop(entered);
    let (blocking, nested) = (table.clone(), table.clone());
    let call_blocking = move || blocking.reset().unwrap();
    several.block_on(several.spawn_blocking(call_blocking)).unwrap();
    // A call of many items makes room for other tasks itself.
    let task = async move { tokio::task::block_in_place(|| nested.reset().unwrap()) };
    several.block_on(several.spawn(task)).unwrap();
}
