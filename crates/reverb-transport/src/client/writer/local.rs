//! The road to tables of the same process: items are inserted on the caller's own thread.

use super::outbox::is_ready;
use super::{Shared, State};
use crate::replay::Replay;
use crate::table_handle::Arrival;
use crate::write_queue::{Done, WriteQueue};
use reverb_core::writer::WriterItem;
use reverb_core::{Error, NewItem, Result};
use std::sync::Arc;
use std::task::{Context, Poll};

/// Items that are handed over at a time, at most.
const ITEMS_A_TURN: usize = 64;

/// An item that was handed over: its number, its table, and what the table gets.
type Sent = (u64, Arc<str>, Result<Arrival>);

/// The tables, and the items that wait for them.
#[derive(Debug)]
pub struct Local {
    replay: Arc<Replay>,
    queue: WriteQueue,
}

impl Local {
    pub fn new(replay: Arc<Replay>) -> Self {
        Self { replay, queue: WriteQueue::default() }
    }

    /// Whether the server was stopped.
    pub fn is_closed(&self) -> bool {
        self.replay.is_closed()
    }

    /// What the first waiting item waits for.
    pub fn explain(&self) -> Option<String> {
        self.queue.explain()
    }

    /// Inserts items from the front of the outbox while their chunks are closed.
    pub fn pump(&mut self, shared: &Shared) {
        let mut done = Done::new();
        let waiting_before = self.queue.len();
        loop {
            let sent = take_ready(&mut shared.state.lock());
            if sent.is_empty() {
                if !shared.needs_compression() {
                    break;
                }
                shared.compress();
            }
            self.insert(sent, &mut done);
        }
        if self.queue.len() > waiting_before {
            // The task polls what waits; it has not seen these yet.
            shared.wake.notify_one();
        }
        settle(shared, done);
    }

    /// Inserts items, as many at a time as are for one table.
    fn insert(&mut self, items: Vec<Sent>, done: &mut Done) {
        let mut items = items.into_iter().peekable();
        while let Some((sequence, name, item)) = items.next() {
            let table = match self.replay.table(&name) {
                Ok(table) => table,
                Err(error) => {
                    done.push((sequence, Err(error)));
                    continue;
                }
            };
            let mut run = Vec::with_capacity(items.len() + 1);
            let mut add = |sequence, item: Result<Arrival>| match item.and_then(|item| check_size(&self.replay, item)) {
                Ok(arrival) => run.push(arrival),
                Err(error) => done.push((sequence, Err(error))),
            };
            add(sequence, item);
            while let Some((sequence, _, item)) = items.next_if(|(_, other, _)| Arc::ptr_eq(other, &name)) {
                add(sequence, item);
            }
            self.queue.push_all(table, run, done);
        }
    }

    /// Goes on where tables allow it; the task is woken when they do.
    pub fn poll(&mut self, shared: &Shared, context: &mut Context<'_>) {
        let mut done = Done::new();
        while let Poll::Ready(()) = self.queue.poll(context, &mut done) {}
        settle(shared, done);
    }

    /// Takes back what waits: the server was stopped.
    pub async fn withdraw(self, shared: &Shared) {
        let mut done = Done::new();
        self.queue.withdraw(&mut done).await;
        settle(shared, done);
    }
}

/// Notes what became of items.
pub fn settle(shared: &Shared, done: Done) {
    if done.is_empty() {
        return;
    }
    let mut finished = Vec::with_capacity(done.len());
    {
        let mut state = shared.state.lock();
        for (sequence, result) in done {
            finished.push(match result {
                Ok(()) => state.outbox.confirm(sequence),
                // The server was stopped. The item stays, and goes to the next one.
                Err(Error::Cancelled(_)) => None,
                Err(error) => state.outbox.refuse(sequence, error),
            });
        }
        state.reason.clear();
    }
    shared.tell();
}

/// Takes what can go from the front of the outbox.
fn take_ready(state: &mut State) -> Vec<Sent> {
    let mut sent = Vec::new();
    while sent.len() < ITEMS_A_TURN && !state.closed {
        let is_next = |item: &&WriterItem| is_ready(item) && !item.chunks().any(|chunk| chunk.needs_compression());
        if state.outbox.front().filter(is_next).is_none() {
            break;
        }
        sent.extend(state.outbox.send_front(|sequence, item| (sequence, item.table.clone(), arrival(sequence, item))));
    }
    sent
}

fn check_size(replay: &Replay, arrival: Arrival) -> Result<Arrival> {
    let mut largest = 0;
    arrival.item.trajectory.for_each_use(|chunk, _| largest = largest.max(chunk.size_bytes()));
    replay.check_size(largest as u64)?;
    Ok(arrival)
}

fn arrival(sequence: u64, item: &WriterItem) -> Result<Arrival> {
    let &WriterItem { key, priority, is_validated, .. } = item;
    let item = NewItem { key, priority, times_sampled: 0, trajectory: item.trajectory()? };
    Ok(Arrival { sequence, item, is_validated })
}
