//! The handle of a table: its lock, and the turns in which requests are served.

use super::notices::LongWaits;
use super::queue::{InsertWork, Reply, Request, SampleWork, TableState, Turn, Work};
use super::status::{TableStatus, WaitClock, WaitTimes};
use parking_lot::{Mutex, MutexGuard};
use reverb_core::{CopiedDraws, Drawn, Error, NewItem, Result, Table, TableConfig, TableSnapshot, Trajectory};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

/// Number of steps (see [`TableState::step`]) after which other threads get a chance to take the lock.
const STEPS_PER_TURN: u32 = 16;
/// The error text of a call that was ended by a stop of the server.
pub(super) const CLOSED: &str = "RateLimiter has been cancelled: the server was stopped.";

fn counts_samples(config: &TableConfig) -> bool {
    config.max_times_sampled > 0 || config.rate_limiter.counts_samples()
}

fn signature_token(config: &TableConfig) -> u64 {
    config.signature.as_ref().map_or(0, |signature| signature.token())
}

fn first_peer<W: Work>(requests: &VecDeque<Request<W>>) -> Option<String> {
    Some(requests.front()?.waiter.as_ref()?.peer.to_string())
}

/// A shared reference to a table.
#[derive(Debug, Clone)]
pub struct TableHandle(pub(super) Arc<SharedTable>);

#[derive(Debug)]
pub(super) struct SharedTable {
    pub(super) name: String,
    /// A copy of the limit in the configuration, like the next two fields, to be read without the lock. A restored
    /// checkpoint changes them. `u64::MAX` means no limit.
    max_bytes: AtomicU64,
    counts_samples: AtomicBool,
    signature_token: AtomicU64,
    undelivered: AtomicU64,
    /// Notified when compaction is due, or when the table has shrunk.
    compaction_due: Notify,
    pub(super) long_waits: LongWaits,
    pub(super) state: Mutex<TableState>,
}

/// Wraps a table that does not belong to a server yet.
impl From<Table> for TableHandle {
    fn from(table: Table) -> Self {
        Self::new(table)
    }
}

impl TableHandle {
    /// Wraps a table, so that several threads can share it.
    pub fn new(table: Table) -> Self {
        let config = table.config();
        Self(Arc::new(SharedTable {
            name: config.name.clone(),
            max_bytes: AtomicU64::new(config.max_bytes.unwrap_or(u64::MAX)),
            signature_token: AtomicU64::new(signature_token(config)),
            counts_samples: AtomicBool::new(counts_samples(config)),
            undelivered: AtomicU64::new(0),
            compaction_due: Notify::new(),
            long_waits: LongWaits::default(),
            state: Mutex::new(TableState {
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

    /// Returns the name of the table.
    #[inline]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the limit of the data that items keep in memory, in bytes. `None` for no limit.
    #[inline]
    pub fn max_bytes(&self) -> Option<u64> {
        Some(self.0.max_bytes.load(Relaxed)).filter(|&limit| limit != u64::MAX)
    }

    /// Returns a number that changes with the signature of the table, and 0 without a signature. Clients use it as a
    /// cache key for data derived from the signature.
    #[inline]
    pub fn signature_token(&self) -> u64 {
        self.0.signature_token.load(Relaxed)
    }

    /// Whether a draw affects later draws: by the rate limiter, or by `max_times_sampled`.
    #[inline]
    pub fn counts_samples(&self) -> bool {
        self.0.counts_samples.load(Relaxed)
    }

    /// Fails all waiting requests and all later ones.
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

    /// Serves the heads of both queues until neither can proceed.
    pub(super) fn serve(&self, state: &mut MutexGuard<'_, TableState>) -> Turn {
        let mut turn = Turn::default();
        let now = now_nanos();
        let mut steps = 0;
        while state.step(now, &mut turn) {
            steps += 1;
            if steps % STEPS_PER_TURN == 0 && state.all_can_be_told() {
                MutexGuard::bump(state);
            }
        }
        let has_inserts = !state.inserts.is_empty();
        let has_samples = !state.samples.is_empty();
        state.insert_clock.set(has_inserts);
        state.sample_clock.set(has_samples);
        if state.has_shrunk() || state.table.wants_compaction() {
            self.0.compaction_due.notify_one();
        }
        turn
    }

    /// Answers the requests that a turn has finished, and drops the data that it removed. Called without the lock.
    pub(super) fn finish(&self, turn: Turn) {
        for (request, result) in turn.inserts {
            self.answer(request, result);
        }
        for (request, result) in turn.samples {
            self.answer(request, result);
        }
    }

    fn answer<W: Work>(&self, request: Request<W>, result: Result<W::Reply>) {
        if let Some(waiter) = request.waiter
            && let Err(Ok(undelivered)) = waiter.reply.send(result)
        {
            self.take_back(undelivered);
        }
    }

    /// Returns the draws of an undelivered answer to the table.
    pub(super) fn take_back<T: Reply>(&self, undelivered: T) {
        let drawn = undelivered.into_drawn();
        if !drawn.is_empty() {
            self.give_back(drawn);
        }
    }

    /// Changes the table, serves the requests that can proceed, and returns the result of `change`.
    fn change<T>(&self, change: impl FnOnce(&mut TableState, &mut Vec<Trajectory>) -> T) -> T {
        let mut removed = Vec::new();
        let mut state = self.0.state.lock();
        let result = change(&mut state, &mut removed);
        let turn = self.serve(&mut state);
        drop(state);
        self.finish(turn);
        result
    }

    /// Returns samples to the table that were drawn but not delivered.
    pub fn give_back(&self, drawn: Vec<Drawn>) {
        self.change(|state, removed| {
            drawn.into_iter().rev().for_each(|drawn| state.table.give_back(drawn, removed));
        });
    }

    /// Returns the draws of a copied batch to the table that was not delivered.
    pub fn give_back_copied(&self, draws: CopiedDraws) {
        self.change(|state, _| state.table.give_back_copied(draws));
    }

    /// Checks that the table accepts all items.
    ///
    /// # Errors
    /// The index of the first refused item, and the error of [`Trajectory::check_size`] or [`Table::check_item`].
    ///
    /// [`Trajectory::check_size`]: reverb_core::Trajectory::check_size
    pub fn check_all(&self, items: &[NewItem]) -> std::result::Result<(), (usize, Error)> {
        // Before the lock, because this may decode chunks.
        for (index, item) in items.iter().enumerate().filter(|(_, item)| item.trajectory.may_be_too_large()) {
            item.trajectory.check_size(&self.0.name).map_err(|error| (index, error))?;
        }
        self.0.state.lock().table.check_items(items)
    }

    /// Deletes items, then sets priorities. Unknown keys are ignored.
    ///
    /// # Errors
    /// [`Error::InvalidPriority`] if a priority is not valid. Nothing is changed then.
    pub fn mutate(&self, updates: &[(u64, f64)], deletes: &[u64]) -> Result<()> {
        self.change(|state, removed| state.table.mutate(updates, deletes, removed))
    }

    /// Removes all items and sets the counters to zero. Waiting requests continue to wait.
    pub fn reset(&self) {
        self.change(|state, removed| state.table.reset(removed));
    }

    /// Whether the rate limiter allows `count` inserts now.
    pub fn can_insert(&self, count: i64) -> bool {
        self.0.state.lock().table.can_insert(count)
    }

    /// Whether the rate limiter allows `count` samples now.
    pub fn can_sample(&self, count: i64) -> bool {
        self.0.state.lock().table.can_sample(count)
    }

    /// Calls `look` with the table under its lock. `look` must be fast.
    pub fn with_table<T>(&self, look: impl FnOnce(&Table) -> T) -> T {
        look(&self.0.state.lock().table)
    }

    /// Changes the table under its lock for compaction, then serves the requests that can proceed.
    pub(crate) fn with_table_mut<T>(&self, change: impl FnOnce(&mut Table, &mut Vec<Trajectory>) -> T) -> T {
        self.change(|state, removed| change(&mut state.table, removed))
    }

    /// Replaces the table and its items by a restored table. Waiting requests continue to wait.
    pub fn restore(&self, table: Table) {
        self.0.max_bytes.store(table.config().max_bytes.unwrap_or(u64::MAX), Relaxed);
        self.0.counts_samples.store(counts_samples(table.config()), Relaxed);
        self.0.signature_token.store(signature_token(table.config()), Relaxed);
        let old = self.change(|state, _| std::mem::replace(&mut state.table, table));
        drop(old);
    }

    /// Returns the status of the table and its queues.
    pub fn status(&self) -> TableStatus {
        let mut state = self.0.state.lock();
        let info = state.table.info();
        let (table, name) = (&state.table, &self.0.name);
        TableStatus {
            info,
            waiting_inserts: state.inserts.len(),
            waiting_samples: state.samples.len(),
            insert_wait: (!state.inserts.is_empty()).then(|| InsertWork::explain(table, name)),
            sample_wait: (!state.samples.is_empty()).then(|| SampleWork::explain(table, name)),
            insert_peer: first_peer(&state.inserts),
            sample_peer: first_peer(&state.samples),
            undelivered: self.0.undelivered.load(Relaxed),
            waited: WaitTimes {
                alive_ms: state.made.elapsed().as_millis() as u64,
                inserts_ms: state.insert_clock.total_ms(),
                samples_ms: state.sample_clock.total_ms(),
            },
        }
    }

    /// Adds to the number of samples on their way to a client.
    pub(crate) fn count_undelivered(&self, count: usize) {
        self.0.undelivered.fetch_add(count as u64, Relaxed);
    }

    /// Subtracts samples that have arrived or were given back from that number.
    pub(crate) fn count_delivered(&self, count: usize) {
        self.0.undelivered.fetch_sub(count as u64, Relaxed);
    }

    /// Whether the table has shrunk considerably since the last call.
    pub(crate) fn take_shrink_notice(&self) -> bool {
        std::mem::take(&mut self.0.state.lock().shrunk)
    }

    /// Completes when the table holds much more data than its items use, or has shrunk considerably.
    pub(crate) async fn compaction_due(&self) {
        self.0.compaction_due.notified().await;
    }

    pub(super) fn withdraw<W: Work>(&self, ticket: u64) -> Option<W> {
        self.change(|state, _| {
            let queue = W::queue(state);
            let index = queue.iter().position(|request| request.ticket == ticket)?;
            queue.remove(index).map(|request| request.work)
        })
    }

    /// Removes a request from its queue and undoes its effects before later requests are served. Returns false if the
    /// request is not in the queue any more.
    pub(super) fn withdraw_and_undo<W: Work>(&self, ticket: u64) -> bool {
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

/// Takes a snapshot of several tables at one moment. Holds all their locks while it copies pointers to pages.
///
/// No other code holds two of these locks, so their order does not matter.
pub fn snapshot_all(tables: &[TableHandle]) -> Vec<TableSnapshot> {
    let states: Vec<_> = tables.iter().map(|table| table.0.state.lock()).collect();
    states.iter().map(|state| state.snapshot()).collect()
}

pub(super) fn now_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_nanos() as u64)
}
