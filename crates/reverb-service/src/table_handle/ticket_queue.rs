//! Waiting requests in the order of their tickets.

use crate::peer::Peer;
use reverb_core::{Error, Result};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::sync::oneshot;

/// Number of places that may be empty before their number is compared to that of the requests.
const FEW_PLACES: usize = 64;

/// A request in a queue.
#[derive(Debug)]
pub struct Request<W, T> {
    pub ticket: u64,
    pub work: W,
    /// Who waits for the answer. `None` while the caller is still in the call that made the request.
    pub waiter: Option<Waiter<T>>,
    /// Whether it had to wait for the rate limiter, or behind a request that had to.
    pub waited: bool,
    /// Whether this is an empty place: the request was withdrawn.
    pub is_withdrawn: bool,
}

/// A peer that waits for a request, and the channel of its answer.
#[derive(Debug)]
pub struct Waiter<T> {
    pub reply: oneshot::Sender<Result<T>>,
    pub peer: Arc<Peer>,
    /// Time at which the peer began to wait.
    pub since: Instant,
}

/// What will tell of the answer to a request, or of the result of a commit.
#[derive(Debug)]
pub struct Answer<T>(oneshot::Receiver<Result<T>>);

/// Returns what sends an answer, and what will tell of it.
pub fn answer<T>() -> (oneshot::Sender<Result<T>>, Answer<T>) {
    let (reply, receiver) = oneshot::channel();
    (reply, Answer(receiver))
}

impl<T> Future for Answer<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        Pin::new(&mut self.0).poll(context).map(|answer| answer.unwrap_or_else(|_| Err(forgotten())))
    }
}

impl<T> Answer<T> {
    /// Returns what the answer has brought, if it is there. Otherwise the sender finds that nobody takes it.
    pub fn close(mut self) -> Option<T> {
        self.0.close();
        self.0.try_recv().ok()?.ok()
    }
}

/// The error for an answer that never comes.
pub fn forgotten() -> Error {
    Error::Internal("a waiting request was dropped without an answer".into())
}

/// Requests in ascending order of their tickets. A request that is withdrawn is found by a binary search and leaves an
/// empty place, so that no other request moves.
#[derive(Debug)]
pub struct TicketQueue<W, T> {
    /// The first and the last place are not empty, and at most half of many places are.
    places: VecDeque<Request<W, T>>,
    num_empty: usize,
}

impl<W, T> Default for TicketQueue<W, T> {
    fn default() -> Self {
        Self { places: VecDeque::new(), num_empty: 0 }
    }
}

impl<W: Default, T> TicketQueue<W, T> {
    /// Number of requests.
    #[inline]
    pub fn len(&self) -> usize {
        self.places.len() - self.num_empty
    }

    /// Whether no request waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Adds a request, whose ticket is larger than all before it.
    #[inline]
    pub fn push_back(&mut self, request: Request<W, T>) {
        debug_assert!(self.places.back().is_none_or(|last| last.ticket < request.ticket), "tickets ascend");
        self.places.push_back(request);
    }

    /// The first request.
    #[inline]
    pub fn front(&self) -> Option<&Request<W, T>> {
        self.places.front()
    }

    /// The first request, for changes.
    #[inline]
    pub fn front_mut(&mut self) -> Option<&mut Request<W, T>> {
        self.places.front_mut()
    }

    /// The first request with a larger ticket; the first of all if there is none.
    #[inline]
    pub fn after_mut(&mut self, ticket: u64) -> Option<&mut Request<W, T>> {
        let index = if ticket == 0 { 0 } else { self.index_after(ticket) };
        self.places.get_mut(index)
    }

    fn index_after(&self, ticket: u64) -> usize {
        let from = self.places.partition_point(|place| place.ticket <= ticket);
        (from..self.places.len()).find(|&index| !self.places[index].is_withdrawn).unwrap_or(0)
    }

    /// The request with this ticket, for changes.
    pub fn get_mut(&mut self, ticket: u64) -> Option<&mut Request<W, T>> {
        let index = self.find(ticket)?;
        self.places.get_mut(index)
    }

    /// Removes the first request.
    #[inline]
    pub fn pop_front(&mut self) -> Option<Request<W, T>> {
        let request = self.places.pop_front();
        if self.num_empty > 0 {
            self.drop_empty_places();
        }
        request
    }

    /// Removes the request with this ticket.
    #[inline]
    pub fn remove(&mut self, ticket: u64) -> Option<Request<W, T>> {
        if self.front().is_some_and(|first| first.ticket == ticket) {
            return self.pop_front();
        }
        self.withdraw(ticket)
    }

    fn withdraw(&mut self, ticket: u64) -> Option<Request<W, T>> {
        let index = self.find(ticket)?;
        let empty = Request { ticket, work: W::default(), waiter: None, waited: false, is_withdrawn: true };
        let request = std::mem::replace(&mut self.places[index], empty);
        self.num_empty += 1;
        self.drop_empty_places();
        Some(request)
    }

    /// The requests in the order of their tickets.
    pub fn iter(&self) -> impl Iterator<Item = &Request<W, T>> {
        self.places.iter().filter(|place| !place.is_withdrawn)
    }

    /// The requests in the order of their tickets.
    pub fn into_requests(self) -> impl DoubleEndedIterator<Item = Request<W, T>> {
        self.places.into_iter().filter(|place| !place.is_withdrawn)
    }

    fn find(&self, ticket: u64) -> Option<usize> {
        let index = self.places.binary_search_by_key(&ticket, |place| place.ticket).ok()?;
        (!self.places[index].is_withdrawn).then_some(index)
    }

    fn drop_empty_places(&mut self) {
        while self.places.front().is_some_and(|place| place.is_withdrawn) {
            self.places.pop_front();
            self.num_empty -= 1;
        }
        while self.places.back().is_some_and(|place| place.is_withdrawn) {
            self.places.pop_back();
            self.num_empty -= 1;
        }
        if self.num_empty > self.len() + FEW_PLACES {
            self.places.retain(|place| !place.is_withdrawn);
            self.num_empty = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng, rngs::StdRng};
    use std::collections::BTreeSet;

    fn request(ticket: u64) -> Request<(), ()> {
        Request { ticket, work: (), waiter: None, waited: false, is_withdrawn: false }
    }

    #[test]
    fn a_queue_keeps_what_an_ordered_set_keeps_without_many_empty_places() {
        let mut rng = StdRng::seed_from_u64(1);
        let (mut queue, mut set) = (TicketQueue::default(), BTreeSet::new());
        for ticket in 1..20_000 {
            // Grows, then shrinks, and so on.
            let grows = ticket % 4000 < 2000;
            if rng.random_bool(if grows { 0.8 } else { 0.2 }) {
                queue.push_back(request(ticket));
                set.insert(ticket);
            }
            let other = rng.random_range(0..=ticket);
            assert_eq!(queue.get_mut(other).map(|request| request.ticket), set.get(&other).copied());
            let after = set.range(other + 1..).next().or(set.first());
            assert_eq!(queue.after_mut(other).map(|request| request.ticket), after.copied());
            let removed = match rng.random_range(0..4) {
                0 => (queue.pop_front().map(|request| request.ticket), set.pop_first()),
                1 => (queue.remove(other).map(|request| request.ticket), set.take(&other)),
                // Mostly the middle leaves.
                _ => match after.copied() {
                    Some(after) => (queue.remove(after).map(|request| request.ticket), set.take(&after)),
                    None => (None, None),
                },
            };
            assert_eq!(removed.0, removed.1);
            assert_eq!(queue.front().map(|request| request.ticket), set.first().copied());
            assert_eq!((queue.len(), queue.is_empty()), (set.len(), set.is_empty()));
            assert!(queue.places.len() <= 2 * queue.len() + FEW_PLACES);
        }
        queue.push_back(request(20_000));
        set.insert(20_000);
        assert!(queue.into_requests().map(|request| request.ticket).eq(set));
    }
}
