//! Calls: requests that enter a queue, and are served at once, or wait until they are served, expire or are dropped.

use super::handle::{Ending, TableHandle, closed, outcome};
use super::long_waits::LongWait;
use super::requests::{Operation, Reply, Request, Work, waits_for_disk};
use super::state::TableState;
use super::ticket_queue::{Answer, Waiter, answer, forgotten};
use crate::notice::Notice;
use crate::peer::Peer;
use reverb_core::words::counted;
use reverb_core::{Error, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

// limit (Tables): waiting requests of one kind at a table | {} | `ResourceExhaustedError`
/// Maximum number of waiting inserts, and of waiting draws, at one table. Further requests are refused.
const MAX_WAITING: usize = 100_000;
// limit (Connections and calls): timeout of a call | none | | `timeout=` of each method
// limit (Connections and calls): time after which a wait is logged, once for all calls of a program that wait at the
// same table | {} |
/// Time after which a wait is reported, once.
const NOTICE_AFTER: Duration = Duration::from_secs(10);

/// A call that is done or that waits for the table.
#[derive(Debug)]
pub enum Call<T: Reply> {
    /// The result of the call.
    Done(Result<T>),
    /// A waiting request, to be awaited. Dropping it withdraws the request.
    Waiting(Waiting<T>),
}

/// A request in the queue of a table. Dropping it withdraws the request and returns its draws to the table.
#[derive(Debug)]
pub struct Waiting<T: Reply> {
    handle: TableHandle,
    ticket: u64,
    /// `None` once the answer was taken.
    answer: Option<Answer<T>>,
    /// Set once the wait is long enough to be reported.
    long: Option<LongWait>,
}

impl TableHandle {
    /// Queues a request of a peer that passes `begin`, and serves the queues.
    #[inline]
    pub(super) fn submit<W: Work>(
        &self,
        mut work: W,
        peer: &Arc<Peer>,
        begin: impl FnOnce(&mut TableState, &mut W) -> Result<()>,
    ) -> Call<W::Reply> {
        let mut ending = self.ending();
        let mut submitted = Submitted::<W> { ticket: 0, own: None, later: None, failure: None };
        let begun = ending.begin(|turn| {
            let state = &mut *turn.state;
            begin(state, &mut work)?;
            if state.closed {
                return Err(closed());
            }
            if state.queues.are_full(&work, MAX_WAITING) {
                let (name, wait) = (self.name(), work.explain(&state.table, state.room.as_deref(), self.name()));
                let most = counted(MAX_WAITING as u64, "request");
                let reason = format!("{most} wait at table `{name}` already; {wait}");
                return Err(Error::ResourceExhausted(reason));
            }
            let ticket = state.next_ticket;
            state.next_ticket += 1;
            let request = Request { ticket, work, waiter: None, waited: false, is_withdrawn: false };
            W::queue(&mut state.queues).push_back(request);
            let Submitted { own, later, failure, .. } = &mut submitted;
            turn.serve(|state, ended| {
                if own.is_none() {
                    *own = ended.take_own::<W>(ticket);
                    *failure = ended.failure.clone();
                }
                if own.is_none() && later.is_some() {
                    // Another thread may have served it, and answers by the channel.
                    return W::queue(&mut state.queues).get_mut(ticket).is_none();
                }
                // Most requests are done before the lock is released. The others need a channel.
                if own.is_none() {
                    let (waiter, waiting) = waiter(peer);
                    state.queues.wait::<W>(ticket, waiter);
                    *later = Some(waiting);
                }
                own.is_some()
            });
            if own.is_none()
                && let Some(request) = W::queue(&mut turn.state.queues).get_mut(ticket)
            {
                request.waited = true;
            }
            submitted.ticket = ticket;
            Ok(())
        });
        self.end_submit(begun, submitted, &mut ending, peer)
    }

    /// Commits what a submitted request has done, or lets the journal do it later, and answers the request if it is done.
    #[inline(always)]
    fn end_submit<W: Work>(
        &self,
        begun: Result<()>,
        submitted: Submitted<W>,
        ending: &mut Ending<'_>,
        peer: &Arc<Peer>,
    ) -> Call<W::Reply> {
        let is_kept_later = ending.keeps_a_task_waiting();
        let kept = if is_kept_later { Ok(()) } else { ending.finish() };
        let Submitted { ticket, own, later, failure } = submitted;
        let call = match (begun, own) {
            (Err(error), _) => Call::Done(Err(error)),
            // Only inserts confirm something.
            (Ok(()), Some(work)) if is_kept_later && W::OPERATION == Operation::Insert => {
                self.answered_later(work, ticket, ending, peer)
            }
            (Ok(()), Some(work)) => {
                work.count(&peer.traffic, self.place());
                Call::Done(outcome(work, failure.as_deref(), &kept))
            }
            (Ok(()), None) => Call::Waiting(Waiting { handle: self.clone(), ticket, answer: later, long: None }),
        };
        if is_kept_later {
            ending.finish_later(drop);
        }
        call
    }

    /// Lets a request that is done wait for the commit, as those of others do.
    #[inline(never)]
    fn answered_later<W: Work>(
        &self,
        work: W,
        ticket: u64,
        ending: &mut Ending<'_>,
        peer: &Arc<Peer>,
    ) -> Call<W::Reply> {
        let (waiter, answer) = waiter(peer);
        let waiter = Some(waiter);
        W::ended(&mut ending.ended).push(Request { ticket, work, waiter, waited: false, is_withdrawn: false });
        Call::Waiting(Waiting { handle: self.clone(), ticket, answer: Some(answer), long: None })
    }
}

/// What has become of a request that was submitted.
struct Submitted<W: Work> {
    ticket: u64,
    /// The request itself, if it is done.
    own: Option<W>,
    /// What will tell of its answer, if it is not done.
    later: Option<Answer<W::Reply>>,
    /// Why it is done if it is not complete.
    failure: Option<Box<Error>>,
}

fn waiter<T>(peer: &Arc<Peer>) -> (Waiter<T>, Answer<T>) {
    let (reply, answer) = answer();
    (Waiter { reply, peer: peer.clone(), since: Instant::now() }, answer)
}

impl<T: Reply> Waiting<T> {
    /// Waits for the table, until `deadline` if there is one. After ten seconds, calls `notice` once with the reason,
    /// unless the program has been told of another call that still waits here; and once more when the request is served.
    ///
    /// # Errors
    /// [`Error::DeadlineExceeded`] if nothing could be done in time, or if a disk has not confirmed what was done;
    /// [`Error::Cancelled`] if the table was closed.
    pub async fn result(mut self, deadline: Option<Instant>, notice: impl Fn(&Notice)) -> Result<T> {
        let begun = Instant::now();
        let (mut notice_at, mut is_told) = (Some(begun + NOTICE_AFTER), false);
        let (handle, operation) = (self.handle.clone(), T::Work::OPERATION);
        let tell = |text| notice(&Notice { text, table: handle.name().to_owned(), operation, waited: begun.elapsed() });
        loop {
            let wake = [deadline, notice_at].into_iter().flatten().min();
            let Some(answer) = self.answer.as_mut() else { return Err(forgotten()) };
            let answered = match wake {
                None => Some(answer.await),
                Some(wake) => tokio::time::timeout_at(wake.into(), answer).await.ok(),
            };
            if let Some(answer) = answered {
                self.answer = None;
                if is_told && answer.is_ok() {
                    let (what, waited) = (T::Work::title(handle.name()), begun.elapsed().as_secs_f64());
                    tell(format!("{what} goes on after {waited:.1} s"));
                }
                return answer;
            }
            if deadline.is_some() && wake == deadline {
                return self.expire().await;
            }
            notice_at = None;
            self.long = self.begin_long_wait();
            if self.long.as_ref().is_none_or(|wait| wait.is_first) {
                is_told = true;
                tell(self.explain());
            }
        }
    }

    /// Counts the wait as long. `None` if the request was just served, or if its peer has not said its name.
    fn begin_long_wait(&self) -> Option<LongWait> {
        let peer = self.handle.upkeep(|state| {
            let request = T::Work::queue(&mut state.queues).get_mut(self.ticket)?;
            Some(request.waiter.as_ref()?.peer.clone())
        })?;
        self.handle.0.long_waits.begin::<T>(&peer)
    }

    /// Says what the request waits for.
    pub fn explain(&self) -> String {
        self.handle.upkeep(|state| {
            let is_for_disk = state.waits_for_disk();
            let TableState { table, queues, room, .. } = state;
            let (room, name) = (room.as_deref(), self.handle.name());
            match T::Work::queue(queues).get_mut(self.ticket) {
                Some(request) => request.work.explain(table, room, name),
                None if is_for_disk && T::Work::OPERATION == Operation::Insert => waits_for_disk(name),
                // It was just served.
                None => T::Work::default().explain(table, room, name),
            }
        })
    }

    async fn expire(mut self) -> Result<T> {
        let reason = self.explain();
        let handle = &self.handle;
        let (withdrawn, kept) = handle.confirmed(|state, _| state.queues.withdraw::<T::Work>(self.ticket));
        if let Some(request) = withdrawn {
            handle.count_ended(&request);
            self.answer = None;
            kept?;
            return request.work.expire(&reason);
        }
        if T::Work::OPERATION == Operation::Insert && handle.upkeep(|state| state.waits_for_disk()) {
            return Err(Error::DeadlineExceeded(waits_for_disk(handle.name())));
        }
        // The request was just served, and its answer is being sent. It stays in `self`, so that the samples return to
        // the table if this future is dropped.
        let Some(answer) = self.answer.as_mut() else { return Err(forgotten()) };
        let answer = answer.await;
        self.answer = None;
        answer
    }

    /// Polls for the answer. If it is not there, the task is woken when it is.
    pub fn poll_result(&mut self, context: &mut Context<'_>) -> Poll<Result<T>> {
        let Some(answer) = self.answer.as_mut() else { return Poll::Ready(Err(forgotten())) };
        let answer = std::task::ready!(Pin::new(answer).poll(context));
        self.answer = None;
        Poll::Ready(answer)
    }

    /// Removes the request from its queue. Returns its result if it was served already.
    pub async fn withdraw(mut self) -> Option<Result<T>> {
        let answer = self.answer.take()?;
        if self.undo() {
            return None;
        }
        Some(answer.await)
    }

    /// Removes the request from its queue and undoes its effects before later requests are served. Returns false if the
    /// request is not in the queue any more.
    fn undo(&self) -> bool {
        let withdrawn = self.handle.change(|state, ended| {
            let mut request = state.queues.withdraw::<T::Work>(self.ticket)?;
            request.work.undo(&mut state.table, &mut ended.removed);
            Some(request)
        });
        let Some(request) = withdrawn else { return false };
        self.handle.count_ended(&request);
        self.handle.take_back(request.work.reply());
        true
    }
}

impl<T: Reply> Drop for Waiting<T> {
    fn drop(&mut self) {
        let Some(answer) = self.answer.take() else { return };
        if self.undo() {
            return;
        }
        // The request was served. Either the answer is here, or its sender takes it back.
        if let Some(undelivered) = answer.close() {
            self.handle.take_back(undelivered);
        }
    }
}
