//! Whether a table can take an item.

use super::contents::Table;
use crate::{Error, NewItem, Result, Trajectory};

impl Table {
    /// Checks that both selectors can take the priority.
    ///
    /// # Errors
    /// [`Error::InvalidPriority`].
    #[inline]
    pub fn check_priority(&self, priority: f64) -> Result<()> {
        self.config.check_priority(priority)
    }

    /// Checks that both selectors can take the priority of the item, also if it is the largest so far.
    ///
    /// # Errors
    /// [`Error::InvalidPriority`].
    #[inline]
    fn check_new_priority(&self, item: &NewItem) -> Result<()> {
        if item.takes_largest {
            self.config.check_takes_largest()?;
            item.others.iter().try_for_each(|others| self.check_priority(others.priority))?;
        }
        self.check_priority(item.priority)
    }

    /// Checks that the table can take the item. Changes nothing.
    ///
    /// # Errors
    /// [`Error::InvalidPriority`]; [`Error::InvalidArgument`] if `times_sampled` is negative;
    /// [`Error::SignatureMismatch`]; [`Error::ItemTooLarge`] if the chunks of the item alone exceed `max_bytes`.
    pub fn check_item(&self, item: &NewItem) -> Result<()> {
        self.config.check_signature(&item.trajectory)?;
        self.check_not_validated(item)
    }

    /// As [`Table::check_item`], but without the signature: for an item whose writer opted out of that check.
    ///
    /// # Errors
    /// The errors of [`Table::check_item`] except [`Error::SignatureMismatch`].
    pub fn check_not_validated(&self, item: &NewItem) -> Result<()> {
        self.check_new_priority(item)?;
        if item.times_sampled < 0 {
            return Err(Error::invalid(format!("times_sampled must not be negative, got {}", item.times_sampled)));
        }
        self.check_size(&item.trajectory)
    }

    /// Checks a whole batch as [`Table::check_item`] does. Fails with the index of the first refused item and the
    /// reason.
    ///
    /// Properties that an item shares with the one before, such as rows of the same chunk, are not checked again.
    ///
    /// # Errors
    /// The errors of [`Table::check_item`]; then no item may be inserted.
    pub fn check_items(&self, items: &[NewItem]) -> std::result::Result<(), (usize, Error)> {
        let Some(mut before) = items.first() else { return Ok(()) };
        self.check_item(before).map_err(|error| (0, error))?;
        for (index, item) in items.iter().enumerate().skip(1) {
            let is_alike = before.is_like(item);
            if !(is_alike && before.has_priority_of(item)) {
                let checked = if is_alike { self.check_new_priority(item) } else { self.check_item(item) };
                checked.map_err(|error| (index, error))?;
            }
            before = item;
        }
        Ok(())
    }

    fn check_size(&self, trajectory: &Trajectory) -> Result<()> {
        let Some(max_bytes) = self.config.max_bytes else {
            return Ok(());
        };
        let size_bytes = match trajectory {
            Trajectory::Rows { chunk, .. } => chunk.size_bytes() as u64,
            Trajectory::Columns(_) => {
                let chunks = trajectory.chunks();
                chunks.iter().map(|chunk| chunk.size_bytes() as u64).sum()
            }
        };
        if size_bytes > max_bytes {
            return Err(Error::ItemTooLarge { table: self.config.name.clone(), size_bytes, max_bytes });
        }
        Ok(())
    }
}
