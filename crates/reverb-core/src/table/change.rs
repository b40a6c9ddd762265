//! Changes of items in a table.

use super::Table;
use crate::{Error, ItemKey, Result, Trajectory};

impl Table {
    /// Deletes items, then sets priorities, in the order given. Keys that are not in the table are passed over.
    ///
    /// # Errors
    /// [`Error::InvalidPriority`], naming the key, if a selector cannot take a priority; then nothing has changed. This
    /// holds for keys that are not in the table too: whether an error shows must not depend on what was evicted.
    pub fn mutate(
        &mut self,
        updates: &[(ItemKey, f64)],
        deletes: &[ItemKey],
        removed: &mut Vec<Trajectory>,
    ) -> Result<()> {
        for &(key, priority) in updates {
            self.check_priority(priority)
                .map_err(|error| Error::InvalidPriority(format!("{error} Its key is {key}. Nothing was changed.")))?;
        }
        for &key in deletes {
            if let Some(slot) = self.slab.find(key) {
                removed.push(self.remove(slot).trajectory);
            }
        }
        for &(key, priority) in updates {
            if let Some(slot) = self.slab.find(key) {
                self.set_priority(slot, priority);
            }
        }
        Ok(())
    }
}
