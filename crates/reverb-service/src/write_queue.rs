//! The queue of items of one writer, in order for each table and independent between tables.
//!
//! The waiting items of a writer are in the queues of their tables, where clients take turns. Of very many, some wait
//! behind these.

use crate::peer::Inserter;
use crate::table_handle::{Answer, Arrival, Call, InsertTurn, Keeping, TableHandle, Waiting, Writer, waits_for_disk};
use crate::write_ledger::Ledger;
use reverb_core::Result;
use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

/// Number of items of a writer in the queue of a table beyond which others wait behind them. A batch that is drawn from a
/// full table makes room for as many.
const AT_TABLE: usize = 1024;

/// Sequence numbers and results of items that are done.
pub type Done = Vec<(u64, Result<()>)>;

/// The items of one writer that are not done.
#[derive(Debug)]
pub struct WriteQueue {
    writer: Writer,
    queues: Vec<TableQueue>,
    len: usize,
}

#[derive(Debug)]
struct TableQueue {
    table: TableHandle,
    /// The numbers of items that are in the table and are being committed.
    keeping: VecDeque<(Vec<u64>, Answer<()>)>,
    /// The items that wait for the table, in the order in which it will insert them.
    waiting: VecDeque<(u64, Waiting<()>)>,
    /// The items behind these, which are checked.
    behind: VecDeque<Arrival>,
}

impl Drop for TableQueue {
    /// Withdraws the last item first, so that no item is inserted after one before it was withdrawn.
    fn drop(&mut self) {
        while self.waiting.pop_back().is_some() {}
    }
}

impl WriteQueue {
    /// Creates the queue of a writer. Its items are entered in its ledger, if it has one, as they are inserted.
    pub fn new<'a>(by: impl Into<Inserter<'a>>, ledger: Option<Arc<Ledger>>) -> Self {
        static STREAMS: AtomicU64 = AtomicU64::new(1);
        let Inserter { peer, client } = by.into();
        let turn = InsertTurn { client, stream: NonZeroU64::new(STREAMS.fetch_add(1, Relaxed)) };
        Self { writer: Writer { peer: peer.clone(), turn, ledger }, queues: Vec::new(), len: 0 }
    }

    /// Returns the number of items that are not done.
    #[inline]
    pub fn num_waiting(&self) -> usize {
        self.len
    }

    /// Inserts items into one table, or queues them. Appends those that are done to `done`.
    pub fn push_all(&mut self, table: &TableHandle, items: Vec<Arrival>, done: &mut Done) {
        let mut items = items.into_iter();
        let mut go_on = self.queue(table).waiting.is_empty();
        while go_on && !items.as_slice().is_empty() {
            // One lock and one commit for many items that need not wait.
            let before = done.len();
            let kept = table.insert_at_once(&mut items, &self.writer, |sequence| done.push((sequence, Ok(()))));
            go_on = done.len() > before;
            match kept {
                Keeping::Done(Ok(())) => {}
                Keeping::Done(Err(error)) => {
                    done[before..].iter_mut().for_each(|(_, result)| *result = Err(error.clone()));
                }
                Keeping::UnderWay(kept) => {
                    let numbers: Vec<_> = done.drain(before..).map(|(sequence, _)| sequence).collect();
                    self.len += numbers.len();
                    self.queue(table).keeping.push_back((numbers, kept));
                }
            }
        }
        items.for_each(|item| self.push(table, item, done));
    }

    fn queue(&mut self, table: &TableHandle) -> &mut TableQueue {
        match self.queues.iter().position(|queue| queue.table.name() == table.name()) {
            Some(index) => &mut self.queues[index],
            None => {
                self.queues.push(TableQueue {
                    table: table.clone(),
                    keeping: VecDeque::new(),
                    waiting: VecDeque::new(),
                    behind: VecDeque::new(),
                });
                self.queues.last_mut().expect("just added")
            }
        }
    }

    /// Inserts an item, or queues it. Appends it to `done` if it is inserted or refused.
    pub fn push(&mut self, table: &TableHandle, arrival: Arrival, done: &mut Done) {
        let sequence = arrival.sequence;
        if self.queue(table).waiting.len() >= AT_TABLE {
            match table.check_arrival(&arrival) {
                Err(error) => return done.push((sequence, Err(error))),
                Ok(()) => self.queue(table).behind.push_back(arrival),
            }
        } else {
            match table.insert_arrival(arrival, &self.writer, false) {
                Call::Done(result) => return done.push((sequence, result)),
                Call::Waiting(waiting) => self.queue(table).waiting.push_back((sequence, waiting)),
            }
        }
        self.len += 1;
    }

    /// Takes the results of items that waited. Ready if an item is done. Otherwise the task is woken when a table may
    /// have inserted one.
    pub fn poll(&mut self, context: &mut Context<'_>, done: &mut Done) -> Poll<()> {
        let before = done.len();
        for TableQueue { table, keeping, waiting: items, behind } in &mut self.queues {
            // The journal answers them in their order, too.
            while let Some((numbers, kept)) = keeping.front_mut()
                && let Poll::Ready(kept) = Pin::new(kept).poll(context)
            {
                done.extend(numbers.drain(..).map(|sequence| (sequence, kept.clone())));
                keeping.pop_front();
            }
            // The table answers the items in their order.
            while let Some((sequence, waiting)) = items.front_mut()
                && let Poll::Ready(result) = waiting.poll_result(context)
            {
                done.push((*sequence, result));
                items.pop_front();
                while items.len() < AT_TABLE
                    && let Some(arrival) = behind.pop_front()
                {
                    let sequence = arrival.sequence;
                    match table.insert_arrival(arrival, &self.writer, true) {
                        Call::Done(result) => done.push((sequence, result)),
                        Call::Waiting(waiting) => items.push_back((sequence, waiting)),
                    }
                }
            }
        }
        self.len -= done.len() - before;
        if done.len() > before { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Says what the first waiting item waits for. `None` if no item waits.
    pub fn explain(&self) -> Option<String> {
        let waiting = self.queues.iter().find_map(|queue| queue.waiting.front());
        let keeping = || self.queues.iter().find(|queue| !queue.keeping.is_empty());
        let explain = |(_, waiting): &(u64, Waiting<()>)| waiting.explain();
        waiting.map(explain).or_else(|| keeping().map(|queue| waits_for_disk(queue.table.name())))
    }

    /// Withdraws all items, the last ones first. Items that are in their tables already are appended to `done`.
    pub async fn withdraw(mut self, done: &mut Done) {
        for queue in &mut self.queues {
            while let Some((sequence, waiting)) = queue.waiting.pop_back() {
                if let Some(result) = waiting.withdraw().await {
                    done.push((sequence, result));
                }
            }
            for (numbers, kept) in queue.keeping.drain(..) {
                let kept = kept.await;
                done.extend(numbers.into_iter().map(|sequence| (sequence, kept.clone())));
            }
        }
    }
}
