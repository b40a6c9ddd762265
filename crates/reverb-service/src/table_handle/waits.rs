//! The requests that wait at a table, as its watchers see them.

use super::handle::TableHandle;
use super::requests::{Operation, Request, Requests, WaitKind, Work};
use super::state::TableState;
use crate::peer::Peer;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A request that waits at a table.
#[derive(Debug, Clone)]
pub struct WaitingRequest {
    /// Whether it is an insert or a draw.
    pub operation: Operation,
    /// Who waits for it.
    pub kind: WaitKind,
    /// Who makes it.
    pub peer: Arc<Peer>,
    /// Time since the request was made.
    pub waited: Duration,
    /// What it waits for, as a sentence.
    pub reason: String,
}

/// The first requests of a queue as they were under the lock. Each has its place in the queue.
struct Seen {
    operation: Operation,
    requests: Vec<(usize, WaitKind, Arc<Peer>, Instant)>,
    /// What the first request of the queue waits for.
    reason: String,
    /// Whether the others wait for requests before them to be served.
    in_order: bool,
}

impl Seen {
    fn new<W: Work>(queue: &Requests<W>, limit: usize, in_order: bool, state: &TableState) -> Self {
        let mut streams = HashSet::new();
        let is_first_of_stream = |request: &&Request<W>| {
            let stream = request.work.turn().and_then(|turn| turn.stream);
            stream.is_none_or(|stream| streams.insert(stream))
        };
        let waiting = queue.iter().filter(is_first_of_stream).enumerate().filter_map(|(place, request)| {
            let waiter = request.waiter.as_ref()?;
            Some((place, request.work.kind(), waiter.peer.clone(), waiter.since))
        });
        let requests: Vec<_> = waiting.take(limit).collect();
        let reason =
            queue.front().map_or_else(String::new, |first| first.work.reason(&state.table, state.room.as_deref()));
        Self { operation: W::OPERATION, requests, reason, in_order }
    }

    fn into_waits(self, table: &str, now: Instant) -> impl Iterator<Item = WaitingRequest> {
        let Self { operation, requests, reason, in_order } = self;
        let sentence = move |place| {
            let name = operation.name();
            let request = match operation {
                Operation::Insert => format!("insert into table `{table}`"),
                Operation::Sample => format!("sample of table `{table}`"),
            };
            match place {
                1.. if in_order => {
                    let s = if place == 1 { "" } else { "s" };
                    format!("{request} waits behind {place} other {name}{s}: {reason}")
                }
                _ => format!("{request} waits: {reason}"),
            }
        };
        requests.into_iter().map(move |(place, kind, peer, since)| WaitingRequest {
            operation,
            kind,
            peer,
            waited: now.saturating_duration_since(since),
            reason: sentence(place),
        })
    }
}

impl TableHandle {
    /// Returns the requests that have waited longest: at most `limit` inserts, `limit` draws, and `limit` waits for a
    /// newer item or for more items of a cluster.
    pub fn waits(&self, limit: usize) -> Vec<WaitingRequest> {
        let [inserts, samples] = self.upkeep(|state| {
            let queues = &state.queues;
            // Draws that do not affect one another take turns. All of them wait for the same.
            let in_order = state.table.config().counts_samples();
            [Seen::new(&queues.inserts, limit, true, state), Seen::new(&queues.samples, limit, in_order, state)]
        });
        let now = Instant::now();
        let inserts = inserts.into_waits(self.name(), now);
        let mut waits: Vec<_> = inserts.chain(samples.into_waits(self.name(), now)).collect();
        waits.extend(self.watchers().waiting(limit).into_iter().map(|(kind, peer, since)| WaitingRequest {
            operation: Operation::Sample,
            kind,
            peer,
            waited: now.saturating_duration_since(since),
            reason: match kind {
                WaitKind::Newer => {
                    format!("`wait_newer` of table `{}` waits: no other item than the one seen has come", self.name())
                }
                WaitKind::Call | WaitKind::Ahead => {
                    format!("sample of table `{}` waits: all shards of the cluster together lack items", self.name())
                }
            },
        }));
        waits.sort_by_key(|wait| std::cmp::Reverse(wait.waited));
        waits
    }
}
