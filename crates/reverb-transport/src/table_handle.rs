//! A table that tasks can wait on.
//!
//! The lock guards the table and two queues, of waiting inserts and of waiting draws. Whoever changes the table serves
//! the heads of both, in order, then unlocks, then wakes those it served: nobody overtakes, and no wake-up can be lost.
//! A waiter that is dropped leaves its queue, and what it had drawn goes back. Data is dropped after unlocking.

use parking_lot::{Mutex, MutexGuard};
use reverb_core::gather::{Gatherer, Mismatch};
use reverb_core::{Drawn, Error, NewItem, Result, Table, TableInfo, Trajectory};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{Notify, oneshot};

/// Requests of a kind that may wait at a table; more are refused.
const MAX_WAITING: usize = 100_000;
/// Inserts in one step while nobody waits for samples; a larger request lets others take the lock in between.
const OPERATIONS_A_TURN: usize = 512;
/// Steps (see [`State::step`]) between two chances for others to take the lock.
const STEPS_A_TURN: u32 = 16;
/// A wait this long is reported, once.
const LONG_WAIT: Duration = Duration::from_secs(10);
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

/// What a table is doing, beside what [`TableInfo`] says.
#[derive(Debug, Clone)]
pub struct TableStatus {
    /// The table itself.
    pub info: TableInfo,
    /// Inserts that wait.
    pub waiting_inserts: usize,
    /// Draws that wait.
    pub waiting_samples: usize,
    /// What the first waiting insert waits for.
    pub insert_wait: Option<String>,
    /// What the first waiting draw waits for.
    pub sample_wait: Option<String>,
    /// Samples drawn and not yet received.
    pub undelivered: u64,
    /// Time spent, for `TableWorkerTime`.
    pub waited: WaitTimes,
}

/// Milliseconds that the table had waiting inserts, and waiting draws.
#[derive(Debug, Clone, Copy, Default)]
pub struct WaitTimes {
    /// Since the table was made.
    pub alive_ms: u64,
    /// An insert waited.
    pub inserts_ms: u64,
    /// A draw waited.
    pub samples_ms: u64,
}

/// A call that is done, or that waits for the table.
#[derive(Debug)]
pub enum Call<T: Reply> {
    /// Its result.
    Done(Result<T>),
    /// To be awaited; dropping it withdraws the request.
    Waiting(Waiting<T>),
}

/// A shared reference to a table.
#[derive(Debug, Clone)]
pub struct TableHandle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    name: String,
    counts_samples: bool,
    signature_token: u64,
    undelivered: AtomicU64,
    /// Told when chunks should be compacted.
    wasteful: Notify,
    state: Mutex<State>,
}

#[derive(Debug)]
pub struct State {
    table: Table,
    inserts: VecDeque<Request<InsertWork>>,
    samples: VecDeque<Request<SampleWork>>,
    next_ticket: u64,
    closed: bool,
    made: Instant,
    insert_clock: WaitClock,
    sample_clock: WaitClock,
}

#[derive(Debug)]
pub struct Request<W: Work> {
    ticket: u64,
    work: W,
    /// Set when the caller could not be served at once.
    reply: Option<oneshot::Sender<Result<W::Reply>>>,
}

#[derive(Debug)]
pub struct InsertWork {
    items: std::vec::IntoIter<NewItem>,
    total: usize,
}

#[derive(Debug)]
pub struct SampleWork {
    request: DrawRequest,
    drawn: Vec<Drawn>,
}

/// What a kind of request is made of; implemented by the two kinds only.
pub trait Work: Sized + Send {
    type Reply: Reply<Work = Self>;
    fn queue(state: &mut State) -> &mut VecDeque<Request<Self>>;
    fn finished(turn: &mut Turn) -> &mut Vec<(Request<Self>, Result<Self::Reply>)>;
    /// Operations that it takes at most.
    fn size(&self) -> usize;
    /// The result if the request ends now, before it is complete.
    fn expire(self, reason: &str) -> Result<Self::Reply>;
    fn explain(table: &Table, name: &str) -> String;
    /// Undoes what was done and not delivered.
    fn undo(self, table: &mut Table, removed: &mut Vec<Trajectory>);
}

/// What a call returns: nothing for an insert, the samples for a draw.
pub trait Reply: Sized + Send + 'static {
    /// The request that it answers.
    #[doc(hidden)]
    type Work: Work<Reply = Self>;
    /// Takes back what could not be delivered.
    #[doc(hidden)]
    fn take_back(self, handle: &TableHandle);
}

impl Reply for () {
    type Work = InsertWork;
    fn take_back(self, _: &TableHandle) {}
}

impl Reply for Vec<Drawn> {
    type Work = SampleWork;
    fn take_back(self, handle: &TableHandle) {
        handle.give_back(self);
    }
}

impl Work for InsertWork {
    type Reply = ();

    fn queue(state: &mut State) -> &mut VecDeque<Request<Self>> {
        &mut state.inserts
    }

    fn finished(turn: &mut Turn) -> &mut Vec<(Request<Self>, Result<()>)> {
        &mut turn.inserts
    }

    fn size(&self) -> usize {
        self.items.len()
    }

    fn expire(self, reason: &str) -> Result<()> {
        let done = self.total - self.items.len();
        Err(Error::DeadlineExceeded(format!(
            "Timeout exceeded: {done} of {} items were inserted; {reason}",
            self.total
        )))
    }

    fn explain(table: &Table, name: &str) -> String {
        format!("insert into table `{name}` waits: {}", table.explain_insert())
    }

    fn undo(self, _: &mut Table, removed: &mut Vec<Trajectory>) {
        removed.extend(self.items.map(|item| item.trajectory));
    }
}

impl Work for SampleWork {
    type Reply = Vec<Drawn>;

    fn queue(state: &mut State) -> &mut VecDeque<Request<Self>> {
        &mut state.samples
    }

    fn finished(turn: &mut Turn) -> &mut Vec<(Request<Self>, Result<Vec<Drawn>>)> {
        &mut turn.samples
    }

    fn size(&self) -> usize {
        self.request.at_most
    }

    fn expire(self, reason: &str) -> Result<Vec<Drawn>> {
        if !self.drawn.is_empty() {
            return Ok(self.drawn);
        }
        Err(Error::DeadlineExceeded(format!(
            "Rate Limiter: Timeout exceeded before the right to sample was acquired; {reason}"
        )))
    }

    fn explain(table: &Table, name: &str) -> String {
        format!("sample of table `{name}` waits: {}", table.explain_sample())
    }

    fn undo(self, table: &mut Table, removed: &mut Vec<Trajectory>) {
        // Last drawn, first returned, so that each finds the table as it left it.
        self.drawn.into_iter().rev().for_each(|drawn| table.give_back(drawn, removed));
    }
}

/// What a turn at the table has finished, and what is to be dropped after unlocking.
#[derive(Default)]
pub struct Turn {
    inserts: Vec<(Request<InsertWork>, Result<()>)>,
    samples: Vec<(Request<SampleWork>, Result<Vec<Drawn>>)>,
    removed: Vec<Trajectory>,
}

impl TableHandle {
    /// Makes a table shareable.
    pub fn new(table: Table) -> Self {
        let config = table.config();
        Self(Arc::new(Shared {
            name: config.name.clone(),
            signature_token: config.signature.as_ref().map_or(0, |signature| signature.token()),
            counts_samples: config.max_times_sampled > 0 || config.rate_limiter.counts_samples(),
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
            }),
        }))
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// A number that changes with the table's signature; 0 without one. Clients keep what they made of it by this.
    pub fn signature_token(&self) -> u64 {
        self.0.signature_token
    }

    /// Inserts items one after another as the rate limiter allows. The items have passed [`TableHandle::check`].
    pub fn insert(&self, items: Vec<NewItem>) -> Call<()> {
        let total = items.len();
        let items = items.into_iter();
        self.submit(InsertWork { items, total })
    }

    /// Draws items as the rate limiter allows.
    pub fn sample(&self, request: DrawRequest) -> Call<Vec<Drawn>> {
        let wanted = request.at_most.saturating_add(self.ahead(request));
        if request.at_most == 0 || request.at_least > request.at_most {
            return Call::Done(Err(Error::invalid(format!(
                "`num_samples` must be > 0 and at least the number that must be drawn (got {} and {})",
                request.at_most, request.at_least
            ))));
        }
        self.submit(SampleWork { request, drawn: Vec::with_capacity(wanted.min(4096)) })
    }

    fn ahead(&self, request: DrawRequest) -> usize {
        if self.0.counts_samples { 0 } else { request.ahead }
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
        while state.step(self, now, &mut turn) {
            steps += 1;
            if steps % STEPS_A_TURN == 0 && state.all_can_be_told() {
                MutexGuard::bump(state);
            }
        }
        let has_inserts = !state.inserts.is_empty();
        let has_samples = !state.samples.is_empty();
        state.insert_clock.set(has_inserts);
        state.sample_clock.set(has_samples);
        if state.table.wants_compaction() {
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

    /// Plans a batch of drawn items. Where they do not fit together, the longest fitting beginning of `at_least` items or
    /// more is taken, and the rest goes back.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] that names the item and its difference, if too few fit. All items have gone back.
    pub fn stack(&self, drawn: Vec<Drawn>, at_least: usize, squeeze_time: bool) -> Result<Gatherer> {
        let mismatch = match Gatherer::new(drawn, squeeze_time) {
            Ok(gatherer) => return Ok(gatherer),
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
        Gatherer::new(items, squeeze_time).map_err(|mismatch| {
            self.give_back(mismatch.items);
            Error::invalid(format!("items of table `{}` cannot be stacked: {}", self.0.name, mismatch.reason))
        })
    }

    /// Whether an item may be inserted at all; see [`Table::check_item`].
    pub fn check(&self, item: &NewItem) -> Result<()> {
        self.0.state.lock().table.check_item(item)
    }

    /// As [`TableHandle::check`], for many items: the index of the first that may not, and why.
    pub fn check_all(&self, items: &[NewItem]) -> std::result::Result<(), (usize, Error)> {
        let state = self.0.state.lock();
        items.iter().enumerate().try_for_each(|(row, item)| state.table.check_item(item).map_err(|error| (row, error)))
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
        let samples = std::mem::take(&mut state.samples);
        state.insert_clock.set(false);
        state.sample_clock.set(false);
        drop(state);
        let closed = || Error::Cancelled(CLOSED.into());
        for request in inserts {
            self.answer(request, Err(closed()));
        }
        for mut request in samples {
            let drawn = std::mem::take(&mut request.work.drawn);
            self.answer(request, Err(closed()));
            self.give_back(drawn);
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

    /// Completes when the table keeps much more data than its items refer to.
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
}

impl State {
    /// Whether every waiting request could be finished by another thread.
    fn all_can_be_told(&self) -> bool {
        self.inserts.iter().all(|request| request.reply.is_some()) && self.samples.iter().all(|request| request.reply.is_some())
    }

    /// One insert, and as many draws of the first waiting request as may go. False if nothing could be done.
    fn step(&mut self, handle: &TableHandle, now: u64, turn: &mut Turn) -> bool {
        let inserted = self.step_insert(now, turn);
        let drawn = self.step_sample(handle, turn);
        inserted || drawn || self.finish_short(turn)
    }

    fn step_insert(&mut self, now: u64, turn: &mut Turn) -> bool {
        let Some(head) = self.inserts.front_mut() else { return false };
        // While nobody waits for samples there is no one to take turns with.
        let turns = if self.samples.is_empty() { OPERATIONS_A_TURN } else { 1 };
        let mut progress = false;
        for _ in 0..turns {
            if head.work.items.len() > 0 && !self.table.can_insert(1) {
                return progress;
            }
            let Some(item) = head.work.items.next() else { break };
            self.table.insert(item, now, &mut turn.removed);
            progress = true;
        }
        if head.work.items.len() == 0 {
            let request = self.inserts.pop_front().expect("the head is there");
            turn.inserts.push((request, Ok(())));
            return true;
        }
        progress
    }

    fn step_sample(&mut self, handle: &TableHandle, turn: &mut Turn) -> bool {
        let Some(head) = self.samples.front_mut() else { return false };
        let work = &mut head.work;
        let wanted = work.request.at_most + handle.ahead(work.request);
        let waited = head.reply.is_some();
        let before = work.drawn.len();
        while work.drawn.len() < wanted && self.table.can_sample(1) {
            let Some(mut drawn) = self.table.sample(&mut turn.removed) else { break };
            drawn.rate_limited = waited;
            work.drawn.push(drawn);
        }
        let progress = work.drawn.len() > before;
        if work.drawn.len() >= wanted {
            self.finish_sample(turn);
            return true;
        }
        progress
    }

    /// Where nothing else can be done, a draw that has enough is answered with what it has.
    fn finish_short(&mut self, turn: &mut Turn) -> bool {
        let enough = self.samples.front().is_some_and(|head| {
            let SampleWork { request, drawn } = &head.work;
            !drawn.is_empty() && drawn.len() >= request.at_least
        });
        if enough {
            self.finish_sample(turn);
        }
        enough
    }

    fn finish_sample(&mut self, turn: &mut Turn) {
        let mut request = self.samples.pop_front().expect("the head is there");
        let drawn = std::mem::take(&mut request.work.drawn);
        turn.samples.push((request, Ok(drawn)));
    }
}

impl Turn {
    /// The result of the caller's own request, if it was finished in this turn.
    fn take_own<W: Work>(&mut self, ticket: u64) -> Option<Result<W::Reply>> {
        W::finished(self).iter().position(|(request, _)| request.ticket == ticket).map(|index| W::finished(self).swap_remove(index).1)
    }
}

/// A request in its table's queue. Dropping it withdraws the request; what it had drawn goes back.
#[derive(Debug)]
pub struct Waiting<T: Reply> {
    handle: TableHandle,
    ticket: u64,
    /// `None` once the answer was taken.
    receiver: Option<oneshot::Receiver<Result<T>>>,
}

impl<T: Reply> Waiting<T> {
    /// Waits for the table, until `deadline` if there is one. A wait past ten seconds is told to `notice`, once.
    ///
    /// # Errors
    /// [`Error::DeadlineExceeded`] if nothing could be done in time, [`Error::Cancelled`] if the table was closed.
    pub async fn result(mut self, deadline: Option<Instant>, notice: impl Fn(&str)) -> Result<T> {
        let mut notice_at = Some(Instant::now() + LONG_WAIT);
        loop {
            let wake = [deadline, notice_at].into_iter().flatten().min();
            let Some(receiver) = self.receiver.as_mut() else { return Err(forgotten()) };
            let answer = match wake {
                None => Some(receiver.await),
                Some(wake) => tokio::time::timeout_at(wake.into(), receiver).await.ok(),
            };
            if let Some(answer) = answer {
                self.receiver = None;
                return answer.unwrap_or_else(|_| Err(forgotten()));
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return self.expire().await;
            }
            notice_at = None;
            notice(&self.explain());
        }
    }

    fn explain(&self) -> String {
        self.handle.with_table(|table| T::Work::explain(table, self.handle.name()))
    }

    async fn expire(mut self) -> Result<T> {
        let Some(receiver) = self.receiver.take() else { return Err(forgotten()) };
        let reason = self.explain();
        match self.handle.withdraw::<T::Work>(self.ticket) {
            Some(work) => work.expire(&reason),
            // Served in this moment; the answer is being sent.
            None => receiver.await.unwrap_or_else(|_| Err(forgotten())),
        }
    }
}

impl<T: Reply> Drop for Waiting<T> {
    fn drop(&mut self) {
        let Some(mut receiver) = self.receiver.take() else { return };
        if let Some(work) = self.handle.withdraw::<T::Work>(self.ticket) {
            self.handle.change(|state, removed| work.undo(&mut state.table, removed));
            return;
        }
        // It was served: either the answer is here, or the sender finds the receiver gone and takes it back itself.
        receiver.close();
        if let Ok(Ok(undelivered)) = receiver.try_recv() {
            undelivered.take_back(&self.handle);
        }
    }
}

fn forgotten() -> Error {
    Error::Internal("a waiting request was forgotten".into())
}

/// Adds up the time in which something waits.
#[derive(Debug, Default)]
struct WaitClock {
    since: Option<Instant>,
    total: Duration,
}

impl WaitClock {
    fn set(&mut self, waits: bool) {
        match (self.since, waits) {
            (None, true) => self.since = Some(Instant::now()),
            (Some(since), false) => {
                self.total += since.elapsed();
                self.since = None;
            }
            _ => {}
        }
    }

    fn total_ms(&self) -> u64 {
        (self.total + self.since.map_or(Duration::ZERO, |since| since.elapsed())).as_millis() as u64
    }
}

fn now_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_nanos() as u64)
}
