//! The replay service: the named tables of a server, and calls that concern more than one of them.

use crate::bench::BenchTables;
use crate::connections::Connections;
use crate::cut::cut_to_fit;
use crate::facts::ServerFacts;
use crate::insert::{InsertGroup, check_size, name_row};
use crate::peer::{Inserter, Peer};
use crate::receipts::Receipts;
use crate::shard::{Load, Shard, ShardKeys};
use crate::shared_memory::SharedMemory;
use crate::store::Store;
use crate::table_handle::{Call, TableHandle, TableStatus};
use crate::tables_used::Place;
use crate::write_ledger::Ledgers;
use parking_lot::Mutex;
use reverb_core::{Error, KeySlots, Result};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use tokio::sync::{Semaphore, watch};

// limit (Draws): passes of `peek` over tables without a Fifo or Lifo selector, for each server | {} | the next one
// waits
/// Maximum number of passes over tables of one server at the same time.
const MAX_PASSES: usize = 2;

/// The tables of one server.
#[derive(Debug)]
pub struct Replay {
    id: [u8; 16],
    tables: Vec<TableHandle>,
    max_message_size: u64,
    /// Which shard of a cluster this is, and what its tables share.
    shard: Option<(Shard, Arc<ShardKeys>)>,
    closed: AtomicBool,
    /// Ledgers of the items that writers have inserted.
    pub ledgers: Ledgers,
    /// The connections of the server.
    pub connections: Arc<Connections>,
    /// The receipts of its sample streams.
    pub receipts: Arc<Receipts>,
    /// The callers in this process.
    here: Arc<Peer>,
    /// Whether a client in this process has found the server.
    has_client_here: AtomicBool,
    /// The tables for measurements.
    pub bench: Arc<BenchTables>,
    /// The memory that clients of this host share with the server.
    pub shared: SharedMemory,
    /// Facts about the server that serves the tables.
    pub facts: ServerFacts,
    store: OnceLock<Arc<dyn Store>>,
    /// Locked during a save, so that other saves wait without occupying a thread.
    saving: Arc<tokio::sync::Mutex<()>>,
    /// Permits for passes over tables, so that other passes wait without occupying a thread.
    pub(crate) passes: Arc<Semaphore>,
    /// Its drop tells the tasks of this server to end.
    stop: Mutex<Option<watch::Sender<bool>>>,
    /// Whether the server will be back at its address after its end. `None` while that is not known.
    returns: watch::Sender<Option<bool>>,
}

impl Replay {
    /// Creates a service of these tables. `max_message_size` limits the data of one insert in bytes.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if two tables have the same name.
    pub fn new(tables: Vec<TableHandle>, max_message_size: u64) -> Result<Arc<Self>> {
        Self::of_shard(tables, max_message_size, None)
    }

    /// As [`Replay::new`], for a server that is a shard of a cluster, if it is one.
    ///
    /// # Errors
    /// Those of [`Replay::new`].
    pub fn of_shard(tables: Vec<TableHandle>, max_message_size: u64, shard: Option<Shard>) -> Result<Arc<Self>> {
        for (index, table) in tables.iter().enumerate() {
            if tables[..index].iter().any(|other| other.name() == table.name()) {
                return Err(Error::invalid(format!("Multiple items in tables have the same name: {}", table.name())));
            }
        }
        tables.iter().enumerate().for_each(|(place, table)| table.set_place(Place(place)));
        let shard = shard.map(|shard| {
            let keys = Arc::new(ShardKeys::new(shard.slots()));
            (shard, keys)
        });
        if let Some((_, keys)) = &shard {
            tables.iter().for_each(|table| table.set_shard_keys(keys));
        }
        let (stop, _) = watch::channel(false);
        Ok(Arc::new(Self {
            id: rand::random(),
            tables,
            max_message_size,
            shard,
            closed: AtomicBool::new(false),
            ledgers: Ledgers::default(),
            connections: Arc::default(),
            receipts: Arc::default(),
            here: Peer::in_same_process(),
            has_client_here: AtomicBool::new(false),
            bench: Arc::default(),
            shared: SharedMemory::default(),
            facts: ServerFacts::default(),
            store: OnceLock::new(),
            saving: Arc::default(),
            passes: Arc::new(Semaphore::new(MAX_PASSES)),
            stop: Mutex::new(Some(stop)),
            returns: watch::Sender::new(None),
        }))
    }

    /// Returns the random id of the service. It tells whether two roads lead to the same server.
    pub fn id(&self) -> [u8; 16] {
        self.id
    }

    /// Returns the maximum size of the data of one insert in bytes.
    #[inline]
    pub fn max_message_size(&self) -> u64 {
        self.max_message_size
    }

    /// Returns which shard of a cluster this is. `None` if it is none.
    pub fn shard(&self) -> Option<&Shard> {
        self.shard.as_ref().map(|(shard, _)| shard)
    }

    /// Returns the slots in which items of this server have their keys: all, unless it is a shard.
    #[inline]
    pub fn key_slots(&self) -> KeySlots {
        self.shard.as_ref().map_or(KeySlots::ALL, |(shard, _)| shard.slots())
    }

    /// Whether an item with a key of another shard has ever been in a table. Clients that know nothing of shards choose
    /// such keys, and a checkpoint of another server may have them.
    pub fn has_foreign_keys(&self) -> bool {
        self.shard.as_ref().is_some_and(|(_, keys)| keys.has_foreign())
    }

    /// Returns how full the server is.
    pub fn load(&self) -> Load {
        self.tables.iter().map(TableHandle::pulse).fold(Load::default(), |load, table| Load {
            bytes: load.bytes + table.bytes,
            waiting_inserts: load.waiting_inserts + table.waiting_inserts as u64,
        })
    }

    /// Returns all tables.
    #[inline]
    pub fn tables(&self) -> &[TableHandle] {
        &self.tables
    }

    /// Whether all tables are quiet; see [`TableHandle::is_quiet`].
    pub fn is_quiet(&self) -> bool {
        self.tables.iter().all(TableHandle::is_quiet)
    }

    /// Returns the table called `name`.
    ///
    /// # Errors
    /// [`Error::TableNotFound`] with the names of all tables.
    pub fn table(&self, name: &str) -> Result<&TableHandle> {
        self.tables.iter().find(|table| table.name() == name).ok_or_else(|| Error::TableNotFound {
            table: name.into(),
            known: self.tables.iter().map(TableHandle::name).collect::<Vec<_>>().join(", "),
        })
    }

    /// Returns the table called `name` for streams: one of the service, or one for measurements.
    ///
    /// # Errors
    /// [`Error::TableNotFound`] with the names of all tables of the service.
    pub fn served(&self, name: &str) -> Result<TableHandle> {
        if let Some(table) = self.tables.iter().find(|table| table.name() == name) {
            return Ok(table.clone());
        }
        self.bench.find(name).map_or_else(|| self.table(name).cloned(), Ok)
    }

    /// Checks that the data of one insert does not exceed the limit.
    ///
    /// # Errors
    /// [`Error::MessageTooLarge`] with the option and both sizes.
    #[inline]
    pub fn check_size(&self, size_bytes: u64) -> Result<()> {
        check_size(size_bytes, self.max_message_size)
    }

    /// Begins to insert groups of items of a peer. If a table refuses an item, nothing is inserted.
    ///
    /// # Errors
    /// The error of the refused item; [`Error::InvalidRow`] for an invalid priority in a group of several items.
    pub fn insert<'a>(&self, mut groups: Vec<InsertGroup>, by: impl Into<Inserter<'a>>) -> Result<Vec<Call<()>>> {
        cut_to_fit(&mut groups)?;
        for group in &groups {
            group.table.check_all(&group.items).map_err(|(row, error)| name_row(row, group.items.len(), error))?;
        }
        let by = by.into();
        Ok(groups.into_iter().map(|group| group.table.insert(group.items, by)).collect())
    }

    /// Commits what was inserted before, for an answer that tells of it once more.
    ///
    /// # Errors
    /// That of [`Journal::commit`](crate::Journal::commit).
    pub fn commit(&self) -> Result<()> {
        self.tables.iter().try_for_each(TableHandle::commit)
    }

    /// Returns the peer for all callers in the same process as the server. It has no connection.
    pub fn this_process(&self) -> &Arc<Peer> {
        &self.here
    }

    /// Notes that a client in the same process uses the server.
    pub fn enter(&self) {
        self.has_client_here.store(true, Relaxed);
    }

    /// Whether a client in the same process uses the server, or has used it.
    pub fn has_client_here(&self) -> bool {
        self.has_client_here.load(Relaxed)
    }

    /// Sets the store of the tables. Only the first call has an effect.
    pub fn set_store(&self, store: Arc<dyn Store>) {
        let _set_before = self.store.set(store);
    }

    /// Returns the store of the tables, if one was set.
    pub fn store(&self) -> Option<&Arc<dyn Store>> {
        self.store.get()
    }

    /// Saves all tables and returns the path of the checkpoint. The save continues if the future is dropped.
    ///
    /// # Errors
    /// Those of [`Store::save`]; [`Error::InvalidArgument`] if no store was set.
    pub async fn checkpoint(&self) -> Result<PathBuf> {
        let store = self.store.get().cloned();
        let store = store.ok_or_else(|| Error::invalid("no Checkpointer configured for the replay service."))?;
        let turn = self.saving.clone().lock_owned().await;
        let tables = self.tables.clone();
        let save = tokio::task::spawn_blocking(move || {
            let saved = store.save(&tables);
            drop(turn);
            saved
        });
        save.await.map_err(|error| Error::Internal(format!("the task of a save failed: {error}")))?
    }

    /// Returns the status of all tables.
    pub fn status(&self) -> Vec<TableStatus> {
        let log = self.store().and_then(|store| store.log());
        self.tables.iter().map(|table| TableStatus { log: log.clone(), ..table.status() }).collect()
    }

    /// Fails all waiting requests and all later ones. Tables keep their items.
    pub fn close(&self) {
        self.closed.store(true, Relaxed);
        self.tables.iter().for_each(TableHandle::close);
        self.bench.close();
        // Dropping the sender ends the tasks that watch it.
        self.stop.lock().take();
    }

    /// Says whether the server will be back at its address after its end. Only the first call has an effect.
    pub fn set_returns(&self, returns: bool) {
        self.returns.send_if_modified(|known| {
            let is_new = known.is_none();
            known.get_or_insert(returns);
            is_new
        });
    }

    /// Returns whether the server will be back at its address. Waits until that is known.
    pub async fn returns(&self) -> bool {
        let mut known = self.returns.subscribe();
        // The sender is a part of this service.
        known.wait_for(Option::is_some).await.ok().and_then(|known| *known).unwrap_or(true)
    }

    /// Returns the error of a call, as a client elsewhere is told it: a call that the end of the server has cancelled says
    /// whether the server will be back. Waits until that is known.
    pub async fn as_told(&self, error: Error) -> Error {
        match error {
            Error::Cancelled(text) if self.is_closed() && !self.returns().await => Error::ServerStopped(text),
            error => error,
        }
    }

    /// As [`Replay::as_told`], without a wait: while it is not known, the server may be back.
    pub fn as_told_now(&self, error: Error) -> Error {
        match error {
            Error::Cancelled(text) if *self.returns.borrow() == Some(false) => Error::ServerStopped(text),
            error => error,
        }
    }

    /// Whether the service was closed.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Completes when the service is closed.
    pub async fn closed(&self) {
        let receiver = self.stop.lock().as_ref().map(watch::Sender::subscribe);
        if let Some(mut receiver) = receiver {
            // An error means that the sender was dropped, which is the signal.
            while receiver.changed().await.is_ok() {}
        }
    }
}
