//! The journal of a table, which keeps its effects before anybody else hears of them.

use crate::decoding::beside_others;
use crate::write_ledger::Ledger;
use reverb_core::{Confirmation, Effect, NewItem, Result, Table, Trajectory};
use std::fmt::Debug;
use std::sync::Arc;

/// Keeps the effects of tables. No answer leaves before the effects that it tells of are kept.
pub trait Journal: Debug + Send + Sync {
    /// Checks that a change which has to be confirmed can be. Called before the table is changed, under its lock, so it does
    /// not use the disk.
    ///
    /// # Errors
    /// [`Error::Storage`](reverb_core::Error::Storage) while the journal is closed by a failure. The tables are unchanged.
    fn check(&self) -> Result<()>;

    /// Whether a commit of what must be [`Synced`](Confirmation::Synced) waits for a disk. A worker of a runtime hands its
    /// other tasks over before it makes such a commit, so that they can join the group that the disk syncs at once.
    fn waits_for_disk(&self) -> bool {
        false
    }

    /// Drains the tables, and returns once all effects that they had noted before the call are kept so well. Called
    /// without the locks of the tables. Other threads may change them meanwhile.
    ///
    /// # Errors
    /// [`Error::Storage`](reverb_core::Error::Storage) if the effects may be lost. The tables have changed nevertheless.
    fn commit(&self, confirmation: Confirmation) -> Result<()>;
}

/// Commits, without the locks of the tables.
///
/// # Errors
/// Those of [`Journal::commit`].
#[inline(never)]
pub fn commit(journal: &dyn Journal, confirmation: Confirmation) -> Result<()> {
    if confirmation == Confirmation::Synced && journal.waits_for_disk() {
        return beside_others(|| journal.commit(confirmation));
    }
    journal.commit(confirmation)
}

/// What a turn has to commit before its answers leave. `None` if it has changed nothing that they tell of.
pub type Commit = Option<(Arc<dyn Journal>, Confirmation)>;

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
