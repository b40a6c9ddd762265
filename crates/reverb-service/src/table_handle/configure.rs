//! Changes of a table's options.

use super::handle::{CLOSED, TableHandle};
use super::queue::OPERATIONS_PER_LOCK;
use reverb_core::{Error, Result, TableChanges};

impl TableHandle {
    /// Changes options of the table. Waiting requests are served at once if the new options allow it. The call returns
    /// when all items have left that no longer fit; others may use the table between steps of 16 384 removals.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if an option is not valid; see [`reverb_core::Table::configure`]. Nothing is changed
    /// then. [`Error::Cancelled`] if the server was stopped.
    pub fn configure(&self, changes: &TableChanges) -> Result<()> {
        let mut shrinking = self.change(|state, _| {
            if state.closed {
                return Err(Error::Cancelled(CLOSED.into()));
            }
            let shrinking = state.table.configure(changes)?;
            self.publish(state.table.config());
            Ok(shrinking)
        })?;
        while self.change(|state, removed| state.table.shrink(&mut shrinking, OPERATIONS_PER_LOCK, removed)) {}
        Ok(())
    }
}
