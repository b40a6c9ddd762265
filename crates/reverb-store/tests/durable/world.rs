//! A server as its store sees it: tables, ledgers and a checkpointer.

use crate::crash_disk::CrashDisk;
use crate::service::{config, here, item};
use reverb_core::{ItemKey, NewItem, Result, SelectorKind, Table, TableConfig};
use reverb_service::LogMode;
use reverb_service::write_ledger::{LedgerGuard, Ledgers};
use reverb_service::write_queue::{Done, WriteQueue};
use reverb_service::{Arrival, Call, TableHandle, snapshot_all};
use reverb_store::checkpoint::{CheckpointOptions, Checkpointer, Durability, LoadOptions};
use reverb_store::durable::LogPlace;
use reverb_store::log::Id;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// Limit of a chunk in bytes.
const LIMIT: u64 = 1 << 30;
/// Small, so that a few changes fill one.
const SEGMENT: u64 = 2048;
/// The id of the writer that [`Server::write`] is.
const WRITER: u64 = 7;
/// Maximum number of items of the first two tables. The others are never full.
pub const SIZE: u64 = 6;
/// Boots of the system.
pub const BOOTS: [Id; 3] = [[1; 16], [2; 16], [3; 16]];

/// The tables: of random draws, of draws by priority, each item once, each item three times.
pub const ITEMS: usize = 0;
pub const PRIORITIZED: usize = 1;
pub const QUEUE: usize = 2;
pub const THRICE: usize = 3;

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
        // The threads of servers that were dropped may still make files.
        while let Err(error) = std::fs::remove_dir_all(&self.0) {
            assert_eq!(error.kind(), ErrorKind::DirectoryNotEmpty, "{error}");
        }
    }
}

pub fn options(root: &Path, mode: Option<LogMode>) -> CheckpointOptions {
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
    /// A writer that is connected.
    writer: LedgerGuard,
}

impl Server {
    /// Starts on the disk of the machine.
    pub fn start(options: CheckpointOptions) -> Result<Self> {
        Self::restore(Checkpointer::open(options)?)
    }

    /// Starts on another disk, with the real folder only to lock it.
    pub fn start_on(disk: &CrashDisk, options: CheckpointOptions, boot: Id) -> Result<Self> {
        let folder = options.root.clone();
        let place = LogPlace { disk: Arc::new(disk.clone()), folder, segment_bytes: SEGMENT, boot_id: Some(boot) };
        Self::restore(Checkpointer::with_log_place(options, Arc::new(disk.clone()), place)?)
    }

    fn restore(store: Checkpointer) -> Result<Self> {
        let sized = |config| TableConfig { max_size: SIZE, ..config };
        let sampler = SelectorKind::Prioritized { priority_exponent: 1.0 };
        let configs = [
            sized(config("items")),
            sized(TableConfig { sampler, ..config("prioritized") }),
            TableConfig { sampler: SelectorKind::Fifo, max_times_sampled: 1, ..config("queue") },
            TableConfig { sampler: SelectorKind::Fifo, max_times_sampled: 3, ..config("thrice") },
        ];
        let tables: Vec<_> = configs.into_iter().map(|config| TableHandle::new(Table::new(config).unwrap())).collect();
        let ledgers = Ledgers::default();
        let restored = store.restore(&tables, &ledgers, LIMIT);
        if let Err(error) = restored {
            // Otherwise a journal that has begun lives on.
            let _closed = store.close();
            return Err(error);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let writer = runtime.block_on(ledgers.take(None, WRITER));
        Ok(Self { store, tables, ledgers, writer })
    }

    pub fn items(&self) -> &TableHandle {
        &self.tables[ITEMS]
    }

    pub fn queue(&self) -> &TableHandle {
        &self.tables[QUEUE]
    }

    /// Inserts items of a writer: their numbers and their keys. The results come in their order.
    pub fn write(&self, items: &[(u64, ItemKey)]) -> Vec<Result<()>> {
        let (mut queue, mut done) = (WriteQueue::new(here(), Some(self.writer.ledger.clone())), Done::new());
        let arrival = |&(sequence, key)| Arrival { sequence, item: item(key), is_validated: true };
        queue.push_all(&self.tables[PRIORITIZED], items.iter().map(arrival).collect(), &mut done);
        assert_eq!(
            done.iter().map(|(sequence, _)| *sequence).collect::<Vec<_>>(),
            items.iter().map(|(sequence, _)| *sequence).collect::<Vec<_>>()
        );
        done.into_iter().map(|(_, result)| result).collect()
    }

    /// Whether the log is closed by a failure.
    pub fn is_closed(&self) -> bool {
        reverb_service::Store::status(&self.store).log.is_some_and(|log| log.failure.is_some())
    }

    /// The ranges of the numbers that the writer has inserted.
    pub fn written(&self) -> Vec<(u64, u64)> {
        let states = self.ledgers.states();
        let Some(state) = states.iter().find(|state| state.writer.id == WRITER) else { return Vec::new() };
        assert_eq!(state.lost, 0);
        let through = (state.through > 0).then_some((1, state.through));
        through.into_iter().chain(state.beyond.iter().copied()).collect()
    }
}

/// Inserts an item.
pub fn insert(table: &TableHandle, key: ItemKey) -> Result<()> {
    insert_with(table, key, 1.0)
}

/// Inserts an item with a priority.
pub fn insert_with(table: &TableHandle, key: ItemKey, priority: f64) -> Result<()> {
    match table.insert(vec![NewItem { priority, ..item(key) }], here()) {
        Call::Done(result) => result,
        Call::Waiting(_) => panic!("the insert waits"),
    }
}

/// The keys and priorities of the items of a table, by key.
pub fn contents(table: &TableHandle) -> Vec<(ItemKey, f64)> {
    let [snapshot] = &mut snapshot_all(std::slice::from_ref(table))[..] else { panic!("there is one table") };
    let mut found: Vec<_> = snapshot.items().map(|item| (item.key, item.priority)).collect();
    found.sort_by_key(|(key, _)| *key);
    found
}
