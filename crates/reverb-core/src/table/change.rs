//! Updates and deletes of items in a table.

use super::contents::Table;
use super::removal::RemovalReason;
use crate::{Error, ItemKey, Result, Trajectory};

impl Table {
    /// Checks the priorities of updates. Changes nothing.
    ///
    /// # Errors
    /// [`Error::InvalidPriority`], naming the key, if a selector cannot take a priority. This includes keys that are
    /// not in the table, because an error must not depend on what was evicted.
    #[inline]
    pub fn check_updates(&self, updates: &[(ItemKey, f64)]) -> Result<()> {
        for &(key, priority) in updates {
            self.check_priority(priority)
                .map_err(|error| Error::InvalidPriority(format!("{error} Its key is {key}. Nothing was changed.")))?;
        }
        Ok(())
    }

    /// Deletes items and then sets priorities, both in the order given. Keys that are not in the table are ignored,
    /// except those of items that were drawn often enough and come back if these draws are given back: such an item
    /// comes back with the priority, or not at all. Returns how many deletes and updates found their item in the table.
    ///
    /// # Errors
    /// Those of [`Table::check_updates`]; then nothing has changed.
    pub fn mutate(
        &mut self,
        updates: &[(ItemKey, f64)],
        deletes: &[ItemKey],
        removed: &mut Vec<Trajectory>,
    ) -> Result<u64> {
        self.check_updates(updates)?;
        let mut changed = 0;
        for &key in deletes {
            if let Some(slot) = self.slab.find(key) {
                changed += 1;
                removed.push(self.remove(slot, RemovalReason::Delete).trajectory);
            } else {
                self.delete_in_flight(key);
            }
        }
        let deleted = changed;
        // One effect for all, so that the look-ups overlap.
        let mut noted = self.is_journaled().then(|| Vec::with_capacity(updates.len()));
        for &(key, priority) in updates {
            if let Some(slot) = self.slab.find(key) {
                self.note_priority(priority);
                self.set_priority(slot, priority);
                noted.iter_mut().for_each(|noted| noted.push((key, priority)));
                changed += 1;
            } else {
                self.update_in_flight(key, priority);
            }
        }
        if let Some(noted) = noted {
            self.note_priorities(noted);
        }
        self.counting.priority_updates += changed - deleted;
        Ok(changed)
    }
}
