//! The queue of items of one writer, in order for each table and independent between tables.
//!
//! At most one item of a writer waits in a table's own queue, so that many writers take turns.

use crate::peer::Peer;
use crate::table_handle::{Arrival, Call, TableHandle, Waiting, Writer};
use crate::write_ledger::Ledger;
use reverb_core::Result;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Sequence numbers and results of items that are done.
pub type Done = Vec<(u64, Result<()>)>;

/// The items of one writer that are not in their tables yet.
#[derive(Debug)]
pub struct WriteQueue {
    writer: Writer,
    queues: Vec<TableQueue>,
    len: usize,
}

#[derive(Debug)]
struct TableQueue {
    table: TableHandle,
    waiting: Option<(u64, Waiting<()>)>,
    behind: VecDeque<Arrival>,
}

impl WriteQueue {
    /// Creates the queue of a writer. Its items are entered in its ledger, if it has one, as they are inserted.
    pub fn new(peer: Arc<Peer>, ledger: Option<Arc<Ledger>>) -> Self {
        Self { writer: Writer { peer, ledger }, queues: Vec::new(), len: 0 }
    }

    /// Returns the number of items that are not done.
    #[inline]
    pub fn num_waiting(&self) -> usize {
        self.len
    }

    /// Inserts items into one table, or queues them. Appends those that are done to `done`.
    pub fn push_all(&mut self, table: &TableHandle, items: Vec<Arrival>, done: &mut Done) {
        let mut items = items.into_iter();
        if self.queue(table).waiting.is_none() {
            // One lock for all items that need not wait.
            table.insert_at_once(&mut items, &self.writer, |sequence| done.push((sequence, Ok(()))));
        }
        items.for_each(|item| self.push(table, item, done));
    }

    fn queue(&mut self, table: &TableHandle) -> &mut TableQueue {
        match self.queues.iter().position(|queue| queue.table.name() == table.name()) {
            Some(index) => &mut self.queues[index],
            None => {
                self.queues.push(TableQueue { table: table.clone(), waiting: None, behind: VecDeque::new() });
                self.queues.last_mut().expect("just added")
            }
        }
    }

    /// Inserts an item, or queues it. Appends it to `done` if it is inserted or refused.
    pub fn push(&mut self, table: &TableHandle, arrival: Arrival, done: &mut Done) {
        let sequence = arrival.sequence;
        if self.queue(table).waiting.is_some() {
            match table.check_arrival(&arrival) {
                Err(error) => return done.push((sequence, Err(error))),
                Ok(()) => self.queue(table).behind.push_back(arrival),
            }
        } else {
            match table.insert_arrival(arrival, &self.writer, false) {
                Call::Done(result) => return done.push((sequence, result)),
                Call::Waiting(waiting) => self.queue(table).waiting = Some((sequence, waiting)),
            }
        }
        self.len += 1;
    }

    /// Inserts queued items as far as the tables allow. Ready if an item is done. Otherwise the task is woken when a
    /// table may have inserted one.
    pub fn poll(&mut self, context: &mut Context<'_>, done: &mut Done) -> Poll<()> {
        let before = done.len();
        for queue in &mut self.queues {
            while let Some((sequence, waiting)) = &mut queue.waiting {
                let Poll::Ready(result) = waiting.poll_result(context) else { break };
                done.push((*sequence, result));
                queue.waiting = None;
                while queue.waiting.is_none()
                    && let Some(arrival) = queue.behind.pop_front()
                {
                    let sequence = arrival.sequence;
                    match queue.table.insert_arrival(arrival, &self.writer, true) {
                        Call::Done(result) => done.push((sequence, result)),
                        Call::Waiting(waiting) => queue.waiting = Some((sequence, waiting)),
                    }
                }
            }
        }
        self.len -= done.len() - before;
        if done.len() > before { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Says what the first waiting item waits for. `None` if no item waits.
    pub fn explain(&self) -> Option<String> {
        self.queues.iter().find_map(|queue| queue.waiting.as_ref()).map(|(_, waiting)| waiting.explain())
    }

    /// Withdraws all items. Items that are in their tables already are appended to `done`.
    pub async fn withdraw(self, done: &mut Done) {
        for queue in self.queues {
            if let Some((sequence, waiting)) = queue.waiting
                && let Some(result) = waiting.withdraw().await
            {
                done.push((sequence, result));
            }
        }
    }
}
