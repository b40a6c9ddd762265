//! A server as its store sees it: tables, ledgers and a checkpointer.

use crate::service::{config, item, queue};
use reverb_core::{ItemKey, Result, Table};
use reverb_service::write_ledger::Ledgers;
use reverb_service::{Call, Peer, TableHandle, snapshot_all};
use reverb_store::checkpoint::{CheckpointOptions, Checkpointer, Durability, LoadOptions};
use reverb_store::log::Mode;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// Limit of a chunk in bytes.
const LIMIT: u64 = 1 << 30;

/// A new folder, which is removed when dropped.
#[derive(Debug)]
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("reverb-durable-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

pub fn options(root: &Path, mode: Option<Mode>) -> CheckpointOptions {
    let durability = mode.map(|mode| Durability { mode, sync_interval: Duration::from_secs(1), max_log_bytes: None });
    CheckpointOptions {
        root: root.into(),
        group: String::new(),
        fallback: None,
        keep: 2,
        compression: 0,
        interval: None,
        save_on_stop: false,
        is_temporary: false,
        must_be_writable: false,
        durability,
        accept_loss: false,
        load: LoadOptions::default(),
    }
}

/// A server. Dropping it is what `kill -9` does, as far as the store can tell.
#[derive(Debug)]
pub struct Server {
    pub store: Checkpointer,
    pub tables: Vec<TableHandle>,
    pub ledgers: Ledgers,
}

impl Server {
    /// Starts with a table of random draws and a queue.
    pub fn start(options: CheckpointOptions) -> Result<Self> {
        let prioritized = TableHandle::new(Table::new(config("items")).unwrap());
        let (tables, ledgers) = (vec![prioritized, queue("queue", 100)], Ledgers::default());
        let store = Checkpointer::open(options)?;
        store.restore(&tables, &ledgers, LIMIT)?;
        Ok(Self { store, tables, ledgers })
    }

    pub fn items(&self) -> &TableHandle {
        &self.tables[0]
    }

    pub fn queue(&self) -> &TableHandle {
        &self.tables[1]
    }
}

/// Inserts an item.
pub fn insert(table: &TableHandle, key: ItemKey) -> Result<()> {
    match table.insert(vec![item(key)], &Peer::in_same_process()) {
        Call::Done(result) => result,
        _ => panic!("the insert waits"),
    }
}

/// The keys and priorities of the items of a table, by key.
pub fn contents(table: &TableHandle) -> Vec<(ItemKey, f64)> {
    let [snapshot] = &mut snapshot_all(std::slice::from_ref(table))[..] else { panic!("there is one table") };
    let mut found: Vec<_> = snapshot.items().map(|item| (item.key, item.priority)).collect();
    found.sort_by_key(|(key, _)| *key);
    found
}
