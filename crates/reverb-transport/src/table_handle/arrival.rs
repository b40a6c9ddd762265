//! Items of writers, which come one by one and are inserted many at a time where nothing has to wait.

use super::queue::OPERATIONS_A_TURN;
use super::{TableHandle, now_nanos};
use reverb_core::{NewItem, Result, Table};

/// An item of a writer.
#[derive(Debug)]
pub struct Arrival {
    /// The writer's number of it.
    pub sequence: u64,
    /// The item.
    pub item: NewItem,
    /// Whether it must fit the table's signature.
    pub is_validated: bool,
}

impl Arrival {
    fn check(&self, table: &Table) -> Result<()> {
        if self.is_validated { table.check_item(&self.item) } else { table.check_not_validated(&self.item) }
    }
}

impl TableHandle {
    /// Inserts items, the first of `items`, for as long as nobody waits to insert, the rate limiter allows, and they may be
    /// inserted at all; `inserted` gets the number of each. The others stay.
    pub fn insert_at_once(&self, items: &mut std::vec::IntoIter<Arrival>, mut inserted: impl FnMut(u64)) {
        let mut removed = Vec::with_capacity(items.len());
        let mut state = self.0.state.lock();
        if state.closed || !state.inserts.is_empty() {
            return;
        }
        let now = now_nanos();
        // Whoever waits for samples takes turns with inserts; see `serve`.
        let most = if state.samples.is_empty() { OPERATIONS_A_TURN } else { 1 };
        for _ in 0..most {
            let may_go = |arrival: &Arrival| state.table.can_insert(1) && arrival.check(&state.table).is_ok();
            if !items.as_slice().first().is_some_and(may_go) {
                break;
            }
            let Some(Arrival { sequence, item, .. }) = items.next() else { break };
            state.table.insert(item, now, &mut removed);
            inserted(sequence);
        }
        let turn = self.serve(&mut state);
        drop(state);
        self.finish(turn);
    }

    /// Whether an item of a writer may be inserted at all.
    pub fn check_arrival(&self, arrival: &Arrival) -> Result<()> {
        arrival.check(&self.0.state.lock().table)
    }
}
