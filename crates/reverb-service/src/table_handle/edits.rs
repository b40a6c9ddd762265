//! Changes of a whole table or of the items in it: updates, deletes, options, resets, restores, its end, and compaction.

use super::counts::StartCounts;
use super::handle::{TableHandle, closed};
use super::requests::{Ended, OPERATIONS_PER_LOCK};
use super::state::{TableState, WORTH_A_TRIM};
use reverb_core::published_room::Tally;
use reverb_core::{Confirmation, Result, Table, TableChanges, Trajectory};
use std::sync::atomic::Ordering::Relaxed;

impl TableHandle {
    /// Deletes items, then sets priorities. Unknown keys are ignored. All priorities are checked before anything is
    /// changed. Between steps of 16 384 deletes or updates, others may see a part of the changes.
    ///
    /// # Errors
    /// [`Error::InvalidPriority`](reverb_core::Error::InvalidPriority) if a priority is not valid, and that of
    /// [`Journal::check`](super::Journal::check) if there are deletes. Nothing is changed then. That of
    /// [`Journal::commit`](super::Journal::commit).
    pub fn mutate(&self, updates: &[(u64, f64)], deletes: &[u64]) -> Result<u64> {
        let step = |updates: &[(u64, f64)], deletes: &[u64]| {
            let (changed, kept) = self.confirmed(|state, ended| {
                if !deletes.is_empty() {
                    state.check_journal()?;
                }
                // Also if they find nothing, since others may have deleted the items and not have committed this yet.
                let own = if deletes.is_empty() { Confirmation::Written } else { Confirmation::Synced };
                state.table.confirm(own);
                state.table.mutate(updates, deletes, &mut ended.removed)
            });
            let changed = changed?;
            kept.map(|()| changed)
        };
        if updates.len() + deletes.len() <= OPERATIONS_PER_LOCK {
            return step(updates, deletes);
        }
        for updates in updates.chunks(OPERATIONS_PER_LOCK) {
            self.with_table(|table| table.check_updates(updates))?;
        }
        // The first step checks the journal, before anything is changed.
        let mut changed = 0;
        for deletes in deletes.chunks(OPERATIONS_PER_LOCK) {
            changed += step(&[], deletes)?;
        }
        for updates in updates.chunks(OPERATIONS_PER_LOCK) {
            changed += step(updates, &[])?;
        }
        Ok(changed)
    }

    /// Changes options of the table. Waiting requests are served at once if the new options allow it. The call returns
    /// when all items have left that no longer fit; others may use the table between steps of 16 384 removals.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](reverb_core::Error::InvalidArgument) if an option is not valid; see
    /// [`reverb_core::Table::configure`]. [`Error::Cancelled`](reverb_core::Error::Cancelled) if the server was stopped. That
    /// of [`Journal::check`](super::Journal::check). Nothing is changed then. That of
    /// [`Journal::commit`](super::Journal::commit).
    pub fn configure(&self, changes: &TableChanges) -> Result<()> {
        let (shrinking, mut kept) = self.confirmed(|state, _| {
            if state.closed {
                return Err(closed());
            }
            state.check_journal()?;
            let tracked_before = state.table.tracks_draws();
            let shrinking = state.table.configure(changes)?;
            if state.table.tracks_draws() && !tracked_before {
                let undelivered = self.0.undelivered.load(Relaxed);
                self.0.expects_untracked.store(undelivered > 0, Relaxed);
                state.table.expect_untracked(undelivered);
            }
            self.publish(state.table.config());
            state.settle_room();
            Ok(shrinking)
        });
        let mut shrinking = shrinking?;
        loop {
            let shrink = |state: &mut TableState, ended: &mut Ended| {
                state.table.shrink(&mut shrinking, OPERATIONS_PER_LOCK, &mut ended.removed)
            };
            let (has_more, kept_now) = self.confirmed(shrink);
            kept = kept.and(kept_now);
            if !has_more {
                return kept;
            }
        }
    }

    /// Removes all items and sets the counters to zero. Waiting requests continue to wait.
    ///
    /// # Errors
    /// That of [`Journal::check`](super::Journal::check). Nothing is changed then. That of
    /// [`Journal::commit`](super::Journal::commit).
    pub fn reset(&self) -> Result<()> {
        let (old, kept) = self.confirmed(|state, _| state.check_journal().map(|()| state.table.reset()));
        let old = old?;
        let is_worth_a_notice = old.bytes() > WORTH_A_TRIM;
        tracing::info!(table = self.name(), "table `{}` was reset; {} items left it", self.name(), old.num_items());
        let counts = old.counts();
        drop(old);
        // Only now other tables can see that this one has let go of the chunks that they share.
        self.upkeep(|state| {
            state.table.count_old(&counts);
            state.shrunk |= is_worth_a_notice;
        });
        if is_worth_a_notice {
            self.0.compaction_due.notify_one();
        }
        kept
    }

    /// Replaces the table and its items by a restored table. `tally` is what its checkpoint knew of the counts of all
    /// shards. Waiting requests continue to wait. No effect tells of it: the caller restores before the table is journaled,
    /// or takes a new state from which its effects go on.
    pub fn restore(&self, table: Table, tally: &Tally) {
        self.note_keys(table.keys());
        let old = self.change(|state, _| {
            self.publish(table.config());
            let mut known = state.tally(self.shard_id());
            known.merge(tally);
            let old = std::mem::replace(&mut state.table, table);
            if state.journal.is_some() {
                state.table.begin_journal();
            }
            state.start_again(StartCounts::new(&state.table, known, state.counts.number));
            old
        });
        drop(old);
    }

    /// Fails all waiting requests and all later ones.
    pub fn close(&self) {
        let queues = self.upkeep(|state| {
            state.closed = true;
            let queues = std::mem::take(&mut state.queues);
            state.set_clocks();
            queues
        });
        let inserts = queues.inserts.into_requests().collect();
        let mut samples: Vec<_> = queues.samples.into_requests().collect();
        for request in samples.iter_mut().rev() {
            self.give_back(std::mem::take(&mut request.work.drawn));
        }
        let ((), _kept) = self.turn(|turn| {
            *turn.ended = Ended { inserts, samples, failure: Some(Box::new(closed())), ..Ended::default() }
        });
    }

    /// Changes the table for maintenance, then serves the requests that can proceed.
    pub(crate) fn with_table_mut<T>(&self, change: impl FnOnce(&mut Table, &mut Vec<Trajectory>) -> T) -> T {
        self.change(|state, ended| change(&mut state.table, &mut ended.removed))
    }

    /// Completes when the table holds much more data than its items use, or has shrunk considerably.
    pub(crate) async fn compaction_due(&self) {
        self.0.compaction_due.notified().await;
    }

    /// Whether the table has shrunk considerably since the last call.
    pub(crate) fn take_shrink_notice(&self) -> bool {
        self.upkeep(|state| std::mem::take(&mut state.shrunk))
    }
}
