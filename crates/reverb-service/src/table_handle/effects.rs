//! The effects of tables, for the log that their journal is: how it gets them, and the state from which they go on.

use super::handle::TableHandle;
use super::journal::Journal;
use super::state::TableState;
use crate::write_ledger::{LedgerState, Ledgers};
use parking_lot::MutexGuard;
use reverb_core::{Confirmation, Effect, Result, TableSnapshot};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

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
            self.0.is_journaled.store(true, Relaxed);
        });
    }

    /// Commits all effects that were noted so far.
    pub(crate) fn commit(&self) -> Result<()> {
        self.turn(|turn| turn.state.table.confirm(Confirmation::Synced)).1
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
