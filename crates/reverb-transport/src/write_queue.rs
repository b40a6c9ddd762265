//! Items of one writer on their way into tables: in order for each table, whatever the other tables do.

use crate::table_handle::{Call, TableHandle, Waiting};
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

    /// Inserts an item, or lets it wait. `is_validated`: whether it must fit the table's signature.
    pub fn push(&mut self, sequence: u64, table: &TableHandle, item: NewItem, is_validated: bool, done: &mut Done) {
        if let Err(error) = if is_validated { table.check(&item) } else { table.check_not_validated(&item) } {
            done.push((sequence, Err(error)));
            return;
        }
        let lane = match self.lanes.iter().position(|lane| lane.table.name() == table.name()) {
            Some(index) => &mut self.lanes[index],
            None => {
                self.lanes.push(Lane { table: table.clone(), waiting: None, behind: VecDeque::new() });
                self.lanes.last_mut().expect("just added")
            }
        };
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
