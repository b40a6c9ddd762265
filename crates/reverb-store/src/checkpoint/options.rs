//! Options of saving and loading checkpoints.

use reverb_core::{Error, Result};
use reverb_service::LogMode;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Options of the checkpoints of a server.
#[derive(Debug, Clone)]
pub struct CheckpointOptions {
    /// Folder of the checkpoints. Each checkpoint is a folder in it.
    pub root: PathBuf,
    /// Group of the reference. As in the reference, each save fails unless it is empty.
    pub group: String,
    /// Checkpoint to load if the root has none.
    pub fallback: Option<PathBuf>,
    /// Number of good checkpoints to keep, at least 1.
    pub keep: usize,
    /// Compression level of zlib, 0 to 9. 0 stores data uncompressed.
    pub compression: u32,
    /// Time between saves in the background. `None` disables them.
    pub interval: Option<Duration>,
    /// Whether a server saves once more when it stops.
    pub save_on_stop: bool,
    /// Whether the root is removed when the server stops, if nothing was saved there.
    pub is_temporary: bool,
    /// Whether a root that cannot be written is refused. Otherwise checkpoints can be loaded from it, and saves fail.
    pub must_be_writable: bool,
    /// Options of loading.
    pub load: LoadOptions,
    /// What keeps confirmed changes between saves. `None` if nothing does.
    pub durability: Option<Durability>,
    /// Whether a log that cannot be trusted, or that would not be replayed, is set aside. Otherwise it is refused.
    pub accept_loss: bool,
}

/// A log of all changes between saves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Durability {
    /// What a confirmed change survives.
    pub mode: LogMode,
    /// Time after which what was written is synced at the latest.
    pub sync_interval: Duration,
    /// Number of bytes of the log after which a checkpoint is saved. `None` for those of the tables, 1 GiB at least.
    pub max_log_bytes: Option<u64>,
}

/// Options of loading a checkpoint.
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    /// Checkpoint to load. `None` for the newest good one in the root.
    pub path: Option<PathBuf>,
    /// Names of the tables to load, each in the checkpoint and on the server. `None` for all, without renaming.
    pub tables: Option<Vec<(String, String)>>,
    /// Which definitions of tables hold: those of the server or the saved ones.
    pub definitions: Definitions,
}

/// Which definition of a table holds where that of the server differs from the saved one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Definitions {
    /// The saved one.
    #[default]
    Saved,
    /// The saved one, except for what was edited since: options that a running server can change are those of the
    /// server, unless the checkpoint was saved by a server that was defined with the same values. Then they were changed
    /// while that server ran.
    Edited,
    /// That of the server.
    Here,
}

impl CheckpointOptions {
    /// Whether a checkpoint is one of the server, whose log is beside it.
    pub fn is_own(&self, checkpoint: &Path) -> bool {
        self.load.path.is_none() && checkpoint.parent() == Some(&self.root)
    }
}

impl LoadOptions {
    /// Returns the name on the server of a table in the checkpoint. `None` if it is not to be loaded.
    pub(super) fn target_name<'a>(&'a self, saved: &'a str) -> Option<&'a str> {
        match &self.tables {
            None => Some(saved),
            Some(tables) => tables.iter().find(|(from, _)| from == saved).map(|(_, to)| to.as_str()),
        }
    }

    /// Checks that the checkpoint at `path` has all selected tables. `found` are the names of its tables.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] with the name of a missing table.
    pub(super) fn check_found(&self, path: &Path, found: &[String]) -> Result<()> {
        let Some((missing, _)) = self.tables.iter().flatten().find(|(name, _)| !found.contains(name)) else {
            return Ok(());
        };
        Err(Error::invalid(format!(
            "checkpoint {} has no table '{missing}'; it has: {}",
            path.display(),
            if found.is_empty() { "none of the selected tables".into() } else { found.join(", ") }
        )))
    }
}
