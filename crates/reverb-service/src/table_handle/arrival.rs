//! Items of writers, which arrive one by one. Items that need not wait are inserted many at a time.

use super::handle::{TableHandle, now_nanos};
use super::queue::OPERATIONS_PER_STEP;
use crate::peer::Peer;
use reverb_core::{NewItem, Result, Table};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

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

impl Arrival {
    fn check(&self, table: &Table) -> Result<()> {
        if self.is_validated { table.check_item(&self.item) } else { table.check_not_validated(&self.item) }
    }
}

impl TableHandle {
    /// Inserts items from the front of `items` until the rate limiter blocks or the table refuses an item, but none if
    /// an insert already waits. Calls `inserted` with the sequence number of each. The others stay in `items`. `peer` is
    /// who writes; `None` is this process.
    pub fn insert_at_once(
        &self,
        items: &mut std::vec::IntoIter<Arrival>,
        peer: Option<&Arc<Peer>>,
        mut inserted: impl FnMut(u64),
    ) {
        let before = items.len();
        let mut removed = Vec::with_capacity(before);
        let mut state = self.0.state.lock();
        if state.closed || !state.inserts.is_empty() {
            return;
        }
        let now = now_nanos();
        // Inserts take turns with waiting draws; see `serve`.
        let most = if state.samples.is_empty() { OPERATIONS_PER_STEP } else { 1 };
        for _ in 0..most {
            // The exact size of a large item is not computed under the lock.
            let may_go = |arrival: &Arrival| {
                state.table.can_insert(1)
                    && !arrival.item.trajectory.may_be_too_large()
                    && arrival.check(&state.table).is_ok()
            };
            if !items.as_slice().first().is_some_and(may_go) {
                break;
            }
            let Some(Arrival { sequence, item, .. }) = items.next() else { break };
            state.table.insert(item, now, &mut removed);
            inserted(sequence);
        }
        let turn = self.serve(&mut state, |_, _| true);
        drop(state);
        if let Some(peer) = peer.or_else(|| self.here()) {
            peer.traffic.inserts.fetch_add((before - items.len()) as u64, Relaxed);
        }
        self.finish(turn);
    }

    /// Checks that the table accepts an item of a writer.
    ///
    /// # Errors
    /// Those of [`reverb_core::Trajectory::check_size`] and [`Table::check_item`].
    pub fn check_arrival(&self, arrival: &Arrival) -> Result<()> {
        arrival.item.trajectory.check_size(self.name())?;
        arrival.check(&self.0.state.lock().table)
    }
}
