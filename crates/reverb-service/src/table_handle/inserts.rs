//! The ways in: inserts, and items of writers, which arrive one by one. Those that need not wait are inserted together.

use super::call::Call;
use super::handle::{TableHandle, now_nanos};
use super::journal::{self, Keeping};
use super::requests::{InsertWork, OPERATIONS_PER_LOCK, OPERATIONS_PER_STEP};
use super::ticket_queue::answer;
use super::turns::InsertTurn;
use crate::decoding::beside_others;
use crate::peer::{Inserter, Peer};
use crate::write_ledger::Ledger;
use reverb_core::{Error, NewItem, Result, Table};
use std::sync::Arc;

/// An item of a writer.
#[derive(Debug)]
pub struct Arrival {
    /// Sequence number that the writer gave the item.
    pub sequence: u64,
    /// The item to insert.
    pub item: NewItem,
    /// Whether the item must match the signature of the table.
    pub is_validated: bool,
}

/// Who inserts items one by one.
#[derive(Debug)]
pub(crate) struct Writer {
    /// The program that writes.
    pub peer: Arc<Peer>,
    /// The turns that its items take where they wait.
    pub turn: InsertTurn,
    /// The ledger of the writer, if it may send an item again.
    pub ledger: Option<Arc<Ledger>>,
}

fn check(table: &Table, item: &NewItem, is_validated: bool) -> Result<()> {
    if is_validated { table.check_item(item) } else { table.check_not_validated(item) }
}

impl TableHandle {
    /// Inserts items of a peer one after another as the rate limiter allows. The items must have passed
    /// [`TableHandle::check_all`].
    ///
    /// The call fails with the error of [`Journal::check`](super::Journal::check) if the journal is closed when the call
    /// begins, or when the turn of an item comes that has waited.
    pub fn insert<'a>(&self, items: Vec<NewItem>, by: impl Into<Inserter<'a>>) -> Call<()> {
        self.note_keys(items.iter().map(|item| item.key));
        let Inserter { peer, client } = by.into();
        let turn = InsertTurn { client, stream: None };
        let work = InsertWork { total: items.len(), items: items.into_iter(), by: None, turn, counter: 0 };
        self.submit(work, peer, |state, work| {
            state.check_journal()?;
            work.counter = state.inserts_by_client.index_of(peer);
            Ok(())
        })
    }

    /// Inserts an item of a writer as the rate limiter allows, once it is checked.
    ///
    /// The call fails with the errors of [`TableHandle::check_arrival`] unless `is_checked`, and as
    /// [`TableHandle::insert`] while the journal is closed.
    pub(crate) fn insert_arrival(&self, arrival: Arrival, writer: &Writer, is_checked: bool) -> Call<()> {
        let Arrival { sequence, item, is_validated } = arrival;
        // Before the lock, because this may decode chunks.
        if !is_checked && let Err(error) = self.check_size(&item) {
            return Call::Done(Err(error));
        }
        let by = writer.ledger.clone().map(|ledger| (ledger, sequence));
        let work = InsertWork { items: vec![item].into_iter(), total: 1, by, turn: writer.turn, counter: 0 };
        self.submit(work, &writer.peer, |state, work| {
            state.check_journal()?;
            work.counter = state.inserts_by_client.index_of(&writer.peer);
            if let [item] = work.items.as_slice() {
                if !is_checked {
                    check(&state.table, item, is_validated)?;
                }
                self.note_keys([item.key]);
            }
            Ok(())
        })
    }

    /// Inserts items from the front of `items` until the rate limiter blocks or the table refuses an item, but none if
    /// an insert already waits. Calls `inserted` with the sequence number of each. The others stay in `items`. Returns
    /// whether those that are inserted are kept.
    pub(crate) fn insert_at_once(
        &self,
        items: &mut std::vec::IntoIter<Arrival>,
        writer: &Writer,
        mut inserted: impl FnMut(u64),
    ) -> Keeping {
        let before = items.len();
        let removed = Vec::with_capacity(before.min(OPERATIONS_PER_STEP));
        let mut ending = self.ending();
        ending.begin(|turn| {
            let state = &mut *turn.state;
            turn.ended.removed = removed;
            // What is refused has its error from `insert_arrival`.
            if state.closed || !state.queues.inserts.is_empty() || state.check_journal().is_err() {
                return;
            }
            let (now, gate) = (now_nanos(), state.gate());
            // Inserts take turns with waiting draws; see `serve`.
            let most = if state.queues.samples.is_empty() { OPERATIONS_PER_STEP } else { 1 };
            for _ in 0..most {
                // The exact size of a large item is not computed under the lock.
                let may_go = |arrival: &Arrival| {
                    gate.is_open(&state.table)
                        && !arrival.item.trajectory.may_be_too_large()
                        && check(&state.table, &arrival.item, arrival.is_validated).is_ok()
                };
                if !items.as_slice().first().is_some_and(may_go) {
                    break;
                }
                let Some(Arrival { sequence, item, .. }) = items.next() else { break };
                self.note_keys([item.key]);
                let by = writer.ledger.as_ref().map(|ledger| (&**ledger, sequence));
                journal::insert(&mut state.table, item, by, now, &mut turn.ended.removed);
                inserted(sequence);
            }
            let index = state.inserts_by_client.index_of(&writer.peer);
            state.inserts_by_client.add(index, before - items.len());
            turn.serve(|_, _| true);
        });
        writer.peer.traffic.count_inserts(before - items.len(), self.place());
        if !ending.keeps_a_task_waiting() {
            return Keeping::Done(ending.finish());
        }
        let (reply, result) = answer();
        // A stream that has ended needs no result.
        ending.finish_later(move |kept| drop(reply.send(kept)));
        Keeping::UnderWay(result)
    }

    /// Checks that the table accepts an item of a writer.
    ///
    /// # Errors
    /// Those of [`reverb_core::Trajectory::check_size`], [`Table::check_item`] and
    /// [`Journal::check`](super::Journal::check).
    pub(crate) fn check_arrival(&self, arrival: &Arrival) -> Result<()> {
        self.check_size(&arrival.item)?;
        self.upkeep(|state| {
            state.check_journal()?;
            check(&state.table, &arrival.item, arrival.is_validated)
        })
    }

    /// Checks that an item does not refer to too much. That decodes the strings of a large one, beside others.
    fn check_size(&self, item: &NewItem) -> Result<()> {
        let may_be_too_large = item.trajectory.may_be_too_large();
        if may_be_too_large { beside_others(|| item.trajectory.check_size(self.name())) } else { Ok(()) }
    }

    /// Checks that the table accepts all items.
    ///
    /// # Errors
    /// The index of the first refused item, and the error of [`Trajectory::check_size`], [`Table::check_item`] or
    /// [`Journal::check`](super::Journal::check).
    ///
    /// [`Trajectory::check_size`]: reverb_core::Trajectory::check_size
    pub fn check_all(&self, items: &[NewItem]) -> std::result::Result<(), (usize, Error)> {
        // Before the lock, because this may decode chunks.
        for (index, item) in items.iter().enumerate().filter(|(_, item)| item.trajectory.may_be_too_large()) {
            self.check_size(item).map_err(|error| (index, error))?;
        }
        for (step, items) in items.chunks(OPERATIONS_PER_LOCK).enumerate() {
            let checked = self.upkeep(|state| {
                state.check_journal().map_err(|error| (0, error))?;
                state.table.check_items(items)
            });
            checked.map_err(|(index, error)| (step * OPERATIONS_PER_LOCK + index, error))?;
        }
        Ok(())
    }
}
