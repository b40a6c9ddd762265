//! The road of a writer to tables of the same process. The calling thread inserts the items.

use reverb_core::writer::WriterItem;
use reverb_core::{NewItem, NewPriority, Result};
use reverb_service::Arrival;
use reverb_service::write_queue::{Done, WriteQueue};
use reverb_service::{Inserter, Replay};
use std::sync::Arc;
use std::task::Context;

/// An item that was handed over: its number, the name of its table, and the item for the table.
pub type Sent = (u64, Arc<str>, Result<Arrival>);

/// The tables of this process, and the items that wait for them.
#[derive(Debug)]
pub struct Local {
    replay: Arc<Replay>,
    queue: WriteQueue,
}

impl Local {
    /// Makes the road of a writer of a client, which has this number.
    pub fn new(replay: Arc<Replay>, client: u64) -> Self {
        let queue = WriteQueue::new(Inserter { peer: replay.this_process(), client }, None);
        Self { replay, queue }
    }

    /// Whether the server was stopped.
    pub fn is_closed(&self) -> bool {
        self.replay.is_closed()
    }

    /// Whether an insert would be over at once; see [`Replay::is_quiet`].
    pub fn is_quiet(&self) -> bool {
        self.replay.is_quiet()
    }

    /// Returns the number of items that wait for their tables.
    pub fn num_waiting(&self) -> usize {
        self.queue.num_waiting()
    }

    /// Says what the first waiting item waits for.
    pub fn explain(&self) -> Option<String> {
        self.queue.explain()
    }

    /// Inserts items. Consecutive items for the same table are inserted together.
    pub fn insert(&mut self, items: Vec<Sent>, done: &mut Done) {
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

    /// Inserts the waiting items that tables allow now. The task is woken when they allow more.
    pub fn poll(&mut self, context: &mut Context<'_>, done: &mut Done) {
        while self.queue.poll(context, done).is_ready() {}
    }

    /// Takes the waiting items back after the server was stopped. Returns the items that were inserted nevertheless.
    pub async fn withdraw(self) -> Done {
        let mut done = Done::new();
        self.queue.withdraw(&mut done).await;
        done
    }
}

/// Checks each chunk alone, as the network road does.
fn check_size(replay: &Replay, arrival: Arrival) -> Result<Arrival> {
    let mut largest = 0;
    arrival.item.trajectory.for_each_use(|chunk, _| largest = largest.max(chunk.decoded_bytes()));
    replay.check_size(largest as u64)?;
    Ok(arrival)
}

/// Converts an item of a writer to an item for a table.
pub fn arrival(sequence: u64, item: &WriterItem) -> Result<Arrival> {
    let &WriterItem { key, priority: NewPriority { value: priority, takes_largest }, is_validated, .. } = item;
    let item = NewItem { key, priority, takes_largest, others: None, times_sampled: 0, trajectory: item.trajectory()? };
    Ok(Arrival { sequence, item, is_validated })
}
