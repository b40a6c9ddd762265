//! Calls: requests that enter a queue, and are served at once, or wait until they are served, expire or are dropped.

use super::handle::{Ending, TableHandle, closed, outcome};
use super::long_waits::LongWait;
use super::requests::{InsertWork, Operation, Reply, Request, TIMED_OUT, Work};
use super::state::TableState;
use super::ticket_queue::Waiter;
use crate::notice::Notice;
use crate::peer::Peer;
use reverb_core::words::counted;
use reverb_core::{Error, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

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
    receiver: Option<Receiver<T>>,
    /// Whether the request is done, and its effects are being committed.
    is_done: bool,
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
        let (submitted, mut ending) = self.begin_turn(|turn| {
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
            let (mut own, mut receiver, mut failure) = (None::<W>, None, None);
            turn.serve(|state, ended| {
                if own.is_none() {
                    own = ended.take_own::<W>(ticket);
                    failure = ended.failure.clone();
                }
                if own.is_none() && receiver.is_some() {
                    // Another thread may have served it, and answers by the channel.
                    return W::queue(&mut state.queues).get_mut(ticket).is_none();
                }
                // Most requests are done before the lock is released. The others need a channel.
                if own.is_none() {
                    let (reply, waiting) = oneshot::channel();
                    state.queues.wait::<W>(ticket, Waiter { reply, peer: peer.clone(), since: Instant::now() });
                    receiver = Some(waiting);
                }
                own.is_some()
            });
            if own.is_none()
                && let Some(request) = W::queue(&mut turn.state.queues).get_mut(ticket)
            {
                request.waited = true;
            }
            Ok((own, ticket, receiver, failure))
        });
        if ending.keeps_a_task_waiting() {
            return self.submitted_for_later(submitted, &mut ending, peer);
        }
        let kept = ending.finish();
        match submitted {
            Err(error) => Call::Done(Err(error)),
            Ok((Some(work), _, _, failure)) => {
                work.count(&peer.traffic, self.place());
                Call::Done(outcome(work, failure.as_deref(), &kept))
            }
            Ok((None, ticket, receiver, _)) => Call::Waiting(self.waiting(ticket, receiver, false)),
        }
    }

    /// The end of [`TableHandle::submit`] for a task, which does not wait for the disk.
    #[inline(never)]
    fn submitted_for_later<W: Work>(
        &self,
        submitted: Result<Submitted<W>>,
        ending: &mut Ending<'_>,
        peer: &Arc<Peer>,
    ) -> Call<W::Reply> {
        let call = match submitted {
            Err(error) => Call::Done(Err(error)),
            Ok((Some(work), ticket, ..)) if W::OPERATION == Operation::Insert => {
                let (reply, receiver) = oneshot::channel();
                let waiter = Some(Waiter { reply, peer: peer.clone(), since: Instant::now() });
                W::ended(&mut ending.ended).push(Request { ticket, work, waiter, waited: false, is_withdrawn: false });
                Call::Waiting(self.waiting(ticket, Some(receiver), true))
            }
            // A draw confirms nothing.
            Ok((Some(work), _, _, failure)) => {
                work.count(&peer.traffic, self.place());
                Call::Done(outcome(work, failure.as_deref(), &Ok(())))
            }
            Ok((None, ticket, receiver, _)) => Call::Waiting(self.waiting(ticket, receiver, false)),
        };
        ending.finish_later(drop);
        call
    }

    fn waiting<T: Reply>(&self, ticket: u64, receiver: Option<Receiver<T>>, is_done: bool) -> Waiting<T> {
        Waiting { handle: self.clone(), ticket, receiver, is_done, long: None }
    }
}

type Receiver<T> = oneshot::Receiver<Result<T>>;

/// A request that was submitted: it itself if it is done, its ticket, what will tell of its answer if it is not, and why
/// it is done if it is not complete.
type Submitted<W> = (Option<W>, u64, Option<Receiver<<W as Work>::Reply>>, Option<Box<Error>>);

impl<T: Reply> Waiting<T> {
    /// Waits for the table, until `deadline` if there is one. After ten seconds, calls `notice` once with the reason,
    /// unless the program has been told of another call that still waits here; and once more when the request is served.
    ///
    /// # Errors
    /// [`Error::DeadlineExceeded`] if nothing could be done in time, [`Error::Cancelled`] if the table was closed.
    pub async fn result(mut self, deadline: Option<Instant>, notice: impl Fn(&Notice)) -> Result<T> {
        let begun = Instant::now();
        let (mut notice_at, mut is_told) = (Some(begun + NOTICE_AFTER), false);
        let (handle, operation) = (self.handle.clone(), T::Work::OPERATION);
        let tell = |text| notice(&Notice { text, table: handle.name().to_owned(), operation, waited: begun.elapsed() });
        loop {
            let wake = [deadline, notice_at].into_iter().flatten().min();
            let Some(receiver) = self.receiver.as_mut() else { return Err(forgotten()) };
            let answer = match wake {
                None => Some(receiver.await),
                Some(wake) => tokio::time::timeout_at(wake.into(), receiver).await.ok(),
            };
            if let Some(answer) = answer {
                self.receiver = None;
                if is_told && matches!(answer, Ok(Ok(_))) {
                    let (what, waited) = (T::Work::title(handle.name()), begun.elapsed().as_secs_f64());
                    tell(format!("{what} goes on after {waited:.1} s"));
                }
                return answer.unwrap_or_else(|_| Err(forgotten()));
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
        if self.is_done {
            return waits_for_disk(&self.handle);
        }
        self.handle.upkeep(|state| {
            let TableState { table, queues, room, .. } = state;
            let room = room.as_deref();
            match T::Work::queue(queues).get_mut(self.ticket) {
                Some(request) => request.work.explain(table, room, self.handle.name()),
                // It was just served.
                None => T::Work::default().explain(table, room, self.handle.name()),
            }
        })
    }

    async fn expire(mut self) -> Result<T> {
        let reason = self.explain();
        if self.is_done {
            return Err(Error::DeadlineExceeded(format!("{reason}\n{TIMED_OUT}")));
        }
        let handle = &self.handle;
        let (withdrawn, kept) = handle.confirmed(|state, _| state.queues.withdraw::<T::Work>(self.ticket));
        if let Some(request) = withdrawn {
            handle.count_ended(&request);
            self.receiver = None;
            kept?;
            return request.work.expire(&reason);
        }
        // The request was just served, and its answer is being sent. The receiver stays in `self`, so that the samples
        // return to the table if this future is dropped.
        let Some(receiver) = self.receiver.as_mut() else { return Err(forgotten()) };
        let answer = receiver.await;
        self.receiver = None;
        answer.unwrap_or_else(|_| Err(forgotten()))
    }

    /// Polls for the answer. If it is not there, the task is woken when it is.
    pub fn poll_result(&mut self, context: &mut Context<'_>) -> Poll<Result<T>> {
        let Some(receiver) = self.receiver.as_mut() else { return Poll::Ready(Err(forgotten())) };
        let answer = std::task::ready!(Pin::new(receiver).poll(context));
        self.receiver = None;
        Poll::Ready(answer.unwrap_or_else(|_| Err(forgotten())))
    }

    /// Removes the request from its queue. Returns its result if it was served already.
    pub async fn withdraw(mut self) -> Option<Result<T>> {
        let receiver = self.receiver.take()?;
        if self.undo() {
            return None;
        }
        Some(receiver.await.unwrap_or_else(|_| Err(forgotten())))
    }

    /// Removes the request from its queue and undoes its effects before later requests are served. Returns false if the
    /// request is not in the queue any more.
    fn undo(&self) -> bool {
        if self.is_done {
            return false;
        }
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
        let Some(mut receiver) = self.receiver.take() else { return };
        if self.undo() {
            return;
        }
        // The request was served. Either the answer is here, or the sender finds the receiver closed and takes it back.
        receiver.close();
        if let Ok(Ok(undelivered)) = receiver.try_recv() {
            self.handle.take_back(undelivered);
        }
    }
}

/// Says what an insert waits for whose items are in the table.
pub fn waits_for_disk(handle: &TableHandle) -> String {
    format!(
        "{} waits: its items are in the table, and the disk has not confirmed the log yet",
        InsertWork::title(handle.name())
    )
}

fn forgotten() -> Error {
    Error::Internal("a waiting request was dropped without an answer".into())
}
