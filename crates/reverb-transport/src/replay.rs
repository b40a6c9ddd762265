//! The replay service itself, without a network: named tables, and what may be asked of them.

use crate::checkpoint::Checkpointer;
use crate::cut::cut_to_fit;
use crate::table_handle::{Call, TableHandle, TableStatus};
use crate::write_ledger::Ledgers;
use parking_lot::Mutex;
use reverb_core::{Error, NewItem, Result, Table};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Items for one table, in the order in which they are inserted.
#[derive(Debug)]
pub struct InsertGroup {
    /// The table.
    pub table: TableHandle,
    /// The items.
    pub items: Vec<NewItem>,
}

/// The tables of one server.
#[derive(Debug)]
pub struct Replay {
    id: [u8; 16],
    tables: Vec<TableHandle>,
    max_message_size: u64,
    closed: AtomicBool,
    /// What writers have inserted.
    ledgers: Ledgers,
    checkpointer: OnceLock<Arc<Checkpointer>>,
    /// Held during a save, so that those who wait for their turn take no thread.
    saving: Arc<tokio::sync::Mutex<()>>,
    /// Tells the tasks that serve this server to end.
    stop: Mutex<Option<tokio::sync::watch::Sender<bool>>>,
}

impl Replay {
    /// A service of these tables.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if two tables have the same name.
    pub fn new(tables: Vec<TableHandle>, max_message_size: u64) -> Result<Arc<Self>> {
        for (index, table) in tables.iter().enumerate() {
            if tables[..index].iter().any(|other| other.name() == table.name()) {
                return Err(Error::invalid(format!("Multiple items in tables have the same name: {}", table.name())));
            }
        }
        let (stop, _) = tokio::sync::watch::channel(false);
        Ok(Arc::new(Self {
            id: rand::random(),
            tables,
            max_message_size,
            closed: AtomicBool::new(false),
            ledgers: Ledgers::default(),
            checkpointer: OnceLock::new(),
            saving: Arc::default(),
            stop: Mutex::new(Some(stop)),
        }))
    }

    /// Random, made with the service: tells whether two roads lead to the same server.
    pub fn id(&self) -> [u8; 16] {
        self.id
    }

    /// Bytes of data that one insert may carry.
    pub fn max_message_size(&self) -> u64 {
        self.max_message_size
    }

    /// All tables.
    pub fn tables(&self) -> &[TableHandle] {
        &self.tables
    }

    /// The table called `name`.
    ///
    /// # Errors
    /// [`Error::TableNotFound`], which lists the tables there are.
    pub fn table(&self, name: &str) -> Result<&TableHandle> {
        self.tables.iter().find(|table| table.name() == name).ok_or_else(|| Error::TableNotFound {
            table: name.into(),
            known: self.tables.iter().map(TableHandle::name).collect::<Vec<_>>().join(", "),
        })
    }

    /// Checks that one insert carries no more data than it may.
    ///
    /// # Errors
    /// [`Error::MessageTooLarge`], which names the option and both sizes.
    pub fn check_size(&self, size_bytes: u64) -> Result<()> {
        check_size(size_bytes, self.max_message_size)
    }

    /// Begins to insert groups of items, all of them or, if one item is not acceptable, none.
    ///
    /// # Errors
    /// [`Error::InvalidRow`] for an item of a group of more than one, else the error of the item itself.
    pub fn insert(&self, mut groups: Vec<InsertGroup>) -> Result<Vec<Call<()>>> {
        cut_to_fit(&mut groups)?;
        for group in &groups {
            group.table.check_all(&group.items).map_err(|(row, error)| name_row(row, group.items.len(), error))?;
        }
        Ok(groups.into_iter().map(|group| group.table.insert(group.items)).collect())
    }

    /// What writers have inserted, by writer.
    pub(crate) fn ledgers(&self) -> &Ledgers {
        &self.ledgers
    }

    /// Says where checkpoints are kept; counts once.
    pub fn set_checkpointer(&self, checkpointer: Arc<Checkpointer>) {
        let _set_before = self.checkpointer.set(checkpointer);
    }

    /// Where checkpoints are kept.
    pub fn checkpointer(&self) -> Option<&Arc<Checkpointer>> {
        self.checkpointer.get()
    }

    /// Saves all tables and returns the path of the checkpoint. A save that nobody waits for any more goes on.
    ///
    /// # Errors
    /// Those of [`Checkpointer::save`]; [`Error::InvalidArgument`] if the server keeps no checkpoints.
    pub async fn checkpoint(&self) -> Result<PathBuf> {
        let checkpointer = self.checkpointer.get().cloned();
        let checkpointer =
            checkpointer.ok_or_else(|| Error::invalid("no Checkpointer configured for the replay service."))?;
        let turn = self.saving.clone().lock_owned().await;
        let tables = self.tables.clone();
        let save = tokio::task::spawn_blocking(move || {
            let saved = checkpointer.save(&tables);
            drop(turn);
            saved
        });
        save.await.map_err(|error| Error::Internal(format!("the save ended: {error}")))?
    }

    /// What all tables are doing.
    pub fn status(&self) -> Vec<TableStatus> {
        self.tables.iter().map(TableHandle::status).collect()
    }

    /// Fails all that waits and all that comes later. Tables keep their items.
    pub fn close(&self) {
        self.closed.store(true, Relaxed);
        self.tables.iter().for_each(TableHandle::close);
        // Dropping the sender ends the tasks that watch it.
        self.stop.lock().take();
    }

    /// Whether the service was closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Completes when the service is closed.
    pub async fn closed(&self) {
        let receiver = self.stop.lock().as_ref().map(tokio::sync::watch::Sender::subscribe);
        if let Some(mut receiver) = receiver {
            // An error says that the sender is gone, which is the signal.
            while receiver.changed().await.is_ok() {}
        }
    }
}

/// See [`Replay::check_size`]; the client asks before it sends.
pub fn check_size(size_bytes: u64, limit_bytes: u64) -> Result<()> {
    if size_bytes <= limit_bytes {
        return Ok(());
    }
    Err(Error::MessageTooLarge {
        what: "the data of this insert".into(),
        option: "max_message_size (an argument of reverb.Server)".into(),
        size_bytes,
        limit_bytes,
    })
}

/// Waits until all items of an insert are in their tables, at the latest until `deadline`.
///
/// # Errors
/// The first error of a call; the calls behind it are withdrawn.
pub async fn wait_for_inserts(calls: Vec<Call<()>>, deadline: Option<Instant>, notice: impl Fn(&str)) -> Result<()> {
    for call in calls {
        match call {
            Call::Done(result) => result?,
            Call::Waiting(waiting) => waiting.result(deadline, &notice).await?,
        }
    }
    Ok(())
}

/// Names the row of a batch that an error is about.
fn name_row(row: usize, rows: usize, error: Error) -> Error {
    match error {
        Error::InvalidPriority(reason) if rows > 1 => Error::InvalidRow { row, reason },
        error => error,
    }
}

/// A table that no server has yet, as the Python object of a table holds it.
impl From<Table> for TableHandle {
    fn from(table: Table) -> Self {
        Self::new(table)
    }
}
