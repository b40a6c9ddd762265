//! Clients: whatever the road to the server, the same calls.

mod address;
mod connection;
mod insert_link;
mod pending_draw;
mod sample_answers;
mod sample_link;
pub mod writer;

pub use address::Address;
pub use pending_draw::PendingDraw;

use crate::convert::status_to_wire;
use crate::lease::Lease;
use crate::peek::{self, Peeked};
use crate::proto::replay::{PeekRequest, TableStatus};
use crate::registry;
use crate::replay::{InsertGroup, Replay, wait_for_inserts};
use crate::table_handle::{Call, DrawRequest, TableHandle};
use arc_swap::ArcSwapOption;
use connection::Connection;
use parking_lot::Mutex;
use reverb_core::gather::{BatchLayout, Gatherer};
use reverb_core::{
    BatchInfo, Buffer, Chunk, CopiedBatch, Drawn, Error, NewItem, Result, Trajectory, fork, random_keys,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One chunk, each run of whose rows becomes an item in every table named.
#[derive(Debug)]
pub struct RowInsert {
    /// The data.
    pub chunk: Arc<Chunk>,
    /// Rows of an item.
    pub rows_per_item: u32,
    /// The tables, each with one priority for all items or one for each.
    pub tables: Vec<(String, Vec<f64>)>,
}

impl RowInsert {
    fn num_items(&self) -> u32 {
        self.chunk.rows() / self.rows_per_item
    }
}

/// A draw of one batch.
#[derive(Debug, Clone)]
pub struct BatchRequest {
    /// The table.
    pub table: String,
    /// How many items.
    pub draw: DrawRequest,
    /// Whether a time axis that is 1 in all items is dropped.
    pub squeeze_time: bool,
}

/// A batch that has arrived.
#[derive(Debug)]
pub struct Batch {
    /// What is known of each sample.
    pub info: BatchInfo,
    /// The columns in `buffer`.
    pub layout: BatchLayout,
    /// All columns' bytes.
    pub buffer: Buffer,
    /// See [`TableHandle::signature_token`].
    pub signature_token: u64,
    /// Whether it is early enough to tell the server with the next call that the batch has come.
    pub receipt_may_wait: bool,
    /// How long the draw waited for the table.
    pub waited: Duration,
    /// When the last byte was here.
    pub arrived: Instant,
}

/// How a client reaches its server.
#[derive(Debug, Clone)]
pub enum Road {
    /// It is in this process.
    SameProcess(Arc<Replay>),
    /// Over a Unix socket or TCP.
    Network(Arc<Connection>),
}

#[derive(Debug)]
struct Current {
    generation: u32,
    road: Road,
}

/// A client of one server. It connects when it is first used, and again when the server came back or the process forked.
#[derive(Debug)]
pub struct Client {
    address: Address,
    current: ArcSwapOption<Current>,
}

impl Client {
    /// A client of the server at `address`, which is not contacted yet.
    pub fn new(address: &str) -> Self {
        Self { address: Address::parse(address), current: ArcSwapOption::empty() }
    }

    /// The server, if it is in this process.
    pub fn same_process(&self) -> Option<Arc<Replay>> {
        if let Some(current) = &*self.current.load()
            && current.generation == fork::generation()
        {
            match &current.road {
                Road::SameProcess(replay) if !replay.is_closed() => return Some(replay.clone()),
                Road::Network(connection) if !connection.is_broken() => return None,
                _ => {}
            }
        }
        let (hosts, port) = self.address.loopback()?;
        let replay = registry::find(hosts, port)?;
        self.keep(Road::SameProcess(replay.clone()));
        Some(replay)
    }

    /// The road in use, for people to see.
    pub fn road_name(&self) -> &'static str {
        match self.current.load().as_deref() {
            Some(Current { generation, road }) if *generation == fork::generation() => match road {
                Road::SameProcess(_) => "same_process",
                Road::Network(connection) => connection.road_name(),
            },
            _ => "unconnected",
        }
    }

    fn keep(&self, road: Road) {
        let old = self.current.swap(Some(Arc::new(Current { generation: fork::generation(), road })));
        // A connection from before a fork belongs to the parent: dropping it here could wait for its threads.
        if let Some(old) = old
            && old.generation != fork::generation()
        {
            std::mem::forget(old);
        }
    }

    /// Whether the client was last used with a server of this process that was stopped.
    fn was_stopped_here(&self) -> bool {
        self.current.load().as_ref().is_some_and(|current| {
            current.generation == fork::generation()
                && matches!(&current.road, Road::SameProcess(replay) if replay.is_closed())
        })
    }

    async fn connection(&self, deadline: Option<Instant>) -> Result<Arc<Connection>> {
        if let Some(current) = &*self.current.load()
            && current.generation == fork::generation()
            && let Road::Network(connection) = &current.road
            && !connection.is_broken()
        {
            return Ok(connection.clone());
        }
        let connection = Arc::new(match self.was_stopped_here() {
            true => Connection::open_after_stop(&self.address, deadline).await?,
            false => Connection::open(&self.address, deadline).await?,
        });
        self.keep(Road::Network(connection.clone()));
        Ok(connection)
    }

    /// Inserts the items, and waits until they are in their tables.
    ///
    /// # Errors
    /// Those of the table; [`reverb_core::Error::Unavailable`] if the server is not there or goes away.
    pub async fn insert(&self, insert: RowInsert, deadline: Option<Instant>) -> Result<()> {
        match self.same_process() {
            Some(replay) => wait_for_inserts(begin_insert(&replay, &insert)?, deadline, warn).await,
            None => self.connection(deadline).await?.insert(insert, deadline).await,
        }
    }

    /// Draws a batch.
    ///
    /// # Errors
    /// Those of the table; [`reverb_core::Error::Unavailable`] if the server is not there or goes away.
    pub async fn sample(&self, request: &BatchRequest, deadline: Option<Instant>) -> Result<Batch> {
        let Some(replay) = self.same_process() else {
            return self.connection(deadline).await?.sample(request, deadline).await;
        };
        let table = replay.table(&request.table)?;
        let drawn = match table.sample(request.draw) {
            Call::Done(result) => result?,
            Call::Waiting(waiting) => waiting.result(deadline, warn).await?,
        };
        gather(table, drawn, request)
    }

    /// Begins to draw a batch: this waits for a connection at most, until `connect_by` or else the draw's own deadline.
    /// Called in the context of a runtime.
    ///
    /// # Errors
    /// If there is no such table in this process; [`reverb_core::Error::Unavailable`] if the server is not there, or
    /// [`reverb_core::Error::DeadlineExceeded`] if that was not known in time.
    pub async fn begin_sample(
        &self,
        request: &BatchRequest,
        deadline: Option<Instant>,
        connect_by: Option<Instant>,
    ) -> Result<PendingDraw> {
        match self.same_process() {
            Some(replay) => PendingDraw::local(&replay, request, deadline, false),
            None => {
                self.connection(connect_by.or(deadline)).await?.begin_sample(request, deadline).map(PendingDraw::remote)
            }
        }
    }

    /// Deletes items, then sets priorities. Unknown keys are ignored.
    ///
    /// # Errors
    /// For a priority that the table does not take; then nothing has changed.
    pub async fn mutate(
        &self,
        table: &str,
        updates: &[(u64, f64)],
        deletes: &[u64],
        deadline: Option<Instant>,
    ) -> Result<()> {
        match self.same_process() {
            Some(replay) => replay.table(table)?.mutate(updates, deletes),
            None => self.connection(deadline).await?.mutate(table, updates, deletes, deadline).await,
        }
    }

    /// Removes all items of a table and zeroes its counters.
    ///
    /// # Errors
    /// If there is no such table.
    pub async fn reset(&self, table: &str, deadline: Option<Instant>) -> Result<()> {
        match self.same_process() {
            Some(replay) => {
                replay.table(table)?.reset();
                Ok(())
            }
            None => self.connection(deadline).await?.reset(table, deadline).await,
        }
    }

    /// What the server's tables are doing.
    ///
    /// # Errors
    /// If the server is not there.
    pub async fn info(&self, deadline: Option<Instant>) -> Result<Vec<TableStatus>> {
        if let Some(replay) = self.same_process() {
            return Ok(replay.status().iter().map(status_to_wire).collect());
        }
        let connection = self.connection(deadline).await?;
        match connection.info(deadline).await {
            // The server of an older connection may have been stopped, and another be there in its place.
            Err(Error::Cancelled(_) | Error::Unavailable(_)) if deadline.is_none_or(|end| Instant::now() < end) => {
                let connection = Arc::new(Connection::open(&self.address, deadline).await?);
                self.keep(Road::Network(connection.clone()));
                connection.info(deadline).await
            }
            result => result,
        }
    }

    /// Saves all tables of the server; the path of the checkpoint on the server's machine.
    ///
    /// # Errors
    /// If the server cannot save, or is not there.
    pub async fn checkpoint(&self, deadline: Option<Instant>) -> Result<String> {
        match self.same_process() {
            Some(replay) => {
                let saving = replay.checkpoint();
                let saved = match deadline {
                    None => saving.await,
                    Some(deadline) => tokio::time::timeout_at(deadline.into(), saving).await.unwrap_or_else(|_| {
                        Err(Error::DeadlineExceeded("the checkpoint was not saved in time; the save goes on".into()))
                    }),
                };
                saved.map(|path| path.to_string_lossy().into_owned())
            }
            None => self.connection(deadline).await?.checkpoint(deadline).await,
        }
    }

    /// Some items of a table, which are neither drawn nor counted: the oldest first, or the newest first.
    ///
    /// # Errors
    /// If there is no such table.
    pub async fn peek(&self, table: &str, count: u32, newest: bool, deadline: Option<Instant>) -> Result<Vec<Peeked>> {
        match self.same_process() {
            Some(replay) => peek::peek(replay.table(table)?, count as usize, newest),
            None => {
                let request = PeekRequest { table: table.into(), count, newest };
                self.connection(deadline).await?.peek(request, deadline).await
            }
        }
    }
}

/// Begins an insert into a service of this process.
///
/// # Errors
/// If an item is not acceptable; then nothing was inserted.
pub fn begin_insert(replay: &Replay, insert: &RowInsert) -> Result<Vec<Call<()>>> {
    replay.check_size(insert.chunk.decoded_bytes() as u64)?;
    // Checked once: the rows of all items lie in the chunk.
    Trajectory::rows(insert.chunk.clone(), 0, insert.num_items() * insert.rows_per_item)?;
    let to_group = |(table, priorities): &(String, Vec<f64>)| {
        let table = replay.table(table)?.clone();
        let item = |key: u64, index: u32| NewItem {
            key,
            priority: priorities[if priorities.len() == 1 { 0 } else { index as usize }],
            times_sampled: 0,
            trajectory: Trajectory::Rows {
                chunk: insert.chunk.clone(),
                offset: index * insert.rows_per_item,
                length: insert.rows_per_item,
            },
        };
        let items = random_keys(|key| (0..insert.num_items()).map(|index| item(key(), index)).collect());
        Ok(InsertGroup { table, items })
    };
    replay.insert(insert.tables.iter().map(to_group).collect::<Result<_>>()?)
}

/// Draws a small batch and copies it in one go, if it can be had at once; see [`TableHandle::sample_copied`].
pub fn sample_copied(table: &TableHandle, request: &BatchRequest, used: Option<BatchLayout>) -> Option<Batch> {
    table.sample_copied(request.draw, request.squeeze_time, used).map(|batch| copied(table, batch))
}

fn copied(table: &TableHandle, batch: CopiedBatch) -> Batch {
    let CopiedBatch { info, layout, buffer } = batch;
    let (signature_token, waited, arrived) = (table.signature_token(), Duration::ZERO, Instant::now());
    Batch { info, layout, buffer, signature_token, receipt_may_wait: true, waited, arrived }
}

/// Copies drawn items into a batch.
///
/// # Errors
/// If they do not fit together; they have gone back to the table then.
pub fn gather(table: &TableHandle, drawn: Vec<Drawn>, request: &BatchRequest) -> Result<Batch> {
    let mut gatherer = table.stack(drawn, request.draw.at_least, request.squeeze_time)?;
    Ok(fill(table, &mut gatherer, Duration::ZERO))
}

/// As [`gather`], but the samples go back to the table unless the lease is told that they were received.
fn gather_leased(table: TableHandle, mut gatherer: Gatherer, begun: Instant) -> (Batch, Lease) {
    let batch = fill(&table, &mut gatherer, begun.elapsed());
    (batch, Lease::new(table, Arc::new(Mutex::new(gatherer))))
}

fn fill(table: &TableHandle, gatherer: &mut Gatherer, waited: Duration) -> Batch {
    let info = BatchInfo::of(gatherer.items());
    let buffer = gatherer.gather();
    let (layout, signature_token) = (gatherer.layout().clone(), table.signature_token());
    Batch { info, layout, buffer, signature_token, receipt_may_wait: true, waited, arrived: Instant::now() }
}

/// Says why a call still waits.
pub fn warn(notice: &str) {
    tracing::warn!("{notice}");
}

/// A table's description as the reference serialises it.
pub fn info_bytes(status: &TableStatus) -> Vec<u8> {
    status.info.as_ref().map(prost::Message::encode_to_vec).unwrap_or_default()
}

/// All that a server says of a table, as it travels.
pub fn status_bytes(status: &TableStatus) -> Vec<u8> {
    prost::Message::encode_to_vec(status)
}
