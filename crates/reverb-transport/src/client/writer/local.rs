//! The road to tables of the same process: items are inserted on the caller's own thread.

use super::Shared;
use super::outbox::is_ready;
use crate::replay::Replay;
use crate::write_queue::{Done, WriteQueue};
use reverb_core::writer::WriterItem;
use reverb_core::{Error, NewItem, Result};
use std::sync::Arc;
use std::task::{Context, Poll};

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
            let sent = {
                let mut state = shared.state.lock();
                let Some(front) = state.outbox.front().filter(|item| !state.closed && is_ready(item)) else { break };
                if front.chunks().any(|chunk| chunk.needs_compression()) {
                    drop(state);
                    shared.compress();
                    continue;
                }
                state
                    .outbox
                    .send_front(|sequence, item| (sequence, item.table.clone(), item.is_validated, new_item(item)))
            };
            let Some((sequence, table, is_validated, item)) = sent else { break };
            let item = item.and_then(|item| {
                let size = item.trajectory.chunks().iter().map(|chunk| chunk.size_bytes() as u64).max();
                self.replay.check_size(size.unwrap_or(0))?;
                Ok((self.replay.table(&table)?, item))
            });
            match item {
                Ok((table, item)) => self.queue.push(sequence, table, item, is_validated, &mut done),
                Err(error) => done.push((sequence, Err(error))),
            }
        }
        if self.queue.len() > waiting_before {
            // The task polls what waits; it has not seen these yet.
            shared.wake.notify_one();
        }
        settle(shared, done);
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

fn new_item(item: &WriterItem) -> Result<NewItem> {
    Ok(NewItem { key: item.key, priority: item.priority, times_sampled: 0, trajectory: item.trajectory()? })
}
