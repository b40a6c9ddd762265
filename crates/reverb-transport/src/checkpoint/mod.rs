//! Checkpoints: the state of all tables in a folder, from which a server goes on after it was stopped or killed.
//!
//! The files are the reference's, so either can load what the other saved; what its format has no place for lies in a
//! file of our own beside. See `save.rs` for what is written, `load.rs` for what is read, `folder.rs` for names.
//!
//! A save takes a snapshot of all tables under all their locks, which copies pointers, and writes it without a lock. It
//! writes to a folder of another name, syncs, renames, and reads the new checkpoint once more before an older one goes.

pub mod disk;
mod folder;
mod inflate;
mod item;
mod load;
mod lock;
mod progress;
mod reader;
mod record;
mod record_file;
mod record_stream;
mod restore;
mod save;
mod sidecar;
mod table;

pub(crate) use reader::to_batch;
pub use reader::{CheckpointBatch, CheckpointReader, Summary, list, verify};
pub use record::{RecordReader, RecordWriter};
pub use restore::LoadOptions;
pub use table::{TableRecord, decode_table};

use crate::table_handle::{TableHandle, snapshot_all};
use disk::{Disk, RealDisk, storage_error};
use lock::FolderLock;
use parking_lot::Mutex;
use reverb_core::{Error, Result, TableSnapshot};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use time::OffsetDateTime;

/// Where and how a server keeps its checkpoints.
#[derive(Debug, Clone)]
pub struct CheckpointOptions {
    /// The folder in which they lie, one folder each.
    pub root: PathBuf,
    /// Of the reference, where anything but the empty one fails each save; so it does here.
    pub group: String,
    /// Loaded if the root has none.
    pub fallback: Option<PathBuf>,
    /// How many good ones are kept, at least 1.
    pub keep: usize,
    /// zlib's level: 0 stores.
    pub compression: u32,
    /// Time between saves in the background; `None` for none.
    pub interval: Option<Duration>,
    /// Whether a server saves once more when it stops.
    pub save_on_stop: bool,
    /// Whether the root goes with the server if nothing was saved there.
    pub is_temporary: bool,
    /// What is loaded, and how.
    pub load: LoadOptions,
}

/// Saves and loads the tables of one server.
#[derive(Debug)]
pub struct Checkpointer {
    options: CheckpointOptions,
    disk: Arc<dyn Disk>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `Err` says why nothing can be saved.
    lock: Result<FolderLock>,
    /// Whether the folder itself is on the disk for sure.
    is_root_synced: bool,
    /// Names of checkpoints that this process has read whole.
    verified: HashSet<String>,
    /// Names of those that it has found damaged, and said so.
    damaged: HashSet<String>,
}

impl Checkpointer {
    /// Takes the folder for itself, making it if need be, and removes what a killed process has begun there.
    ///
    /// A folder that cannot be written to can still be loaded from: saves fail then.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if another server has the folder.
    pub fn open(options: CheckpointOptions) -> Result<Self> {
        Self::with_disk(options, Arc::new(RealDisk))
    }

    /// As [`Checkpointer::open`], with a file system of the caller's.
    pub fn with_disk(options: CheckpointOptions, disk: Arc<dyn Disk>) -> Result<Self> {
        let root = options.root.clone();
        let lock = match Self::prepare(&*disk, &options) {
            Err(error @ Error::InvalidArgument(_)) => return Err(error),
            Err(error) => {
                tracing::warn!("checkpoints cannot be saved in {}: {error}", root.display());
                Err(error)
            }
            Ok(lock) => Ok(lock),
        };
        let state = State { lock, is_root_synced: false, verified: HashSet::new(), damaged: HashSet::new() };
        Ok(Self { options, disk, state: Mutex::new(state) })
    }

    fn prepare(disk: &dyn Disk, options: &CheckpointOptions) -> Result<FolderLock> {
        let root = &options.root;
        disk.create_dir_all(root).map_err(|error| storage_error("cannot make", root, &error))?;
        let lock = FolderLock::take(root)?;
        folder::remove_leftovers(disk, root)?;
        Ok(lock)
    }

    /// The options.
    pub fn options(&self) -> &CheckpointOptions {
        &self.options
    }

    /// Loads what the options say into tables that are not served yet. Returns the checkpoint's path, `None` if there is
    /// none to load. Tables change all together, or not at all.
    ///
    /// # Errors
    /// [`Error::DataLoss`], naming each checkpoint, if there are some and none is good; [`Error::InvalidArgument`] if a
    /// table is not here or its signature is another; [`Error::Storage`].
    pub fn restore(&self, tables: &[TableHandle], limit_bytes: u64) -> Result<Option<PathBuf>> {
        restore::restore(&*self.disk, &self.options, tables, limit_bytes)
    }

    /// Saves the tables as they are at one moment, then removes older checkpoints beyond those to be kept. One save runs
    /// at a time; others wait for it. Returns the checkpoint's path once it is on the disk and was read again.
    ///
    /// # Errors
    /// [`Error::Storage`], if the folder cannot be written to or is full: then all is as before.
    pub fn save(&self, tables: &[TableHandle]) -> Result<PathBuf> {
        if !self.options.group.is_empty() {
            return Err(Error::invalid("Setting non-empty group is not supported"));
        }
        let mut state = self.state.lock();
        state.lock.as_ref().map_err(Clone::clone)?;
        if !state.is_root_synced {
            self.sync_root()?;
            state.is_root_synced = true;
        }
        let begun = Instant::now();
        let (disk, root) = (&*self.disk, &self.options.root);
        let name = folder::new_name(&folder::checkpoints(disk, root)?, OffsetDateTime::now_utc())?;
        let path = root.join(&name);
        let saving = folder::saving_path(root, &name);
        let saved = self.write(&saving, &path, snapshot_all(tables));
        if let Err(error) = saved {
            if let Err(left) = folder::remove_files(disk, &saving) {
                tracing::warn!("a checkpoint that could not be saved is left over: {left}");
            }
            return Err(error);
        }
        state.verified.insert(name);
        tracing::info!("saved checkpoint {} in {:.1} s", path.display(), begun.elapsed().as_secs_f64());
        if let Err(error) = self.prune(&mut state) {
            tracing::warn!("checkpoint {} is saved, but older ones could not be removed: {error}", path.display());
        }
        Ok(path)
    }

    /// The folder may be new, and so may those above it.
    fn sync_root(&self) -> Result<()> {
        let root = &self.options.root;
        self.disk.create_dir_all(root).map_err(|error| storage_error("cannot make", root, &error))?;
        for folder in root.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty()) {
            // Folders of others may not be open to us; they were there before.
            let _theirs = self.disk.sync_dir(folder);
        }
        Ok(())
    }

    fn write(&self, saving: &Path, path: &Path, snapshots: Vec<TableSnapshot>) -> Result<()> {
        let disk = &*self.disk;
        let sidecar = save::write_checkpoint(disk, saving, snapshots, self.options.compression)?;
        // Read before it takes its place: until then it can be thrown away like any failed attempt.
        for name in sidecar.files.keys() {
            load::check_file(disk, saving, name, &sidecar)?;
        }
        if load::read_sidecar(disk, saving)? != sidecar {
            return Err(Error::DataLoss(format!("{} was read otherwise than it was written", saving.display())));
        }
        disk.rename(saving, path).map_err(|error| storage_error("cannot rename", saving, &error))?;
        let root = &self.options.root;
        disk.sync_dir(root).map_err(|error| storage_error("cannot sync", root, &error))
    }

    /// Removes our own good checkpoints beyond those to be kept. One that is damaged stays, and does not count.
    fn prune(&self, state: &mut State) -> Result<()> {
        let (disk, root) = (&*self.disk, &self.options.root);
        let mut good = 0;
        for entry in folder::checkpoints(disk, root)? {
            if !entry.is_ours || entry.time.is_none() || state.damaged.contains(&entry.name) {
                continue;
            }
            if !state.verified.contains(&entry.name) {
                match verify_files(disk, &root.join(&entry.name)) {
                    Ok(()) => drop(state.verified.insert(entry.name.clone())),
                    Err(error) => {
                        tracing::warn!("checkpoint {} is damaged, and kept: {error}", entry.name);
                        state.damaged.insert(entry.name);
                        continue;
                    }
                }
            }
            good += 1;
            if good > self.options.keep {
                folder::remove(disk, root, &entry.name)?;
                state.verified.remove(&entry.name);
            }
        }
        Ok(())
    }

    /// Lets go of the folder. Waits for a save that runs; later ones fail.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.lock = Err(Error::Cancelled("the server was stopped; it saves no more checkpoints".into()));
        let root = &self.options.root;
        if self.options.is_temporary
            && folder::files_of(&*self.disk, root).is_ok_and(|files| files.is_some_and(is_unused))
        {
            let _gone = self.disk.remove_file(&root.join(lock::LOCK));
            let _gone = self.disk.remove_dir(root);
        }
    }
}

/// Whether nothing was ever saved in a folder of these names.
fn is_unused(names: Vec<String>) -> bool {
    names.iter().all(|name| name == lock::LOCK)
}

/// Compares all files of a checkpoint of ours with their hashes.
fn verify_files(disk: &dyn Disk, path: &Path) -> Result<()> {
    let sidecar = load::read_sidecar(disk, path)?;
    [folder::TABLES, folder::ITEMS, folder::CHUNKS]
        .iter()
        .try_for_each(|name| load::check_file(disk, path, name, &sidecar))
}
