//! The interface between a service and the store of its tables.

use crate::table_handle::TableHandle;
use reverb_core::Result;
use std::fmt::Debug;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// Saves the state of tables, so that a server can restore it after a restart.
pub trait Store: Debug + Send + Sync {
    /// Saves the state of the tables at one moment and returns its path. Blocks until the state is on disk.
    ///
    /// # Errors
    /// [`reverb_core::Error::Storage`] if it cannot be written. Earlier states are kept then.
    fn save(&self, tables: &[TableHandle]) -> Result<PathBuf>;

    /// As [`Store::save`], for a server that has stopped.
    ///
    /// # Errors
    /// Those of [`Store::save`]. They say what is lost.
    fn save_last(&self, tables: &[TableHandle]) -> Result<PathBuf>;

    /// Returns the time between saves in the background. `None` disables them.
    fn interval(&self) -> Option<Duration>;

    /// Whether a save is due that the interval does not ask for. Does not use the disk.
    fn wants_save(&self) -> bool;

    /// Whether a server saves once more when it stops.
    fn saves_on_stop(&self) -> bool;

    /// Returns the error of the latest save, if it failed. Does not use the disk.
    fn failure(&self) -> Option<String>;

    /// Returns what the log tells of itself, if there is one. Does not use the disk.
    fn log(&self) -> Option<StoreLog>;

    /// Returns what the store has done so far, without waiting for a save. The server's documents and metrics show it.
    fn status(&self) -> StoreStatus;

    /// Lets other servers use the store. Waits for a running save. Later saves fail.
    ///
    /// # Errors
    /// [`reverb_core::Error::Storage`] if the log could not be synced. Says what may be lost.
    fn close(&self) -> Result<()>;
}

/// What a store has done since it was opened.
#[derive(Debug, Clone, Default)]
pub struct StoreStatus {
    /// Where states are saved.
    pub path: PathBuf,
    /// Number of saves that succeeded.
    pub saves_ok: u64,
    /// Number of saves that failed.
    pub saves_failed: u64,
    /// The error of the latest save, if it failed.
    pub last_error: Option<String>,
    /// Progress of the save that is running.
    pub saving: Option<StoreProgress>,
    /// Progress of the load that is running.
    pub loading: Option<StoreProgress>,
    /// The state that was loaded at the start.
    pub restored_from: Option<PathBuf>,
    /// Time at which that state was saved. `None` also if that is not known.
    pub restored_saved_at: Option<SystemTime>,
    /// Saved states, newest first.
    pub saved: Vec<SavedState>,
    /// The log of changes since the newest state. `None` if there is none.
    pub log: Option<StoreLog>,
}

/// What a confirmed change survives. A later mode survives more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogMode {
    /// Any end of the process: the system has the change.
    Process,
    /// Also a loss of power: the change is on disk.
    Power,
}

impl LogMode {
    /// The name that users pass and see.
    pub fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Power => "power",
        }
    }

    /// Returns the mode of this name. `None` if there is none.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Process, Self::Power].into_iter().find(|mode| mode.name() == name)
    }
}

/// What a store tells of its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreLog {
    /// What a confirmed change survives.
    pub mode: LogMode,
    /// Size in bytes. What earlier servers have written counts as the size of its files.
    pub size_bytes: u64,
    /// For how long something has been written and not synced. Zero if all is synced.
    pub sync_age: Duration,
    /// Time after which what was written is synced at the latest.
    pub sync_interval: Duration,
    /// Whether the disk has too little free space for the next segments and a save.
    pub is_low: bool,
    /// What has closed the log. `None` while it works.
    pub failure: Option<String>,
}

/// Progress of a save or of a load.
#[derive(Debug, Clone)]
pub struct StoreProgress {
    /// What is saved or loaded.
    pub path: PathBuf,
    /// Time at which it began.
    pub since: SystemTime,
    /// Number of bytes that were written or read.
    pub done_bytes: u64,
    /// Number of bytes in all. 0 if it is not known.
    pub total_bytes: u64,
}

/// A saved state.
#[derive(Debug, Clone)]
pub struct SavedState {
    /// Where it is.
    pub path: PathBuf,
    /// Time at which it was saved.
    pub saved_at: SystemTime,
    /// Size of its files in bytes.
    pub size_bytes: u64,
    /// Time that the save took. `None` if another process saved it.
    pub duration: Option<Duration>,
    /// Whether its files were read and compared with their hashes.
    pub is_verified: bool,
}
