//! The copy of a server in a forked child.

use crate::crash_disk::CrashDisk;
use crate::life::calls;
use crate::story::Story;
use crate::tasks;
use crate::world::{BOOTS, Folder, ITEMS, Server, insert, options};
use reverb_core::Result;
use reverb_service::LogMode;
use reverb_store::checkpoint::Durability;
use std::time::Duration;
use tokio::runtime::Builder;

/// A server whose own thread has nothing to do, so that it holds no lock when the process is forked.
fn quiet_server(disk: &CrashDisk, folder: &Folder, mode: LogMode) -> Server {
    let sync_interval = Duration::from_secs(3600);
    let durability = Some(Durability { mode, sync_interval, max_log_bytes: None });
    let options = reverb_store::checkpoint::CheckpointOptions { durability, ..options(&folder.0, None) };
    let server = Server::start_on(disk, options, BOOTS[0]).unwrap();
    let mut story = Story::new(mode);
    calls(100).iter().for_each(|op| story.make(&server, disk, op));
    let mut before = 0;
    while before != disk.calls() {
        before = disk.calls();
        std::thread::sleep(Duration::from_millis(50));
    }
    server
}

/// Inserts an item from a task, which is told later.
fn insert_from_task(server: &Server) -> Result<()> {
    let (runtime, table) = (Builder::new_current_thread().enable_time().build().unwrap(), server.items().clone());
    runtime.block_on(runtime.spawn(async move { tasks::insert(&table, 802).await })).unwrap()
}

#[test]
fn the_copy_of_a_server_in_a_forked_child_writes_nothing() {
    for mode in [LogMode::Process, LogMode::Power] {
        check_forked(mode);
    }
}

fn check_forked(mode: LogMode) {
    let (disk, folder) = (CrashDisk::empty(), Folder::new());
    let server = quiet_server(&disk, &folder, mode);
    let before = disk.changes();
    // SAFETY: the child uses only what a fork leaves whole, and ends without running handlers of this process.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_refused = insert(server.items(), 800).is_err()
            && server.tables[ITEMS].mutate(&[], &[106]).is_err()
            && server.tables[ITEMS].reset().is_err()
            && server.write(&[(800, 801)])[0].is_err()
            && insert_from_task(&server).is_err()
            && server.store.save(&server.tables).is_err()
            && reverb_service::Store::status(&server.store).log.is_none();
        let goes_on = server.tables[ITEMS].mutate(&[(106, 4.0)], &[]).is_ok();
        let _closed = server.store.close();
        drop(server);
        // SAFETY: ends the child.
        unsafe {
            libc::_exit(i32::from(!is_refused) + 2 * i32::from(!goes_on) + 4 * i32::from(disk.changes() != before))
        };
    }
    let mut status = -1;
    // SAFETY: the call writes the status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    insert(server.items(), 800).unwrap();
    insert_from_task(&server).unwrap();
    server.store.close().unwrap();
}
