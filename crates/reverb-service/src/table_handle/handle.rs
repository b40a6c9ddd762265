//! The handle of a table: its lock, and the turns in which requests are served.

use super::notices::LongWaits;
use super::operation::Operation;
use super::queue::{
    InsertWork, OPERATIONS_PER_LOCK, Reply, Request, Requests, SampleWork, TableState, Turn, WORTH_A_TRIM, Work,
    give_back_last,
};
use super::status::{TableStatus, WaitClock, WaitTimes};
use super::ticket_queue::TicketQueue;
use super::wait_histogram::WaitCounts;
use crate::peer::Peer;
use parking_lot::{Mutex, MutexGuard};
use reverb_core::{
    CopiedDraws, Delivery, Drawn, Error, NewItem, Result, Table, TableConfig, TableSnapshot, Trajectory,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

/// The error text of a call that was ended by a stop of the server.
pub(super) const CLOSED: &str = "RateLimiter has been cancelled: the server was stopped.";

fn signature_token(config: &TableConfig) -> u64 {
    config.signature.as_ref().map_or(0, |signature| signature.token())
}

fn longest_wait<W: Work>(requests: &Requests<W>) -> Duration {
    let mut waiters = requests.iter().filter_map(|request| request.waiter.as_ref());
    waiters.next().map_or(Duration::ZERO, |waiter| waiter.since.elapsed())
}

fn first_peer<W: Work>(requests: &Requests<W>) -> Option<String> {
    Some(requests.front()?.waiter.as_ref()?.peer.to_string())
}

/// A shared reference to a table.
#[derive(Debug, Clone)]
pub struct TableHandle(pub(super) Arc<SharedTable>);

#[derive(Debug)]
pub(super) struct SharedTable {
    pub(super) name: String,
    /// A copy of the limit in the configuration, like the next two fields, to be read without the lock. They change with
    /// the options, and with a restored checkpoint. `u64::MAX` means no limit.
    max_bytes: AtomicU64,
    counts_samples: AtomicBool,
    signature_token: AtomicU64,
    undelivered: AtomicU64,
    /// Notified when compaction is due, or when the table has shrunk.
    compaction_due: Notify,
    pub(super) long_waits: LongWaits,
    /// The waits of inserts and of draws that have ended.
    waits: [WaitCounts; 2],
    /// The callers in the process of the server that the table belongs to.
    here: OnceLock<Arc<Peer>>,
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
            counts_samples: AtomicBool::new(config.counts_samples()),
            undelivered: AtomicU64::new(0),
            compaction_due: Notify::new(),
            long_waits: LongWaits::default(),
            waits: Default::default(),
            here: OnceLock::new(),
            state: Mutex::new(TableState {
                table,
                inserts: TicketQueue::default(),
                samples: TicketQueue::default(),
                next_ticket: 1,
                interrupted: 0,
                servers: 0,
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

    /// Makes the table one of a server, whose callers in this process are `here`.
    pub(crate) fn belong_to(&self, here: &Arc<Peer>) {
        let _first_server_stays = self.0.here.set(here.clone());
    }

    /// Returns the peer for the callers in this process. `None` if the table belongs to no server.
    #[inline]
    pub(super) fn here(&self) -> Option<&Arc<Peer>> {
        self.0.here.get()
    }

    /// Fails all waiting requests and all later ones.
    pub fn close(&self) {
        let mut state = self.0.state.lock();
        state.closed = true;
        let inserts = std::mem::take(&mut state.inserts);
        let samples = std::mem::take(&mut state.samples);
        state.insert_clock.set(false);
        state.sample_clock.set(false);
        drop(state);
        let mut samples: Vec<_> = samples.into_requests().collect();
        for request in samples.iter_mut().rev() {
            self.give_back(std::mem::take(&mut request.work.drawn));
        }
        for request in inserts.into_requests() {
            self.answer(request, |_| Err(Error::Cancelled(CLOSED.into())));
        }
        for request in samples {
            self.answer(request, |_| Err(Error::Cancelled(CLOSED.into())));
        }
    }

    /// Serves the heads of both queues until neither can proceed. After each turn, calls `settle`, which returns whether
    /// the request of the caller is done, and lets go of the lock if there is more to do. A caller whose request is done
    /// leaves the rest to a thread that is between two turns.
    ///
    /// Another thread may finish a request between two turns, so `settle` must see to it that it can be answered.
    #[inline]
    pub(super) fn serve(
        &self,
        state: &mut MutexGuard<'_, TableState>,
        mut settle: impl FnMut(&mut TableState, &mut Turn) -> bool,
    ) -> Turn {
        let mut turn = Turn::default();
        let now = now_nanos();
        loop {
            let has_more = state.take_turn(now, &mut turn);
            let is_done = settle(state, &mut turn);
            if !has_more || (is_done && state.servers > 0) {
                break;
            }
            self.let_others_in(state, &mut turn);
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

    /// Finishes a turn without the lock, and begins another.
    #[cold]
    fn let_others_in(&self, state: &mut MutexGuard<'_, TableState>, turn: &mut Turn) {
        state.servers += 1;
        MutexGuard::unlocked_fair(state, || self.finish(std::mem::take(turn)));
        state.servers -= 1;
    }

    /// Answers the requests that a turn has finished, and drops the data that it removed. Called without the lock.
    pub(super) fn finish(&self, turn: Turn) {
        for request in turn.inserts {
            self.answer(request, |_| Ok(()));
        }
        for request in turn.samples {
            self.answer(request, |work| Ok(work.reply()));
        }
    }

    fn answer<W: Work>(&self, request: Request<W>, result: impl FnOnce(W) -> Result<W::Reply>) {
        self.count_ended(&request);
        if let Some(waiter) = request.waiter
            && let Err(Ok(undelivered)) = waiter.reply.send(result(request.work))
        {
            self.take_back(undelivered);
        }
    }

    /// Counts a request that has left its queue after its caller began to wait.
    fn count_ended<W: Work>(&self, request: &Request<W>) {
        let Some(waiter) = &request.waiter else { return };
        request.work.count(&waiter.peer.traffic);
        if request.waited {
            self.0.waits[W::OPERATION as usize].add(waiter.since.elapsed());
        }
    }

    /// Returns the draws of an undelivered answer to the table.
    pub(super) fn take_back<T: Reply>(&self, undelivered: T) {
        let drawn = undelivered.into_drawn();
        if !drawn.is_empty() {
            self.give_back(drawn);
        }
    }

    /// Changes the table, serves the requests that can proceed, and returns the result of `change`, which makes at most
    /// [`OPERATIONS_PER_LOCK`] changes.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut TableState, &mut Vec<Trajectory>) -> T) -> T {
        let mut removed = Vec::new();
        let mut state = self.0.state.lock();
        let result = change(&mut state, &mut removed);
        let turn = self.serve(&mut state, |_, _| true);
        drop(state);
        self.finish(turn);
        result
    }

    /// Returns samples to the table that were drawn but not delivered. Others may draw some of them before all are back.
    pub fn give_back(&self, mut drawn: Vec<Drawn>) {
        while !drawn.is_empty() {
            self.change(|state, removed| give_back_last(&mut drawn, &mut state.table, removed));
        }
    }

    /// Gives the draws of an undelivered copied batch back.
    pub fn give_back_copied(&self, draws: CopiedDraws) {
        self.change(|state, _| state.table.give_back_copied(draws));
    }

    /// Notes that samples have reached their caller. Until then, checkpoints hold them as not drawn.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if the table counts samples and was closed, because the last checkpoint may hold them then.
    #[inline]
    pub fn delivered(&self, drawn: &[Drawn]) -> Result<()> {
        // A table that has been told to count samples meanwhile tracks the last draws, but not the first.
        if !drawn.last().is_some_and(Drawn::is_tracked) {
            return Ok(());
        }
        if drawn.len() > OPERATIONS_PER_LOCK {
            return self.deliver_in_steps(Delivery::of(drawn));
        }
        self.open_state()?.table.delivered(drawn);
        Ok(())
    }

    /// The first step decides about all draws, so neither a checkpoint nor a stop can divide them.
    #[cold]
    fn deliver_in_steps(&self, delivery: Delivery) -> Result<()> {
        self.open_state()?.table.begin_delivery(delivery);
        while self.0.state.lock().table.continue_deliveries(OPERATIONS_PER_LOCK) {}
        Ok(())
    }

    /// As [`TableHandle::delivered`], for a copied batch.
    pub(crate) fn delivered_copied(&self, draws: &CopiedDraws) -> Result<()> {
        if draws.are_tracked() {
            self.open_state()?.table.delivered_copied(draws);
        }
        Ok(())
    }

    fn open_state(&self) -> Result<MutexGuard<'_, TableState>> {
        let state = self.0.state.lock();
        if state.closed { Err(Error::Cancelled(CLOSED.into())) } else { Ok(state) }
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
        for (step, items) in items.chunks(OPERATIONS_PER_LOCK).enumerate() {
            let checked = self.0.state.lock().table.check_items(items);
            checked.map_err(|(index, error)| (step * OPERATIONS_PER_LOCK + index, error))?;
        }
        Ok(())
    }

    /// Deletes items, then sets priorities. Unknown keys are ignored. All priorities are checked before anything is
    /// changed. Between steps of 16 384 deletes or updates, others may see a part of the changes.
    ///
    /// # Errors
    /// [`Error::InvalidPriority`] if a priority is not valid. Nothing is changed then.
    pub fn mutate(&self, updates: &[(u64, f64)], deletes: &[u64]) -> Result<u64> {
        if updates.len() + deletes.len() <= OPERATIONS_PER_LOCK {
            return self.change(|state, removed| state.table.mutate(updates, deletes, removed));
        }
        for step in updates.chunks(OPERATIONS_PER_LOCK) {
            self.0.state.lock().table.check_updates(step)?;
        }
        let mut changed = 0;
        for step in deletes.chunks(OPERATIONS_PER_LOCK) {
            changed += self.change(|state, removed| state.table.mutate(&[], step, removed))?;
        }
        for step in updates.chunks(OPERATIONS_PER_LOCK) {
            changed += self.change(|state, removed| state.table.mutate(step, &[], removed))?;
        }
        Ok(changed)
    }

    /// Removes all items and sets the counters to zero. Waiting requests continue to wait.
    pub fn reset(&self) {
        let old = self.change(|state, _| state.table.reset());
        let is_worth_a_notice = old.bytes() > WORTH_A_TRIM;
        tracing::info!(table = self.name(), "table `{}` was reset; {} items left it", self.name(), old.num_items());
        let counts = old.counts();
        drop(old);
        self.0.state.lock().table.count_old(&counts);
        if is_worth_a_notice {
            // Only now other tables can see that this one has let go of the chunks that they share.
            self.0.state.lock().shrunk = true;
            self.0.compaction_due.notify_one();
        }
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
        self.publish(table.config());
        self.0.signature_token.store(signature_token(table.config()), Relaxed);
        let old = self.change(|state, _| std::mem::replace(&mut state.table, table));
        drop(old);
    }

    /// Copies the options that are read without the lock.
    pub(super) fn publish(&self, config: &TableConfig) {
        self.0.max_bytes.store(config.max_bytes.unwrap_or(u64::MAX), Relaxed);
        self.0.counts_samples.store(config.counts_samples(), Relaxed);
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
            longest_insert_wait: longest_wait(&state.inserts),
            longest_sample_wait: longest_wait(&state.samples),
            insert_waits: self.0.waits[Operation::Insert as usize].read(),
            sample_waits: self.0.waits[Operation::Sample as usize].read(),
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

    /// Makes a search for sparse chunks due, because another table has let go of chunks that it may have shared.
    pub(crate) fn expect_sparse_chunks(&self) {
        self.with_table_mut(|table, _| table.expect_sparse_chunks());
    }

    /// Completes when the table holds much more data than its items use, or has shrunk considerably.
    pub(crate) async fn compaction_due(&self) {
        self.0.compaction_due.notified().await;
    }

    pub(super) fn withdraw<W: Work>(&self, ticket: u64) -> Option<W> {
        let request = self.change(|state, _| W::queue(state).remove(ticket))?;
        self.count_ended(&request);
        Some(request.work)
    }

    /// Removes a request from its queue and undoes its effects before later requests are served. Returns false if the
    /// request is not in the queue any more.
    pub(super) fn withdraw_and_undo<W: Work>(&self, ticket: u64) -> bool {
        let withdrawn = self.change(|state, removed| {
            let mut request = W::queue(state).remove(ticket)?;
            request.work.undo(&mut state.table, removed);
            Some(request)
        });
        let Some(request) = withdrawn else { return false };
        self.count_ended(&request);
        self.take_back(request.work.reply());
        true
    }
}

/// Takes a snapshot of several tables at one moment. Holds all their locks while it copies pointers to pages.
///
/// No other code holds two of these locks, so their order does not matter.
pub fn snapshot_all(tables: &[TableHandle]) -> Vec<TableSnapshot> {
    let states: Vec<_> = tables.iter().map(|table| table.0.state.lock()).collect();
    states.iter().map(|state| state.snapshot()).collect()
}

/// The time as of the last tick of the system's clock, a few milliseconds ago at most. A quarter of the cost of
/// [`now_nanos`], which a small batch would feel.
#[cfg(target_os = "linux")]
pub(super) fn recent_nanos() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to `time` only.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut time) } != 0;
    if failed { now_nanos() } else { time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64 }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn recent_nanos() -> u64 {
    now_nanos()
}

pub(super) fn now_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_nanos() as u64)
}
