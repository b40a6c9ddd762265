//! The journal of a table, which keeps its effects before anybody else hears of them.

use super::handle::TableHandle;
use super::state::TableState;
use crate::write_ledger::{Ledger, LedgerState, Ledgers};
use parking_lot::MutexGuard;
use reverb_core::{Confirmation, Effect, NewItem, Result, Table, TableSnapshot, Trajectory};
use std::fmt::Debug;
use std::sync::Arc;

/// Keeps the effects of tables. No answer leaves before the effects that it tells of are kept.
pub trait Journal: Debug + Send + Sync {
    /// Drains the tables, and returns once all effects that they had noted before the call are kept so well. Called
    /// without the locks of the tables. Other threads may change them meanwhile.
    ///
    /// # Errors
    /// [`Error::Storage`](reverb_core::Error::Storage) if the effects may be lost. The tables have changed nevertheless.
    fn commit(&self, confirmation: Confirmation) -> Result<()>;
}

/// What a turn has to commit before its answers leave. `None` if it has changed nothing that they tell of.
pub type Commit = Option<(Arc<dyn Journal>, Confirmation)>;

impl TableState {
    /// Returns what the turn that ends has to commit. Called under the lock.
    #[inline]
    pub fn commit(&mut self) -> Commit {
        let journal = self.journal.as_ref()?;
        let confirmation = self.table.take_confirmation();
        (confirmation > Confirmation::Nothing).then(|| (journal.clone(), confirmation))
    }
}

/// Inserts an item, and enters it in the ledger of its writer under the number that the writer gave it.
#[inline]
pub fn insert(table: &mut Table, item: NewItem, by: Option<(&Ledger, u64)>, now: u64, removed: &mut Vec<Trajectory>) {
    table.insert(item, now, removed);
    if let Some((ledger, sequence)) = by {
        enter(table, ledger, sequence);
    }
}

#[inline(never)]
fn enter(table: &mut Table, ledger: &Ledger, sequence: u64) {
    ledger.add(sequence);
    if table.is_journaled() {
        table.note(Effect::Wrote { writer: ledger.writer().clone(), sequence });
    }
}

/// The state of some tables and of the ledgers of all writers, from which their later effects go on.
#[derive(Debug)]
pub struct EffectsBegin {
    /// The tables, in the order in which they were given.
    pub tables: Vec<TableBegin>,
    /// The ledgers, those that disconnected first before the others.
    pub ledgers: Vec<LedgerState>,
}

/// The state of one table in [`EffectsBegin`].
#[derive(Debug)]
pub struct TableBegin {
    /// The effects before, which were not drained yet.
    pub before: Vec<Effect>,
    /// The items and counts, without draws in flight.
    pub snapshot: TableSnapshot,
    /// What a replay that begins with the snapshot repeats first. One that began earlier skips it.
    pub first: Vec<Effect>,
}

impl TableHandle {
    /// Notes all effects from now on. No answer leaves before the journal has committed those that it tells of.
    pub fn set_journal(&self, journal: Arc<dyn Journal>) {
        self.upkeep(|state| {
            state.table.begin_journal();
            state.journal = Some(journal);
        });
    }

    /// Moves all effects that were noted so far to the end of `effects`.
    pub fn drain_effects(&self, effects: &mut Vec<Effect>) {
        self.upkeep(|state| state.table.drain_effects(effects));
    }
}

/// Drains the effects of several tables and takes the state after them, at one moment. Holds all locks meanwhile, as
/// [`snapshot_all`](super::snapshot_all) does.
pub fn begin_effects(tables: &[TableHandle], ledgers: &Ledgers) -> EffectsBegin {
    let mut states: Vec<_> = tables.iter().map(TableHandle::lock_state).collect();
    let begin = |(table, state): (&TableHandle, &mut MutexGuard<'_, TableState>)| {
        let mut before = Vec::new();
        state.table.drain_effects(&mut before);
        let (mut snapshot, first) = state.table.snapshot_for_effects();
        snapshot.tally = state.tally(table.shard_id());
        TableBegin { before, snapshot, first }
    };
    let tables = tables.iter().zip(&mut states).map(begin).collect();
    // An item and its number are entered under one lock. A ledger that had the number of an item which is lost would keep
    // the writer from sending it again.
    EffectsBegin { tables, ledgers: ledgers.states() }
}
