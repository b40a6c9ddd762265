//! A call that waits, and how it ends.

use super::TableHandle;
use super::queue::{InsertWork, SampleWork, Work};
use reverb_core::{Drawn, Error, Result};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A wait this long is reported, once.
const LONG_WAIT: Duration = Duration::from_secs(10);

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

/// A request in its table's queue. Dropping it withdraws the request; what it had drawn goes back.
#[derive(Debug)]
pub struct Waiting<T: Reply> {
    pub(super) handle: TableHandle,
    pub(super) ticket: u64,
    /// `None` once the answer was taken.
    pub(super) receiver: Option<oneshot::Receiver<Result<T>>>,
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
            if deadline.is_some() && wake == deadline {
                return self.expire().await;
            }
            notice_at = None;
            notice(&self.explain());
        }
    }

    /// What it waits for.
    pub fn explain(&self) -> String {
        self.handle.with_table(|table| T::Work::explain(table, self.handle.name()))
    }

    async fn expire(mut self) -> Result<T> {
        let reason = self.explain();
        if let Some(work) = self.handle.withdraw::<T::Work>(self.ticket) {
            self.receiver = None;
            return work.expire(&reason);
        }
        // Served in this moment; the answer is being sent. The receiver stays in its place meanwhile: if this future is
        // dropped, the answer goes back.
        let Some(receiver) = self.receiver.as_mut() else { return Err(forgotten()) };
        let answer = receiver.await;
        self.receiver = None;
        answer.unwrap_or_else(|_| Err(forgotten()))
    }
}

impl<T: Reply> Waiting<T> {
    /// Looks whether the answer has come, and asks to be woken when it does.
    pub fn poll_result(&mut self, context: &mut Context<'_>) -> Poll<Result<T>> {
        let Some(receiver) = self.receiver.as_mut() else { return Poll::Ready(Err(forgotten())) };
        let answer = std::task::ready!(Pin::new(receiver).poll(context));
        self.receiver = None;
        Poll::Ready(answer.unwrap_or_else(|_| Err(forgotten())))
    }

    /// Takes the request out of its queue. If it was served already: its result.
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
