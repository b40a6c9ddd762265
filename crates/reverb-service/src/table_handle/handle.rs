//! The handle of a table: its lock, and the turns in which it changes. All answers leave through [`TableHandle::turn`].

use super::journal::{self, Commit};
use super::long_waits::LongWaits;
use super::requests::{Ended, GiveBack, OPERATIONS_PER_LOCK, Operation, Reply, Request, Work, give_back};
use super::state::TableState;
use super::wait_histogram::WaitCounts;
use super::watch::Watchers;
use crate::shard::ShardKeys;
use crate::tables_used::Place;
use parking_lot::{Mutex, MutexGuard};
use reverb_core::{Drawn, Error, ItemKey, Result, Table, TableConfig, TableSnapshot};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

/// A shared reference to a table.
#[derive(Debug, Clone)]
pub struct TableHandle(pub(super) Arc<SharedTable>);

#[derive(Debug)]
pub(super) struct SharedTable {
    pub name: String,
    /// A copy of the limit in the configuration, like the next three fields, to be read without the lock. They change with
    /// the options, and with a restored checkpoint. `u64::MAX` means no limit.
    max_bytes: AtomicU64,
    counts_samples: AtomicBool,
    draws_stay: AtomicBool,
    signature_token: AtomicU64,
    /// Its place among the tables of its server.
    place: AtomicUsize,
    /// Set in a table of a shard.
    shard_keys: OnceLock<Arc<ShardKeys>>,
    pub undelivered: AtomicU64,
    /// The longest pause that is not a stall, in nanoseconds; 0 if that is learned from the pauses so far.
    stall_after: AtomicU64,
    /// Whether the table was told of samples that it does not track.
    pub expects_untracked: AtomicBool,
    /// Set once a journal keeps its effects.
    pub is_journaled: AtomicBool,
    /// Notified when compaction is due, or when the table has shrunk.
    pub compaction_due: Notify,
    pub long_waits: LongWaits,
    pub watchers: Arc<Watchers>,
    /// The waits of inserts and of draws that have ended.
    pub waits: [WaitCounts; 2],
    /// Private, so that nothing outside of this file changes the table without a turn.
    state: Mutex<TableState>,
}

/// One change of a table and all the waiting requests that it lets go on.
pub(super) struct Turn<'a> {
    handle: &'a TableHandle,
    pub state: MutexGuard<'a, TableState>,
    pub ended: &'a mut Ended,
    /// See [`Ending`].
    kept: &'a mut Result<()>,
}

/// What leaves a table at the end of a turn, without the lock, once the effects of the turn are committed. The caller
/// begins it and finishes it once. It stays where it is, since moves of so much are calls of memcpy.
pub(super) struct Ending<'a> {
    handle: &'a TableHandle,
    pub ended: Ended,
    commit: Commit,
    /// The first error of the commits of earlier parts.
    kept: Result<()>,
}

impl TableHandle {
    /// Wraps a table, so that several threads can share it.
    pub fn new(table: Table) -> Self {
        let handle = Self(Arc::new(SharedTable {
            name: table.config().name.clone(),
            max_bytes: AtomicU64::default(),
            signature_token: AtomicU64::default(),
            counts_samples: AtomicBool::default(),
            draws_stay: AtomicBool::default(),
            place: AtomicUsize::new(Place::NONE.0),
            shard_keys: OnceLock::new(),
            undelivered: AtomicU64::default(),
            stall_after: AtomicU64::default(),
            expects_untracked: AtomicBool::default(),
            is_journaled: AtomicBool::default(),
            compaction_due: Notify::new(),
            long_waits: LongWaits::default(),
            watchers: Arc::default(),
            waits: Default::default(),
            state: Mutex::new(TableState::new(table)),
        }));
        handle.upkeep(|state| handle.publish(state.table.config()));
        handle
    }

    /// Returns the name of the table.
    #[inline]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Makes the table one of a server.
    pub(crate) fn set_place(&self, Place(place): Place) {
        self.0.place.store(place, Relaxed);
    }

    /// Makes the table one of a shard. Only the first call has an effect.
    pub(crate) fn set_shard_keys(&self, keys: &Arc<ShardKeys>) {
        let _set_before = self.0.shard_keys.set(keys.clone());
    }

    /// Returns the id of the shard that the table belongs to.
    pub(super) fn shard_id(&self) -> Option<u32> {
        self.0.shard_keys.get().map(|keys| keys.shard_id())
    }

    /// Notes the keys of items that enter the table.
    #[inline]
    pub(super) fn note_keys(&self, keys: impl IntoIterator<Item = ItemKey>) {
        if let Some(known) = self.0.shard_keys.get() {
            keys.into_iter().for_each(|key| known.note(key));
        }
    }

    /// Returns the place of the table among those of its server.
    #[inline]
    pub(crate) fn place(&self) -> Place {
        Place(self.0.place.load(Relaxed))
    }

    /// Returns the place of the table in [`Replay::tables`](crate::Replay::tables). `None` if it is not there.
    pub fn number(&self) -> Option<u32> {
        let place = self.place();
        u32::try_from(place.0).ok().filter(|_| place != Place::NONE)
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

    /// Whether a brief call would be over at once: nobody holds the lock at this moment, and no journal keeps the effects.
    pub fn is_quiet(&self) -> bool {
        !self.0.state.is_locked() && !self.0.is_journaled.load(Relaxed)
    }

    /// Whether draws never remove items.
    #[inline]
    pub(super) fn draws_stay(&self) -> bool {
        self.0.draws_stay.load(Relaxed)
    }

    /// Sets the longest pause that somebody who is connected may make before the table counts as stalled.
    pub fn set_stall_after(&self, pause: Duration) {
        self.0.stall_after.store(u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Returns the longest pause that is not a stall. `None` if it is learned from the pauses so far.
    pub fn stall_after(&self) -> Option<Duration> {
        Some(self.0.stall_after.load(Relaxed)).filter(|&nanos| nanos > 0).map(Duration::from_nanos)
    }

    /// Copies the options that are read without the lock.
    pub(super) fn publish(&self, config: &TableConfig) {
        self.0.max_bytes.store(config.max_bytes.unwrap_or(u64::MAX), Relaxed);
        self.0.counts_samples.store(config.counts_samples(), Relaxed);
        self.0.draws_stay.store(config.draws_stay(), Relaxed);
        self.0.signature_token.store(config.signature.as_ref().map_or(0, |signature| signature.token()), Relaxed);
    }

    /// Returns those who watch the table for changes, beside its queues.
    pub fn watchers(&self) -> &Arc<Watchers> {
        &self.0.watchers
    }

    /// Calls `look` with the table under its lock. `look` must be fast.
    pub fn with_table<T>(&self, look: impl FnOnce(&Table) -> T) -> T {
        self.upkeep(|state| look(&state.table))
    }

    /// Reads the state under the lock, or changes what no answer tells of: marks, caches and counts.
    #[inline]
    pub(super) fn upkeep<T>(&self, work: impl FnOnce(&mut TableState) -> T) -> T {
        work(&mut self.0.state.lock())
    }

    /// Locks the state, for a caller that holds the locks of several tables.
    pub(super) fn lock_state(&self) -> MutexGuard<'_, TableState> {
        self.0.state.lock()
    }

    /// Makes a turn: `work` changes the table under the lock. Then, without the lock, its effects are committed, the
    /// requests that have ended are answered, and its result is returned, which is the answer to the caller. The second
    /// result is the error of the commit, for a caller that confirms something.
    #[inline(always)]
    pub(super) fn turn<T>(&self, work: impl FnOnce(&mut Turn<'_>) -> T) -> (T, Result<()>) {
        let mut ending = self.ending();
        let own = ending.begin(work);
        (own, ending.finish())
    }

    /// Returns the end of a turn that has not begun.
    #[inline(always)]
    pub(super) fn ending(&self) -> Ending<'_> {
        Ending { handle: self, ended: Ended::default(), commit: None, kept: Ok(()) }
    }

    /// Makes a turn that serves the requests which can proceed after `change`. `change` makes at most
    /// [`OPERATIONS_PER_LOCK`] changes. The second result is as that of [`TableHandle::turn`].
    pub(super) fn confirmed<T>(&self, change: impl FnOnce(&mut TableState, &mut Ended) -> T) -> (T, Result<()>) {
        self.turn(|turn| {
            let result = change(&mut turn.state, turn.ended);
            turn.serve(|_, _| true);
            result
        })
    }

    /// As [`TableHandle::confirmed`], for a change that nobody is told of.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut TableState, &mut Ended) -> T) -> T {
        self.confirmed(change).0
    }

    /// The one door for answers. Called without the lock. The caller drops the data that left the table afterwards.
    #[inline(always)]
    fn finish(&self, ended: &mut Ended, commit: Commit) -> Result<()> {
        let kept = match commit {
            None => Ok(()),
            Some((journal, confirmation)) => journal::commit(&*journal, confirmation),
        };
        // Mostly nobody waits.
        if !(ended.inserts.is_empty() && ended.samples.is_empty()) {
            self.answer_all(ended, &kept);
        }
        kept
    }

    #[inline(never)]
    fn answer_all(&self, ended: &mut Ended, kept: &Result<()>) {
        let failure = ended.failure.as_deref();
        ended.inserts.drain(..).for_each(|request| self.answer(request, failure, kept));
        ended.samples.drain(..).for_each(|request| self.answer(request, failure, kept));
    }

    fn answer<W: Work>(&self, request: Request<W>, failure: Option<&Error>, kept: &Result<()>) {
        self.count_ended(&request);
        let Some(waiter) = request.waiter else { return };
        let answer = outcome(request.work, failure, kept);
        if let Err(Ok(undelivered)) = waiter.reply.send(answer) {
            self.take_back(undelivered);
        }
    }

    /// Counts a request that has left its queue after its caller began to wait.
    pub(super) fn count_ended<W: Work>(&self, request: &Request<W>) {
        let Some(waiter) = &request.waiter else { return };
        request.work.count(&waiter.peer.traffic, self.place());
        if request.waited {
            self.0.waits[W::OPERATION as usize].add(waiter.since.elapsed());
        }
    }

    /// Returns the draws of an undelivered answer to the table.
    pub(super) fn take_back<T: Reply>(&self, undelivered: T) {
        self.give_back(undelivered.into_drawn());
    }

    /// Returns samples to the table that were drawn but not delivered. Others may draw some of them before all are back.
    pub fn give_back(&self, drawn: Vec<Drawn>) {
        self.give_back_by(drawn, Table::give_back);
    }

    /// As [`TableHandle::give_back`], for draws of a race that have not won.
    pub(crate) fn give_back_losers(&self, drawn: Vec<Drawn>) {
        self.give_back_by(drawn, Table::give_back_loser);
    }

    fn give_back_by(&self, mut drawn: Vec<Drawn>, by: GiveBack) {
        while !drawn.is_empty() {
            self.change(|state, ended| {
                give_back(&mut state.table, &mut drawn, OPERATIONS_PER_LOCK, &mut ended.removed, by);
            });
        }
    }
}

impl Ending<'_> {
    /// Makes the first part of the turn, under the lock.
    #[inline(always)]
    pub fn begin<T>(&mut self, work: impl FnOnce(&mut Turn<'_>) -> T) -> T {
        let Self { handle, ended, kept, .. } = self;
        let mut turn = Turn { handle, state: handle.0.state.lock(), ended, kept };
        let own = work(&mut turn);
        let commit = turn.state.commit();
        drop(turn.state);
        self.commit = commit;
        own
    }

    /// Whether the caller is a task that [`Ending::finish`] would keep waiting for the disk.
    #[inline]
    pub fn keeps_a_task_waiting(&self) -> bool {
        journal::keeps_a_task_waiting(&self.commit)
    }

    /// Finishes the turn, and returns the error of the commit.
    #[inline(always)]
    pub fn finish(&mut self) -> Result<()> {
        let now = self.handle.finish(&mut self.ended, self.commit.take());
        self.handle.0.watchers.tell();
        std::mem::replace(&mut self.kept, Ok(())).and(now)
    }

    /// Lets the journal finish the turn, which then calls `own` with the error of the commit.
    #[inline(never)]
    pub fn finish_later(&mut self, own: impl FnOnce(Result<()>) + Send + 'static) {
        let Some((journal, _)) = self.commit.take() else { return own(self.finish()) };
        let (handle, mut ended) = (self.handle.clone(), std::mem::take(&mut self.ended));
        let kept = std::mem::replace(&mut self.kept, Ok(()));
        journal.commit_later(Box::new(move |now| {
            let kept = kept.and(now);
            handle.answer_all(&mut ended, &kept);
            handle.0.watchers.tell();
            own(kept);
        }));
    }
}

impl Turn<'_> {
    /// Serves the heads of both queues until neither can proceed. After each part of the turn, calls `settle`, which
    /// returns whether the request of the caller is done, and lets go of the lock if there is more to do. A caller whose
    /// request is done leaves the rest to a thread that is between two parts.
    ///
    /// Another thread may finish a request between two parts, so `settle` must see to it that it can be answered.
    #[inline]
    pub fn serve(&mut self, mut settle: impl FnMut(&mut TableState, &mut Ended) -> bool) {
        let now = now_nanos();
        loop {
            let has_more = self.state.take_turn(now, self.ended);
            let is_done = settle(&mut self.state, self.ended);
            if !has_more || (is_done && self.state.servers > 0) {
                break;
            }
            self.let_others_in();
        }
        self.state.set_clocks();
        if self.state.has_shrunk() || self.state.table.wants_compaction() {
            self.handle.0.compaction_due.notify_one();
        }
    }

    /// Finishes a part of the turn without the lock, and begins another.
    #[cold]
    fn let_others_in(&mut self) {
        let Self { handle, state, ended, .. } = self;
        let commit = state.commit();
        state.servers += 1;
        let kept = MutexGuard::unlocked_fair(state, || handle.finish(&mut std::mem::take(*ended), commit));
        state.servers -= 1;
        *self.kept = std::mem::replace(self.kept, Ok(())).and(kept);
    }
}

/// What the caller of a request that has ended is told. `failure` is the reason if it is not complete, `kept` the result of
/// the commit.
#[inline(always)]
pub(super) fn outcome<W: Work>(work: W, failure: Option<&Error>, kept: &Result<()>) -> Result<W::Reply> {
    match (kept, failure) {
        // A draw confirms nothing.
        (Err(error), _) if W::OPERATION == Operation::Insert => Err(error.clone()),
        (_, Some(error)) if !work.is_done() => Err(error.clone()),
        _ => Ok(work.reply()),
    }
}

/// Takes a snapshot of several tables at one moment, as if the draws had not been made whose samples wait for more or are
/// on their way. Requests that wait are not kept. Holds all locks while it copies pointers to pages.
///
/// Only [`begin_effects`](super::begin_effects) holds several of these locks, too. Callers of both give the tables in one
/// order, that of their server.
pub fn snapshot_all(tables: &[TableHandle]) -> Vec<TableSnapshot> {
    let mut states: Vec<_> = tables.iter().map(|table| (table.shard_id(), table.0.state.lock())).collect();
    let snapshot = |(shard, state): &mut (Option<u32>, MutexGuard<'_, TableState>)| {
        let mut snapshot = state.table.snapshot_without_flights();
        snapshot.tally = state.tally(*shard);
        snapshot
    };
    states.iter_mut().map(snapshot).collect()
}

/// The error of a call that was ended by a stop of the server.
pub(super) fn closed() -> Error {
    Error::Cancelled("RateLimiter has been cancelled: the server was stopped.".into())
}

pub(super) fn now_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_nanos() as u64)
}
