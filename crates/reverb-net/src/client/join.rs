//! Awaits several calls at the same time.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// A call to one of several servers.
pub type Asking<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Awaits several futures at the same time, until `limit` at the latest. `None` for those that have not ended by then.
pub async fn join<T>(mut futures: Vec<Asking<'_, T>>, limit: Option<Instant>) -> Vec<Option<T>> {
    let mut answers: Vec<_> = futures.iter().map(|_| None).collect();
    let all = std::future::poll_fn(|context| {
        for (future, answer) in futures.iter_mut().zip(&mut answers) {
            if answer.is_none()
                && let Poll::Ready(result) = future.as_mut().poll(context)
            {
                *answer = Some(result);
            }
        }
        if answers.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    });
    match limit {
        Some(limit) => drop(tokio::time::timeout_at(limit.into(), all).await),
        None => all.await,
    }
    answers
}

/// Whether a future ends without a wait.
pub fn ends_now<T>(future: impl Future<Output = T>) -> bool {
    std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}
