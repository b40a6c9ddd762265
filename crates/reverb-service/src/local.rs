//! Inserts into and draws from the tables of this process, without a network.

use crate::batch::Batch;
use crate::decoding::{ITEMS_AT_ONCE, decode, is_decoded_at_once, on_bytes, on_items};
use crate::insert::InsertGroup;
use crate::lease::Lease;
use crate::notice::Notice;
use crate::peer::{Inserter, Peer};
use crate::replay::Replay;
use crate::table_handle::{Call, DrawRequest, TableHandle};
use parking_lot::Mutex;
use reverb_core::gather::{BatchLayout, Gatherer, decoded_bytes};
use reverb_core::{Chunk, Drawn, Error, ItemKey, ItemKeys, KeySlots, NewItem, Result, Table, Trajectory, item_keys_in};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;
use std::time::Instant;
use tokio::task::JoinHandle;

/// Batches of up to this many bytes are copied by the thread that begins the draw, because a task would cost more than
/// the copy.
const GATHER_AT_ONCE_BYTES: usize = 128 << 10;

/// A chunk whose rows become items in each of several tables, `rows_per_item` consecutive rows an item; or several
/// chunks of one item each.
#[derive(Debug, Clone)]
pub struct RowInsert {
    /// The rows of all items; of the first item if there are more chunks.
    pub chunk: Arc<Chunk>,
    /// The other items, whose rows may differ in shape from those of the first. Mostly empty.
    pub more: Vec<Arc<Chunk>>,
    /// Number of rows of an item.
    pub rows_per_item: u32,
    /// Names of the tables, and the priorities of the items there.
    pub tables: Vec<(String, Priorities)>,
}

/// The priorities of the items of an insert in one table.
#[derive(Debug, Clone, PartialEq)]
pub struct Priorities {
    /// One priority for all items, or one for each item.
    pub values: SmallVec<[f64; 1]>,
    /// See [`NewItem::takes_largest`].
    pub take_largest: bool,
}

impl Priorities {
    /// Returns those of items that take the largest priority so far.
    pub fn largest() -> Self {
        Self { values: smallvec![0.0], take_largest: true }
    }

    /// Returns the priority of an item.
    #[inline]
    pub fn of(&self, index: usize) -> f64 {
        self.values[if self.values.len() == 1 { 0 } else { index }]
    }
}

impl From<Vec<f64>> for Priorities {
    fn from(values: Vec<f64>) -> Self {
        Self { values: values.into(), take_largest: false }
    }
}

impl From<f64> for Priorities {
    fn from(value: f64) -> Self {
        Self { values: smallvec![value], take_largest: false }
    }
}

impl RowInsert {
    /// Returns the number of items that each table gets.
    #[inline]
    pub fn num_items(&self) -> u32 {
        self.chunk.rows() / self.rows_per_item + self.more.len() as u32
    }

    /// Returns the chunk of an item, and its first row there.
    #[inline]
    pub fn place(&self, item: u32) -> (&Arc<Chunk>, u32) {
        match self.more.get((item as usize).wrapping_sub(1)) {
            Some(chunk) => (chunk, 0),
            None => (&self.chunk, item * self.rows_per_item),
        }
    }

    /// Makes a key for each item, which it has in every table of a server that owns these slots.
    pub fn make_keys(&self, slots: KeySlots) -> ItemKeys {
        item_keys_in(slots, self.num_items() as usize)
    }

    /// The chunks, in the order of the items.
    pub fn chunks(&self) -> impl Iterator<Item = &Arc<Chunk>> {
        std::iter::once(&self.chunk).chain(&self.more)
    }

    /// Size of all rows in bytes, decoded.
    pub fn decoded_bytes(&self) -> u64 {
        let decoded_bytes = |chunk: &Arc<Chunk>| chunk.decoded_bytes() as u64;
        decoded_bytes(&self.chunk) + self.more.iter().map(decoded_bytes).sum::<u64>()
    }

    /// Checks that the items are rows of their chunks.
    ///
    /// # Errors
    /// Those of [`Trajectory::rows`].
    pub fn check(&self) -> Result<()> {
        let check = |chunk: &Arc<Chunk>| {
            let rows = chunk.rows() / self.rows_per_item * self.rows_per_item;
            Trajectory::check_rows(chunk, 0, rows)
        };
        check(&self.chunk)?;
        self.more.iter().try_for_each(check)
    }
}

/// A request to draw one batch.
#[derive(Debug, Clone)]
pub struct BatchRequest {
    /// Name of the table.
    pub table: String,
    /// Number of items to draw.
    pub draw: DrawRequest,
    /// Whether to drop a time axis of length 1 in all items.
    pub squeeze_time: bool,
}

/// Begins an insert of a client into a service of this process, and returns the keys of its items. Clients are told apart
/// by their numbers.
///
/// # Errors
/// [`Error::TableNotFound`], [`Error::MessageTooLarge`], and the errors of an item that a table refuses. Nothing is
/// inserted then.
pub fn begin_insert(replay: &Replay, insert: &RowInsert, client: u64) -> Result<(Vec<Call<()>>, ItemKeys)> {
    let items = insert.num_items() as usize * insert.tables.len();
    on_items(items, || insert_at_once(replay, insert, client))
}

fn insert_at_once(replay: &Replay, insert: &RowInsert, client: u64) -> Result<(Vec<Call<()>>, ItemKeys)> {
    replay.check_size(insert.decoded_bytes())?;
    // One check for all items of a chunk: their rows lie within it.
    insert.check()?;
    let keys = insert.make_keys(replay.key_slots());
    let to_group = |(table, priorities): &(String, Priorities)| {
        let table = replay.table(table)?.clone();
        let item = |(index, &key): (u32, &ItemKey), (chunk, offset): (&Arc<Chunk>, u32)| NewItem {
            key,
            priority: priorities.of(index as usize),
            takes_largest: priorities.take_largest,
            others: None,
            times_sampled: 0,
            trajectory: Trajectory::Rows { chunk: chunk.clone(), offset, length: insert.rows_per_item, squeeze: false },
        };
        let named = (0..).zip(&keys);
        let items = match insert.more.is_empty() {
            true => named.map(|named| item(named, (&insert.chunk, named.0 * insert.rows_per_item))).collect(),
            false => named.map(|named| item(named, insert.place(named.0))).collect(),
        };
        Ok(InsertGroup { table, items })
    };
    let by = Inserter { peer: replay.this_process(), client };
    let calls = replay.insert(insert.tables.iter().map(to_group).collect::<Result<_>>()?, by)?;
    Ok((calls, keys))
}

/// Draws a small batch from a table of a service of this process and copies it under one lock, if no wait is needed; see
/// [`TableHandle::sample_copied`].
pub fn sample_copied(
    replay: &Replay,
    table: &TableHandle,
    request: &BatchRequest,
    used: Option<BatchLayout>,
) -> Option<Batch> {
    let peer = replay.this_process();
    let (copied, ()) = table.sample_copied(request.draw, request.squeeze_time, used, peer, |_, _| ())?;
    Some(Batch::new(copied, table.signature_token()))
}

/// As [`sample_copied`], with a lease if the table tracks its draws.
pub fn sample_leased(replay: &Replay, table: &TableHandle, request: &BatchRequest) -> Option<(Batch, Option<Lease>)> {
    if !table.counts_samples() {
        return Some((sample_copied(replay, table, request, None)?, None));
    }
    let (peer, lease) = (replay.this_process(), Table::lease_copied);
    let (copied, draws) = table.sample_copied(request.draw, request.squeeze_time, None, peer, lease)?;
    let samples = copied.info.len();
    Some((Batch::new(copied, table.signature_token()), Some(Lease::copied(table.clone(), draws, samples))))
}

/// Draws items as the rate limiter allows; see [`TableHandle::sample`].
pub fn draw_items(table: &TableHandle, request: &BatchRequest, peer: &Arc<Peer>) -> Call<Vec<Drawn>> {
    on_items(request.draw.at_least, || table.sample(request.draw, peer))
}

/// Copies drawn items into a batch, with a lease if the table tracks its draws: the samples return to the table unless
/// [`Lease::received`] is called.
///
/// # Errors
/// [`Error::InvalidArgument`] if too few items fit together. The items are back in the table then.
pub fn gather(table: &TableHandle, drawn: Vec<Drawn>, request: &BatchRequest) -> Result<(Batch, Option<Lease>)> {
    let mut gatherer = table.stack(drawn, request.draw.at_least, request.squeeze_time)?;
    let batch = copy(&mut gatherer, table);
    let is_tracked = gatherer.items().last().is_some_and(Drawn::is_tracked);
    Ok((batch, is_tracked.then(|| Lease::new(table.clone(), Arc::new(Mutex::new(gatherer))))))
}

/// As [`gather`], on a thread that serves clients: chunks are decoded in turn, and other tasks run meanwhile. The samples
/// return to the table if the future is dropped.
///
/// # Errors
/// Those of [`gather`].
pub fn gather_in_turn<'a>(
    table: &'a TableHandle,
    drawn: Vec<Drawn>,
    request: &'a BatchRequest,
) -> impl Future<Output = Result<(Batch, Option<Lease>)>> + use<'a> {
    in_turn(table, drawn, |drawn| gather(table, drawn, request))
}

/// Whether a batch of these items is made so fast that a thread that serves clients may do it at once.
pub fn is_gathered_at_once(drawn: &[Drawn]) -> bool {
    drawn.len() <= ITEMS_AT_ONCE && is_decoded_at_once(decoded_bytes(drawn.iter().map(|drawn| &drawn.trajectory)))
}

/// Makes a batch of drawn items as [`gather_in_turn`] does.
fn in_turn<T, W>(table: &TableHandle, drawn: Vec<Drawn>, work: W) -> impl Future<Output = Result<T>> + use<T, W>
where
    W: FnOnce(Vec<Drawn>) -> Result<T>,
{
    let decoded = decoded_bytes(drawn.iter().map(|drawn| &drawn.trajectory));
    // Not in the future, which may be dropped before it has begun.
    let mut undelivered = Undelivered { table: table.clone(), drawn };
    decode(decoded, move || {
        let drawn = std::mem::take(&mut undelivered.drawn);
        on_items(drawn.len(), || work(drawn))
    })
}

/// Drawn items that go back to their table if this is dropped.
struct Undelivered {
    table: TableHandle,
    drawn: Vec<Drawn>,
}

impl Drop for Undelivered {
    fn drop(&mut self) {
        if !self.drawn.is_empty() {
            self.table.give_back(std::mem::take(&mut self.drawn));
        }
    }
}

/// Copies the items of a gatherer into a batch.
fn copy(gatherer: &mut Gatherer, table: &TableHandle) -> Batch {
    on_bytes(gatherer.remaining(), || Batch::gather(gatherer, table.signature_token()))
}

/// Leases the items of a gatherer, and returns what copies them into a batch. The samples return to the table if that is
/// dropped, or unless [`Lease::received`] is called.
fn gather_leased(table: TableHandle, gatherer: Gatherer, begun: Instant) -> impl FnOnce() -> Leased {
    let waited = begun.elapsed();
    let gatherer = Arc::new(Mutex::new(gatherer));
    let lease = Lease::new(table.clone(), gatherer.clone());
    move || (Batch { waited, ..copy(&mut gatherer.lock(), &table) }, lease)
}

/// Makes a batch of drawn items as [`gather_in_turn`] does.
fn gather_leased_in_turn(
    table: TableHandle,
    drawn: Vec<Drawn>,
    draw: Draw,
) -> impl Future<Output = Result<Leased>> + use<> {
    in_turn(&table.clone(), drawn, move |drawn| {
        let gatherer = table.stack(drawn, draw.at_least, draw.squeeze_time)?;
        Ok(gather_leased(table, gatherer, draw.begun)())
    })
}

/// What a batch needs to be made once its items are drawn.
#[derive(Clone, Copy)]
struct Draw {
    at_least: usize,
    squeeze_time: bool,
    begun: Instant,
}

type Leased = (Batch, Lease);

/// A draw from a table of this process. Until the caller confirms with [`LocalDraw::received`], the table counts the
/// samples as undelivered, and they return to it when the draw is dropped.
#[derive(Debug)]
pub struct LocalDraw(DrawState);

#[derive(Debug)]
enum DrawState {
    /// The result is available. `None` after it was taken.
    Ready(Option<Result<Leased>>),
    /// A task waits for the table or copies the batch.
    Task(JoinHandle<Result<Leased>>),
    /// The batch was taken, but its samples are not confirmed yet.
    Taken(Lease),
    /// The draw failed, or its samples were confirmed or given back.
    Over,
}

impl LocalDraw {
    /// Begins a draw. Must be called in the context of a Tokio runtime. With `at_once`, a batch of any size is copied
    /// by this call if its items can be drawn without waiting, for a caller that would wait for it next.
    ///
    /// # Errors
    /// [`Error::TableNotFound`].
    pub fn begin(replay: &Replay, request: &BatchRequest, deadline: Option<Instant>, at_once: bool) -> Result<Self> {
        let table = replay.table(&request.table)?.clone();
        let (begun, peer) = (Instant::now(), replay.this_process());
        if let Some(draw) = Self::copied(replay, &table, request) {
            return Ok(draw);
        }
        let draw = Draw { at_least: request.draw.at_least, squeeze_time: request.squeeze_time, begun };
        let state = match draw_items(&table, request, peer) {
            Call::Done(Err(error)) => DrawState::Ready(Some(Err(error))),
            Call::Done(Ok(drawn)) if !at_once && !is_gathered_at_once(&drawn) => {
                DrawState::Task(tokio::spawn(gather_leased_in_turn(table, drawn, draw)))
            }
            Call::Done(Ok(drawn)) => match table.stack(drawn, draw.at_least, draw.squeeze_time) {
                Err(error) => DrawState::Ready(Some(Err(error))),
                Ok(gatherer) if at_once || gatherer.remaining() <= GATHER_AT_ONCE_BYTES => {
                    DrawState::Ready(Some(Ok(gather_leased(table, gatherer, begun)())))
                }
                Ok(gatherer) => {
                    let gather = gather_leased(table, gatherer, begun);
                    DrawState::Task(tokio::spawn(async move { Ok(gather()) }))
                }
            },
            Call::Waiting(waiting) => DrawState::Task(tokio::spawn(async move {
                let drawn = waiting.result(deadline, Notice::warn).await?;
                gather_leased_in_turn(table, drawn, draw).await
            })),
        };
        Ok(Self(state))
    }

    /// Draws a small batch and copies it, if no wait is needed. `None` if that is not possible. Nothing is drawn then.
    pub fn copied(replay: &Replay, table: &TableHandle, request: &BatchRequest) -> Option<Self> {
        let (peer, lease) = (replay.this_process(), Table::lease_copied);
        let (batch, draws) = table.sample_copied(request.draw, request.squeeze_time, None, peer, lease)?;
        let samples = batch.info.len();
        let leased = (Batch::new(batch, table.signature_token()), Lease::copied(table.clone(), draws, samples));
        Some(Self(DrawState::Ready(Some(Ok(leased)))))
    }

    /// Whether [`LocalDraw::received`] would be over at once: the batch was taken, of at most so many items of a quiet table.
    pub fn is_brief(&self, most_items: usize) -> bool {
        matches!(&self.0, DrawState::Taken(lease) if lease.samples() <= most_items && lease.table().is_quiet())
    }

    /// Makes the draw of a batch that was taken already.
    pub fn taken(lease: Lease) -> Self {
        Self(DrawState::Taken(lease))
    }

    /// Whether [`LocalDraw::result`] would not wait.
    pub fn is_ready(&self) -> bool {
        match &self.0 {
            DrawState::Task(task) => task.is_finished(),
            DrawState::Ready(_) | DrawState::Taken(_) | DrawState::Over => true,
        }
    }

    /// Takes the batch if it is available. `None` if it is not, or was taken before.
    pub fn try_result(&mut self) -> Option<Result<Batch>> {
        let DrawState::Ready(result) = &mut self.0 else { return None };
        let result = result.take()?;
        Some(self.take(result))
    }

    /// Waits for the batch. If the future is dropped, another call can wait again.
    ///
    /// # Errors
    /// Those of the draw; [`Error::Cancelled`] if the batch was taken before.
    pub async fn result(&mut self) -> Result<Batch> {
        let result = match &mut self.0 {
            DrawState::Ready(result) => result.take().unwrap_or_else(|| Err(taken())),
            DrawState::Task(task) => match task.await {
                Ok(result) => result,
                Err(error) => Err(Error::Cancelled(format!("the draw was cancelled: {error}"))),
            },
            DrawState::Taken(_) | DrawState::Over => return Err(taken()),
        };
        self.take(result)
    }

    fn take(&mut self, result: Result<Leased>) -> Result<Batch> {
        let (batch, next) = match result {
            Ok((batch, lease)) => (Ok(batch), DrawState::Taken(lease)),
            Err(error) => (Err(error), DrawState::Over),
        };
        self.0 = next;
        batch
    }

    /// Confirms that the caller has the samples, so that they do not return to the table. Cancels the draw if the batch
    /// was not taken.
    ///
    /// # Errors
    /// The error of [`Lease::received`].
    pub fn received(mut self) -> Result<()> {
        match self.end() {
            DrawState::Taken(lease) => lease.received(),
            _ => Ok(()),
        }
    }

    /// Cancels the draw. When this returns, its samples are back in their table.
    pub async fn give_back(mut self) {
        if let DrawState::Task(task) = self.end() {
            task.abort();
            drop(task.await);
        }
    }

    fn end(&mut self) -> DrawState {
        std::mem::replace(&mut self.0, DrawState::Over)
    }
}

impl Drop for LocalDraw {
    fn drop(&mut self) {
        if let DrawState::Task(task) = &self.0 {
            task.abort();
        }
    }
}

/// The error of a draw whose batch was taken before.
pub fn taken() -> Error {
    Error::Cancelled("the batch of this draw was already taken".into())
}
