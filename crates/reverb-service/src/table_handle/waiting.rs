//! A call that waits for a table, until it is served, expires or is dropped.

use super::handle::TableHandle;
use super::notices::LongWait;
use super::queue::{Reply, Work};
use crate::notice::Notice;
use reverb_core::{Error, Result};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

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
    pub(super) handle: TableHandle,
    pub(super) ticket: u64,
    /// `None` once the answer was taken.
    pub(super) receiver: Option<oneshot::Receiver<Result<T>>>,
    /// Set once the wait is long enough to be reported.
    pub(super) long: Option<LongWait>,
}

impl<T: Reply> Waiting<T> {
    /// Waits for the table, until `deadline` if there is one. After ten seconds, calls `notice` once with the reason,
    /// unless the program has been told of another call that still waits here.
    ///
    /// # Errors
    /// [`Error::DeadlineExceeded`] if nothing could be done in time, [`Error::Cancelled`] if the table was closed.
    pub async fn result(self, deadline: Option<Instant>, notice: impl Fn(&str)) -> Result<T> {
        self.reported_result(deadline, |wait| notice(&wait.text)).await
    }

    /// As [`Waiting::result`], with more than the text of the notice.
    ///
    /// # Errors
    /// Those of [`Waiting::result`].
    pub async fn reported_result(mut self, deadline: Option<Instant>, notice: impl Fn(&Notice)) -> Result<T> {
        let begun = Instant::now();
        let mut notice_at = Some(begun + NOTICE_AFTER);
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
            if deadline.is_some() && wake == deadline {
                return self.expire().await;
            }
            notice_at = None;
            self.long = self.begin_long_wait();
            if self.long.as_ref().is_none_or(|wait| wait.is_first) {
                let (text, operation) = (self.explain(), T::Work::OPERATION);
                notice(&Notice { text, table: self.handle.name().into(), operation, waited: begun.elapsed() });
            }
        }
    }

    /// Counts the wait as long. `None` if the request was just served, or if its peer has not said its name.
    fn begin_long_wait(&self) -> Option<LongWait> {
        let peer = {
            let mut state = self.handle.0.state.lock();
            T::Work::queue(&mut state).get_mut(self.ticket)?.waiter.as_ref()?.peer.clone()
        };
        self.handle.0.long_waits.begin::<T>(&peer)
    }

    /// Says what the request waits for.
    pub fn explain(&self) -> String {
        self.handle.with_table(|table| T::Work::explain(table, self.handle.name()))
    }

    async fn expire(mut self) -> Result<T> {
        let reason = self.explain();
        if let Some(work) = self.handle.withdraw::<T::Work>(self.ticket) {
            self.receiver = None;
            return work.expire(&reason);
        }
        // The request was just served, and its answer is being sent. The receiver stays in `self`, so that the samples
        // return to the table if this future is dropped.
        let Some(receiver) = self.receiver.as_mut() else { return Err(forgotten()) };
        let answer = receiver.await;
        self.receiver = None;
        answer.unwrap_or_else(|_| Err(forgotten()))
    }
}

impl<T: Reply> Waiting<T> {
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
        if self.handle.withdraw_and_undo::<T::Work>(self.ticket) {
            return None;
        }
        Some(receiver.await.unwrap_or_else(|_| Err(forgotten())))
    }
}

impl<T: Reply> Drop for Waiting<T> {
    fn drop(&mut self) {
        let Some(mut receiver) = self.receiver.take() else { return };
        if self.handle.withdraw_and_undo::<T::Work>(self.ticket) {
            return;
        }
        // The request was served. Either the answer is here, or the sender finds the receiver closed and takes it back.
        receiver.close();
        if let Ok(Ok(undelivered)) = receiver.try_recv() {
            self.handle.take_back(undelivered);
        }
    }
}

fn forgotten() -> Error {
    Error::Internal("a waiting request was dropped without an answer".into())
}
