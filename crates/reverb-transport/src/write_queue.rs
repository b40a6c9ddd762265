//! Items of one writer on their way into tables: in order for each table, whatever the other tables do.

use crate::table_handle::{Arrival, Call, TableHandle, Waiting};
use reverb_core::{NewItem, Result};
use std::collections::VecDeque;
use std::task::{Context, Poll};

/// Items that are done, by sequence number.
pub type Done = Vec<(u64, Result<()>)>;

/// At most one item waits in each table's own queue, so that many writers take turns there.
#[derive(Debug, Default)]
pub struct WriteQueue {
    lanes: Vec<Lane>,
    len: usize,
}

#[derive(Debug)]
struct Lane {
    table: TableHandle,
    waiting: Option<(u64, Waiting<()>)>,
    behind: VecDeque<(u64, NewItem)>,
}

impl WriteQueue {
    /// Items that are not done.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Inserts items of one table, or lets them wait.
    pub fn push_all(&mut self, table: &TableHandle, items: Vec<Arrival>, done: &mut Done) {
        let mut items = items.into_iter();
        if self.lane(table).waiting.is_none() {
            // All that can go at once goes under one lock.
            table.insert_at_once(&mut items, |sequence| done.push((sequence, Ok(()))));
        }
        items.for_each(|item| self.push(table, item, done));
    }

    fn lane(&mut self, table: &TableHandle) -> &mut Lane {
        match self.lanes.iter().position(|lane| lane.table.name() == table.name()) {
            Some(index) => &mut self.lanes[index],
            None => {
                self.lanes.push(Lane { table: table.clone(), waiting: None, behind: VecDeque::new() });
                self.lanes.last_mut().expect("just added")
            }
        }
    }

    /// Inserts an item, or lets it wait.
    pub fn push(&mut self, table: &TableHandle, arrival: Arrival, done: &mut Done) {
        let checked = table.check_arrival(&arrival);
        let Arrival { sequence, item, .. } = arrival;
        if let Err(error) = checked {
            done.push((sequence, Err(error)));
            return;
        }
        let lane = self.lane(table);
        if lane.waiting.is_some() {
            lane.behind.push_back((sequence, item));
            self.len += 1;
            return;
        }
        match lane.table.insert(vec![item]) {
            Call::Done(result) => done.push((sequence, result)),
            Call::Waiting(waiting) => {
                lane.waiting = Some((sequence, waiting));
                self.len += 1;
            }
        }
    }

    /// Goes on where tables allow it. Ready if an item is done; the task is woken when one may be.
    pub fn poll(&mut self, context: &mut Context<'_>, done: &mut Done) -> Poll<()> {
        let before = done.len();
        for lane in &mut self.lanes {
            while let Some((sequence, waiting)) = &mut lane.waiting {
                let Poll::Ready(result) = waiting.poll_result(context) else { break };
                done.push((*sequence, result));
                lane.waiting = None;
                while lane.waiting.is_none()
                    && let Some((sequence, item)) = lane.behind.pop_front()
                {
                    match lane.table.insert(vec![item]) {
                        Call::Done(result) => done.push((sequence, result)),
                        Call::Waiting(waiting) => lane.waiting = Some((sequence, waiting)),
                    }
                }
            }
        }
        self.len -= done.len() - before;
        if done.len() > before { Poll::Ready(()) } else { Poll::Pending }
    }

    /// What the first waiting item waits for.
    pub fn explain(&self) -> Option<String> {
        self.lanes.iter().find_map(|lane| lane.waiting.as_ref()).map(|(_, waiting)| waiting.explain())
    }

    /// Takes all items back, but for those that are in their tables already: they are done.
    pub async fn withdraw(self, done: &mut Done) {
        for lane in self.lanes {
            if let Some((sequence, waiting)) = lane.waiting
                && let Some(result) = waiting.withdraw().await
            {
                done.push((sequence, result));
            }
        }
    }
}
