//! The journal of a table, which keeps its effects before anybody else hears of them.

use super::ticket_queue::Answer;
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

    /// Whether a commit of what must be [`Synced`](Confirmation::Synced) waits for a disk. Tasks of a runtime leave such
    /// commits to [`Journal::commit_later`], or run beside the other tasks of their thread meanwhile.
    fn waits_for_disk(&self) -> bool {
        false
    }

    /// Drains the tables, and returns once all effects that they had noted before the call are kept so well. Called
    /// without the locks of the tables. Other threads may change them meanwhile.
    ///
    /// # Errors
    /// [`Error::Storage`](reverb_core::Error::Storage) if the effects may be lost. The tables have changed nevertheless.
    fn commit(&self, confirmation: Confirmation) -> Result<()>;

    /// Lets a thread of the journal commit what must be [`Synced`](Confirmation::Synced), and call `kept` with the result
    /// of [`Journal::commit`]. Those who ask while it waits for the disk share the next commit.
    fn commit_later(&self, kept: Kept) {
        kept(self.commit(Confirmation::Synced));
    }
}

/// What a journal calls with the result of a commit.
pub type Kept = Box<dyn FnOnce(Result<()>) + Send>;

/// Commits, without the locks of the tables.
///
/// # Errors
/// Those of [`Journal::commit`].
#[inline(never)]
pub fn commit(journal: &dyn Journal, confirmation: Confirmation) -> Result<()> {
    if waits(journal, confirmation) {
        return beside_others(|| journal.commit(confirmation));
    }
    journal.commit(confirmation)
}

fn waits(journal: &dyn Journal, confirmation: Confirmation) -> bool {
    confirmation == Confirmation::Synced && journal.waits_for_disk()
}

/// Whether the caller is a task that would wait for the disk in this commit, and can be told of the result later.
#[inline]
pub fn keeps_a_task_waiting(commit: &Commit) -> bool {
    let waits = |(journal, confirmation): &(Arc<dyn Journal>, _)| waits(&**journal, *confirmation);
    commit.as_ref().is_some_and(waits) && tokio::task::try_id().is_some()
}

/// A commit that may be under way.
#[derive(Debug)]
pub enum Keeping {
    /// Its result.
    Done(Result<()>),
    /// What will tell of its result.
    UnderWay(Answer<()>),
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
