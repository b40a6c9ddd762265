//! The interface between a service and the store of its tables.

use crate::table_handle::TableHandle;
use reverb_core::Result;
use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

/// Saves the state of tables, so that a server can restore it after a restart.
pub trait Store: Debug + Send + Sync {
    /// Saves the state of the tables at one moment and returns its path. Blocks until the state is on disk.
    ///
    /// # Errors
    /// [`reverb_core::Error::Storage`] if it cannot be written. Earlier states are kept then.
    fn save(&self, tables: &[TableHandle]) -> Result<PathBuf>;

    /// Returns the time between saves in the background. `None` disables them.
    fn interval(&self) -> Option<Duration>;

    /// Whether a server saves once more when it stops.
    fn saves_on_stop(&self) -> bool;

    /// Lets other servers use the store. Waits for a running save. Later saves fail.
    fn close(&self);
}
