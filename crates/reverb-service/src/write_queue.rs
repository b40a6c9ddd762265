//! The queue of items of one writer, in order for each table and independent between tables.
//!
//! At most one item of a writer waits in a table's own queue, so that many writers take turns.

use crate::peer::Peer;
use crate::table_handle::{Arrival, Call, TableHandle, Waiting};
use reverb_core::{NewItem, Result};
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Sequence numbers and results of items that are done.
pub type Done = Vec<(u64, Result<()>)>;

/// The items of one writer that are not in their tables yet.
#[derive(Debug, Default)]
pub struct WriteQueue {
    /// Who writes; `None` is this process.
    peer: Option<Arc<Peer>>,
    queues: Vec<TableQueue>,
    len: usize,
}

#[derive(Debug)]
struct TableQueue {
    table: TableHandle,
    waiting: Option<(u64, Waiting<()>)>,
    behind: VecDeque<(u64, NewItem)>,
}

impl WriteQueue {
    /// Creates the queue of a writer in another process. The default queue belongs to a writer in this process.
    pub fn new(peer: Arc<Peer>) -> Self {
        Self { peer: Some(peer), ..Self::default() }
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
            let peer = self.peer.as_ref();
            table.insert_at_once(&mut items, peer, |sequence| done.push((sequence, Ok(()))));
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
        let checked = table.check_arrival(&arrival);
        let Arrival { sequence, item, .. } = arrival;
        if let Err(error) = checked {
            done.push((sequence, Err(error)));
            return;
        }
        let queue = self.queue(table);
        if queue.waiting.is_some() {
            queue.behind.push_back((sequence, item));
            self.len += 1;
            return;
        }
        match table.insert_from(vec![item], self.peer.as_ref()) {
            Call::Done(result) => done.push((sequence, result)),
            Call::Waiting(waiting) => {
                self.queue(table).waiting = Some((sequence, waiting));
                self.len += 1;
            }
        }
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
                    && let Some((sequence, item)) = queue.behind.pop_front()
                {
                    match queue.table.insert_from(vec![item], self.peer.as_ref()) {
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
