//! Awaits several calls at the same time.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// A call to one of several servers.
pub type Asking<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Awaits several futures at the same time.
pub async fn join<T>(futures: Vec<Asking<'_, T>>) -> Vec<T> {
    let mut answers = Vec::new();
    poll_all(futures, &mut answers).await;
    answers.into_iter().flatten().collect()
}

/// As [`join`], until `limit`. `None` for those that have not ended by then.
pub async fn join_until<T>(futures: Vec<Asking<'_, T>>, limit: Instant) -> Vec<Option<T>> {
    let mut answers = Vec::new();
    let _late = tokio::time::timeout_at(limit.into(), poll_all(futures, &mut answers)).await;
    answers
}

/// Ends when all have. Each that ends fills in its place among the answers.
fn poll_all<'a, T>(
    mut futures: Vec<Asking<'a, T>>,
    answers: &'a mut Vec<Option<T>>,
) -> impl Future<Output = ()> + use<'a, T> {
    answers.resize_with(futures.len(), || None);
    std::future::poll_fn(move |context| {
        for (future, answer) in futures.iter_mut().zip(&mut *answers) {
            if answer.is_none()
                && let Poll::Ready(result) = future.as_mut().poll(context)
            {
                *answer = Some(result);
            }
        }
        if answers.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
}

/// Whether a future ends without a wait.
pub fn ends_now<T>(future: impl Future<Output = T>) -> bool {
    std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}
