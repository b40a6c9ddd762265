//! A table that tasks can wait on.
//!
//! The lock guards the table and two queues, of waiting inserts and of waiting draws. Whoever changes the table serves
//! the heads of both, in order, then unlocks, then wakes those it served: nobody overtakes, and no wake-up can be lost.
//! A waiter that is dropped leaves its queue, and what it had drawn goes back. Data is dropped after unlocking.

mod arrival;
mod queue;
mod status;
mod waiting;

pub use arrival::Arrival;
pub use status::{TableStatus, WaitTimes};
pub use waiting::{Reply, Waiting};

use parking_lot::{Mutex, MutexGuard};
use queue::{InsertWork, OPERATIONS_A_TURN, Request, SampleWork, State, Turn, Work};
use reverb_core::gather::{BatchColumn, BatchLayout, Gatherer, Mismatch};
use reverb_core::{
    CopiedBatch, CopiedDraws, DType, Drawn, Error, NewItem, Result, Table, TableConfig, TableSnapshot, Trajectory,
};
use status::WaitClock;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{Notify, oneshot};

/// Requests of a kind that may wait at a table; more are refused.
const MAX_WAITING: usize = 100_000;
/// Items of one draw. A table that does not count samples would draw whatever number a peer names.
const MAX_DRAWN: usize = 1 << 20;
/// Steps (see [`State::step`]) between two chances for others to take the lock.
const STEPS_A_TURN: u32 = 16;
const CLOSED: &str = "RateLimiter has been cancelled: the server was stopped.";

/// How many items a draw wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrawRequest {
    /// It is answered with no fewer, unless its time ends.
    pub at_least: usize,
    /// It waits for no more.
    pub at_most: usize,
    /// So many more, where the table counts neither samples nor how often an item was sampled.
    pub ahead: usize,
}

impl DrawRequest {
    /// Exactly `count` items.
    pub fn exactly(count: usize) -> Self {
        Self { at_least: count, at_most: count, ahead: 0 }
    }
}

/// A call that is done, or that waits for the table.
#[derive(Debug)]
pub enum Call<T: Reply> {
    /// Its result.
    Done(Result<T>),
    /// To be awaited; dropping it withdraws the request.
    Waiting(Waiting<T>),
}

/// The state of several tables at one moment. Holds all their locks, for as long as it takes to copy pointers to pages.
///
/// Nothing else holds two of these locks, so their order does not matter.
pub fn snapshot_all(tables: &[TableHandle]) -> Vec<TableSnapshot> {
    let states: Vec<_> = tables.iter().map(|table| table.0.state.lock()).collect();
    states.iter().map(|state| state.table.snapshot()).collect()
}

fn counts_samples(config: &TableConfig) -> bool {
    config.max_times_sampled > 0 || config.rate_limiter.counts_samples()
}

fn signature_token(config: &TableConfig) -> u64 {
    config.signature.as_ref().map_or(0, |signature| signature.token())
}

/// A shared reference to a table.
#[derive(Debug, Clone)]
pub struct TableHandle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    name: String,
    /// Of the configuration, and kept here to be read without the lock. A restored checkpoint changes them.
    /// No limit is `u64::MAX`.
    max_bytes: AtomicU64,
    counts_samples: AtomicBool,
    signature_token: AtomicU64,
    undelivered: AtomicU64,
    /// Told when chunks should be compacted.
    wasteful: Notify,
    state: Mutex<State>,
}

impl TableHandle {
    /// Makes a table shareable.
    pub fn new(table: Table) -> Self {
        let config = table.config();
        Self(Arc::new(Shared {
            name: config.name.clone(),
            max_bytes: AtomicU64::new(config.max_bytes.unwrap_or(u64::MAX)),
            signature_token: AtomicU64::new(signature_token(config)),
            counts_samples: AtomicBool::new(counts_samples(config)),
            undelivered: AtomicU64::new(0),
            wasteful: Notify::new(),
            state: Mutex::new(State {
                table,
                inserts: VecDeque::new(),
                samples: VecDeque::new(),
                next_ticket: 0,
                closed: false,
                made: Instant::now(),
                insert_clock: WaitClock::default(),
                sample_clock: WaitClock::default(),
                peak_bytes: 0,
                shrunk: false,
            }),
        }))
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Bytes of data that the table's items may keep alive; `None` for no limit.
    pub fn max_bytes(&self) -> Option<u64> {
        Some(self.0.max_bytes.load(Relaxed)).filter(|&limit| limit != u64::MAX)
    }

    /// A number that changes with the table's signature; 0 without one. Clients keep what they made of it by this.
    pub fn signature_token(&self) -> u64 {
        self.0.signature_token.load(Relaxed)
    }

    /// Whether a draw may take something from others: room that the limiter gives, or the last time an item is drawn.
    pub fn counts_samples(&self) -> bool {
        self.0.counts_samples.load(Relaxed)
    }

    /// Inserts items one after another as the rate limiter allows. The items have passed [`TableHandle::check_all`].
    pub fn insert(&self, items: Vec<NewItem>) -> Call<()> {
        let total = items.len();
        let items = items.into_iter();
        self.submit(InsertWork { items, total })
    }

    /// Draws items as the rate limiter allows.
    pub fn sample(&self, request: DrawRequest) -> Call<Vec<Drawn>> {
        let DrawRequest { at_least, at_most, ahead } = request;
        if at_most == 0 || at_least > at_most {
            return Call::Done(Err(Error::invalid(format!(
                "`num_samples` must be > 0 and at least the number that must be drawn (got {at_most} and {at_least})"
            ))));
        }
        if at_least > MAX_DRAWN {
            return Call::Done(Err(Error::ResourceExhausted(format!(
                "{at_least} items were asked for in one batch; at most {MAX_DRAWN} are possible"
            ))));
        }
        let wanted = at_most.saturating_add(if self.0.counts_samples.load(Relaxed) { 0 } else { ahead }).min(MAX_DRAWN);
        self.submit(SampleWork { at_least, wanted, drawn: Vec::with_capacity(wanted.min(4096)) })
    }

    /// Draws a small batch and copies it in one go, if nobody waits at the table; see [`Table::sample_copied`]. `None` if
    /// that cannot be done; then nothing was drawn.
    pub fn sample_copied(
        &self,
        request: DrawRequest,
        squeeze_time: bool,
        used: Option<BatchLayout>,
    ) -> Option<CopiedBatch> {
        self.if_nobody_waits(request)?.table.sample_copied(request.at_most, squeeze_time, used)
    }

    /// As [`TableHandle::sample_copied`], with what [`TableHandle::give_back_copied`] takes.
    pub fn sample_copied_leased(&self, request: DrawRequest, squeeze_time: bool) -> Option<(CopiedBatch, CopiedDraws)> {
        self.if_nobody_waits(request)?.table.sample_copied_leased(request.at_most, squeeze_time)
    }

    fn if_nobody_waits(&self, request: DrawRequest) -> Option<MutexGuard<'_, State>> {
        if request != DrawRequest::exactly(request.at_most) {
            return None;
        }
        let state = self.0.state.lock();
        // A draw takes its turn, and whoever waits for it must be told.
        (!state.closed && state.samples.is_empty() && state.inserts.is_empty()).then_some(state)
    }

    fn submit<W: Work>(&self, work: W) -> Call<W::Reply> {
        let mut state = self.0.state.lock();
        if state.closed {
            return Call::Done(Err(Error::Cancelled(CLOSED.into())));
        }
        if W::queue(&mut state).len() >= MAX_WAITING {
            return Call::Done(Err(Error::ResourceExhausted(format!(
                "{MAX_WAITING} requests wait at table `{}` already; {}",
                self.0.name,
                W::explain(&state.table, &self.0.name)
            ))));
        }
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        // A request that others may finish needs a way to be told; the common one is done before the lock is let go.
        let others_may_finish = !W::queue(&mut state).is_empty() || work.size() > OPERATIONS_A_TURN;
        let (reply, mut receiver) = others_may_finish.then(oneshot::channel).unzip();
        W::queue(&mut state).push_back(Request { ticket, work, reply });
        let mut turn = self.serve(&mut state);
        let own = turn.take_own::<W>(ticket);
        if own.is_none() && receiver.is_none() {
            let request = W::queue(&mut state).iter_mut().rev().find(|request| request.ticket == ticket);
            let (sender, waiting) = oneshot::channel();
            request.expect("it was not finished, and nobody else could").reply = Some(sender);
            receiver = Some(waiting);
        }
        drop(state);
        self.finish(turn);
        match own {
            Some(result) => Call::Done(result),
            None => Call::Waiting(Waiting { handle: self.clone(), ticket, receiver }),
        }
    }

    /// Serves the heads of both queues until neither can go on.
    fn serve(&self, state: &mut MutexGuard<'_, State>) -> Turn {
        let mut turn = Turn::default();
        let now = now_nanos();
        let mut steps = 0;
        while state.step(now, &mut turn) {
            steps += 1;
            if steps % STEPS_A_TURN == 0 && state.all_can_be_told() {
                MutexGuard::bump(state);
            }
        }
        let has_inserts = !state.inserts.is_empty();
        let has_samples = !state.samples.is_empty();
        state.insert_clock.set(has_inserts);
        state.sample_clock.set(has_samples);
        if state.has_shrunk() || state.table.wants_compaction() {
            self.0.wasteful.notify_one();
        }
        turn
    }

    /// Answers what a turn has finished, and drops what it removed. Called without the lock.
    fn finish(&self, turn: Turn) {
        for (request, result) in turn.inserts {
            self.answer(request, result);
        }
        for (request, result) in turn.samples {
            self.answer(request, result);
        }
    }

    fn answer<W: Work>(&self, request: Request<W>, result: Result<W::Reply>) {
        if let Some(reply) = request.reply
            && let Err(Ok(undelivered)) = reply.send(result)
        {
            undelivered.take_back(self);
        }
    }

    /// Changes the table, serves whoever can go on, and returns what `change` returned.
    fn change<T>(&self, change: impl FnOnce(&mut State, &mut Vec<Trajectory>) -> T) -> T {
        let mut removed = Vec::new();
        let mut state = self.0.state.lock();
        let result = change(&mut state, &mut removed);
        let turn = self.serve(&mut state);
        drop(state);
        self.finish(turn);
        result
    }

    /// Returns samples that were drawn and not delivered.
    pub fn give_back(&self, drawn: Vec<Drawn>) {
        self.change(|state, removed| {
            drawn.into_iter().rev().for_each(|drawn| state.table.give_back(drawn, removed));
        });
    }

    /// Returns the draws of a copied batch that was not delivered.
    pub fn give_back_copied(&self, draws: CopiedDraws) {
        self.change(|state, _| state.table.give_back_copied(draws));
    }

    /// Plans a batch of drawn items. Where they do not fit together, the longest fitting beginning of `at_least` items or
    /// more is taken, and the rest goes back.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] that names the item and its difference, if too few fit. All items have gone back.
    pub fn stack(&self, drawn: Vec<Drawn>, at_least: usize, squeeze_time: bool) -> Result<Gatherer> {
        let mismatch = match Gatherer::new(drawn, squeeze_time) {
            Ok(gatherer) => return self.check_strings(gatherer),
            Err(mismatch) => *mismatch,
        };
        let Mismatch { mut items, index, reason } = mismatch;
        // A lone item always fits; the index is 0 only where it does not fit into memory.
        let fitting = if index >= at_least.max(1) { index } else { 0 };
        self.give_back(items.split_off(fitting));
        if items.is_empty() {
            return Err(Error::invalid(format!(
                "items of table `{}` cannot be stacked into one batch: item {index} differs from those before: {reason}",
                self.0.name
            )));
        }
        let gatherer = Gatherer::new(items, squeeze_time).map_err(|mismatch| {
            self.give_back(mismatch.items);
            Error::invalid(format!("items of table `{}` cannot be stacked: {}", self.0.name, mismatch.reason))
        })?;
        self.check_strings(gatherer)
    }

    /// The ends of a column of strings are counted in 32 bits.
    fn check_strings(&self, gatherer: Gatherer) -> Result<Gatherer> {
        let columns = &gatherer.layout().columns;
        let too_large = |column: &BatchColumn| column.dtype == DType::String && column.size_bytes > u32::MAX as usize;
        let Some(size_bytes) = columns.iter().find(|column| too_large(column)).map(|column| column.size_bytes) else {
            return Ok(gatherer);
        };
        self.give_back(gatherer.into_items());
        Err(Error::invalid(format!(
            "a batch of table `{}` has a column of strings of {size_bytes} bytes; at most {} are possible",
            self.0.name,
            u32::MAX
        )))
    }

    /// Whether items may be inserted at all; see [`Table::check_item`]. The index of the first that may not, and why.
    pub fn check_all(&self, items: &[NewItem]) -> std::result::Result<(), (usize, Error)> {
        self.0.state.lock().table.check_items(items)
    }

    /// Deletes items, then sets priorities; unknown keys are ignored.
    pub fn mutate(&self, updates: &[(u64, f64)], deletes: &[u64]) -> Result<()> {
        self.change(|state, removed| state.table.mutate(updates, deletes, removed))
    }

    /// Removes all items and zeroes the counters. Waiting requests go on waiting.
    pub fn reset(&self) {
        self.change(|state, removed| state.table.reset(removed));
    }

    /// The rate limiter's answer for `count` inserts now.
    pub fn can_insert(&self, count: i64) -> bool {
        self.0.state.lock().table.can_insert(count)
    }

    /// The rate limiter's answer for `count` samples now.
    pub fn can_sample(&self, count: i64) -> bool {
        self.0.state.lock().table.can_sample(count)
    }

    /// Looks at the table under its lock; `look` must be quick.
    pub fn with_table<T>(&self, look: impl FnOnce(&Table) -> T) -> T {
        look(&self.0.state.lock().table)
    }

    /// Changes the table under its lock, outside of any request. For compaction and for restoring.
    pub(crate) fn with_table_mut<T>(&self, change: impl FnOnce(&mut Table, &mut Vec<Trajectory>) -> T) -> T {
        self.change(|state, removed| change(&mut state.table, removed))
    }

    /// Puts a restored table in the place of this one, whose items go. Who waits goes on waiting.
    pub(crate) fn restore(&self, table: Table) {
        self.0.max_bytes.store(table.config().max_bytes.unwrap_or(u64::MAX), Relaxed);
        self.0.counts_samples.store(counts_samples(table.config()), Relaxed);
        self.0.signature_token.store(signature_token(table.config()), Relaxed);
        let old = self.change(|state, _| std::mem::replace(&mut state.table, table));
        drop(old);
    }

    /// What the table is doing.
    pub fn status(&self) -> TableStatus {
        let state = self.0.state.lock();
        let (table, name) = (&state.table, &self.0.name);
        TableStatus {
            info: table.info(),
            waiting_inserts: state.inserts.len(),
            waiting_samples: state.samples.len(),
            insert_wait: (!state.inserts.is_empty()).then(|| InsertWork::explain(table, name)),
            sample_wait: (!state.samples.is_empty()).then(|| SampleWork::explain(table, name)),
            undelivered: self.0.undelivered.load(Relaxed),
            waited: WaitTimes {
                alive_ms: state.made.elapsed().as_millis() as u64,
                inserts_ms: state.insert_clock.total_ms(),
                samples_ms: state.sample_clock.total_ms(),
            },
        }
    }

    /// The table's description as the reference serialises it.
    pub fn info_bytes(&self) -> Vec<u8> {
        prost::Message::encode_to_vec(&crate::convert::table_info(&self.status()))
    }

    /// Fails all waiting requests, and every later one.
    pub fn close(&self) {
        let mut state = self.0.state.lock();
        state.closed = true;
        let inserts = std::mem::take(&mut state.inserts);
        let mut samples = std::mem::take(&mut state.samples);
        state.insert_clock.set(false);
        state.sample_clock.set(false);
        let mut removed = Vec::new();
        for request in samples.iter_mut().rev() {
            let drawn = std::mem::take(&mut request.work.drawn);
            drawn.into_iter().rev().for_each(|drawn| state.table.give_back(drawn, &mut removed));
        }
        drop(state);
        let closed = || Error::Cancelled(CLOSED.into());
        for request in inserts {
            self.answer(request, Err(closed()));
        }
        for request in samples {
            self.answer(request, Err(closed()));
        }
    }

    /// Counts samples that are on their way to a client.
    pub(crate) fn count_undelivered(&self, count: usize) {
        self.0.undelivered.fetch_add(count as u64, Relaxed);
    }

    /// Counts samples that have arrived, or were given back.
    pub(crate) fn count_delivered(&self, count: usize) {
        self.0.undelivered.fetch_sub(count as u64, Relaxed);
    }

    /// Whether the table has become much smaller since this was last asked.
    pub(crate) fn take_shrunk(&self) -> bool {
        std::mem::take(&mut self.0.state.lock().shrunk)
    }

    /// Completes when the table keeps much more data than its items refer to, or has become much smaller.
    pub(crate) async fn wasteful(&self) {
        self.0.wasteful.notified().await;
    }

    fn withdraw<W: Work>(&self, ticket: u64) -> Option<W> {
        self.change(|state, _| {
            let queue = W::queue(state);
            let index = queue.iter().position(|request| request.ticket == ticket)?;
            queue.remove(index).map(|request| request.work)
        })
    }

    /// Takes a request out of its queue and undoes what it did, before anybody behind it is served. False if it is not
    /// in the queue any more.
    fn withdraw_and_undo<W: Work>(&self, ticket: u64) -> bool {
        self.change(|state, removed| {
            let queue = W::queue(state);
            let Some(index) = queue.iter().position(|request| request.ticket == ticket) else { return false };
            if let Some(request) = queue.remove(index) {
                request.work.undo(&mut state.table, removed);
            }
            true
        })
    }
}

fn now_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_nanos() as u64)
}
