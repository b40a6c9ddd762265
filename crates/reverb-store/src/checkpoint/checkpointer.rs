//! The checkpoints of one server: saves its tables to a folder and loads them from there.

use super::definition::changeable;
use super::logged::{Restarted, oldest_epoch, restart};
use super::options::{CheckpointOptions, Durability};
use super::restore::Loaded;
use super::status::StatusBoard;
use super::{folder, load, restore, save};
use crate::disk::{Disk, RealDisk, storage_error};
use crate::durable::{self, LeftOver, LogJournal, LogPlace};
use crate::lock::{self, FolderLock};
use crate::log::{Fence, Position};
use parking_lot::Mutex;
use reverb_core::{Error, Result, Table, TableConfig, TableSnapshot};
use reverb_service::write_ledger::Ledgers;
use reverb_service::{Store, StoreLog, StoreStatus, TableHandle, snapshot_all};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use time::OffsetDateTime;

/// Time after a failed save before the next attempt to heal a closed log.
const HEAL_TIME: Duration = Duration::from_secs(10);
/// Time after a failed save before the next one that a long log asks for. Each leaves a segment.
const RETRY_TIME: Duration = Duration::from_secs(60);

/// Saves and loads the tables of one server. Implements [`Store`].
#[derive(Debug)]
pub struct Checkpointer {
    options: CheckpointOptions,
    disk: Arc<dyn Disk>,
    state: Mutex<CheckpointerState>,
    board: StatusBoard,
    /// Where the log of changes between checkpoints is.
    log_place: LogPlace,
    /// Writes that log, after the restore.
    journal: OnceLock<Arc<LogJournal>>,
    due: Mutex<Due>,
}

/// What makes a save due that no interval asks for, besides the log.
#[derive(Debug, Clone, Copy, Default)]
struct Due {
    /// Whether none was saved since a log was repeated.
    after_start: bool,
    /// When the last save failed.
    failed_at: Option<Instant>,
}

#[derive(Debug)]
struct CheckpointerState {
    /// The lock of the folder, or the reason why saves fail.
    lock: Result<FolderLock>,
    /// Whether the folder itself is known to be on disk.
    is_root_synced: bool,
    /// Names of checkpoints that this process has read and verified.
    verified: HashSet<String>,
    /// Names of damaged checkpoints, which were reported to the log.
    damaged: HashSet<String>,
    /// The changeable options with which the server has defined its tables, by the names of the tables.
    defined: HashMap<String, BTreeMap<String, String>>,
}

impl Checkpointer {
    /// Creates the folder if it is missing, locks it, and removes incomplete checkpoints of killed processes.
    ///
    /// If the folder is not writable, checkpoints can still be loaded, but saves fail, unless the options refuse that.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if another server has locked the folder; [`Error::Storage`] if it must be writable and
    /// is not.
    pub fn open(options: CheckpointOptions) -> Result<Self> {
        Self::with_disk(options, Arc::new(RealDisk))
    }

    /// As [`Checkpointer::open`], with a given file system for checkpoints.
    ///
    /// # Errors
    /// Those of [`Checkpointer::open`].
    pub fn with_disk(options: CheckpointOptions, disk: Arc<dyn Disk>) -> Result<Self> {
        let log_place = LogPlace::new(Arc::new(RealDisk), options.root.clone());
        Self::with_log_place(options, disk, log_place)
    }

    /// As [`Checkpointer::open`], with given file systems for checkpoints and for the log.
    ///
    /// # Errors
    /// Those of [`Checkpointer::open`].
    pub fn with_log_place(options: CheckpointOptions, disk: Arc<dyn Disk>, log_place: LogPlace) -> Result<Self> {
        let root = options.root.clone();
        let lock = match Self::prepare(&*disk, &options) {
            Err(error @ Error::InvalidArgument(_)) => return Err(error),
            Err(Error::Storage(why)) if options.must_be_writable || options.durability.is_some() => {
                return Err(Error::Storage(format!(
                    "{why}. A server that saves needs a folder that it can write to. To load a checkpoint from another \
                     one, name it as `load_path`"
                )));
            }
            Err(error) => {
                tracing::warn!("checkpoints cannot be saved in {}: {error}", root.display());
                Err(error)
            }
            Ok(lock) => Ok(lock),
        };
        let state = CheckpointerState {
            lock,
            is_root_synced: false,
            verified: HashSet::new(),
            damaged: HashSet::new(),
            defined: HashMap::new(),
        };
        Ok(Self {
            options,
            disk,
            state: Mutex::new(state),
            board: StatusBoard::default(),
            log_place,
            journal: OnceLock::new(),
            due: Mutex::default(),
        })
    }

    fn prepare(disk: &dyn Disk, options: &CheckpointOptions) -> Result<FolderLock> {
        let root = &options.root;
        disk.create_dir_all(root).map_err(|error| storage_error("cannot create", root, &error))?;
        let lock = FolderLock::take(root)?;
        folder::remove_leftovers(disk, root)?;
        if options.must_be_writable {
            // The file of the lock may be older than a change of the folder's owner.
            let probe = folder::saving_path(root, "probe");
            let made = disk.create_dir_all(&probe).and_then(|()| disk.remove_dir(&probe));
            made.map_err(|error| storage_error("cannot write to", root, &error))?;
        }
        Ok(lock)
    }

    /// Loads the checkpoint that the options select into tables that are not served yet. Refuses chunks of more than
    /// `limit_bytes` bytes in checkpoints that this package has not written. Returns the path of the checkpoint, or
    /// `None` if there is none to load. If a checkpoint or a log cannot be read, all tables are unchanged.
    ///
    /// With a log, it repeats what was confirmed since the checkpoint, restores the ledgers of writers, and begins to write
    /// the log. Without, it refuses a folder with a log that has such changes.
    ///
    /// # Errors
    /// [`Error::DataLoss`], naming each checkpoint, if all of them are damaged, or naming the files of a log that cannot
    /// be repeated; [`Error::InvalidArgument`] if a table does not exist on the server; [`Error::SignatureMismatch`] if
    /// its signature differs; [`Error::Storage`] if a file cannot be read, or the log cannot be written.
    pub fn restore(&self, tables: &[TableHandle], ledgers: &Ledgers, limit_bytes: u64) -> Result<Option<PathBuf>> {
        let begun = Instant::now();
        let here: Vec<TableConfig> =
            tables.iter().map(|table| table.with_table(|table| table.config().clone())).collect();
        self.state.lock().defined = here.iter().map(|config| (config.name.clone(), changeable(config))).collect();
        let load = || restore::load(&*self.disk, &self.options, &here, limit_bytes, &self.board);
        let restored = match self.options.durability {
            Some(durability) => self.restore_with_log(durability, (tables, &here), ledgers, &load)?,
            None => {
                let loaded = load()?;
                let log = loaded.as_ref().and_then(|loaded| loaded.log);
                let left_over = durable::left_over(&self.log_place, log, self.options.accept_loss)?;
                let path = loaded.map(|loaded| {
                    restore::install(loaded.tables, tables);
                    loaded.path
                });
                // A folder that cannot be written to keeps its log.
                if let Some(left_over) = left_over.filter(|_| self.state.lock().lock.is_ok()) {
                    // A server elsewhere that still writes it ends.
                    Fence::claim(self.log_place.disk.clone(), &self.log_place.folder)?;
                    self.make_room(left_over, tables)?;
                }
                path
            }
        };
        if let Some(path) = &restored {
            self.board.note_restored(path);
            let (seconds, path) = (begun.elapsed().as_secs_f64(), path.display());
            tracing::info!(path = %path, seconds, "loaded checkpoint {path} in {seconds:.1} s");
        }
        Ok(restored)
    }

    fn restore_with_log(
        &self,
        durability: Durability,
        (tables, here): (&[TableHandle], &[TableConfig]),
        ledgers: &Ledgers,
        load: &dyn Fn() -> Result<Option<Loaded>>,
    ) -> Result<Option<PathBuf>> {
        let place = &self.log_place;
        let restarted = restart(&self.options, place, (tables, here), ledgers, load)?;
        let Restarted { path, fence, start, left_over, must_save } = restarted;
        if let Some(left_over) = left_over {
            self.make_room(left_over, tables)?;
        }
        let journal = LogJournal::start((place.clone(), durability), (fence, start), tables, ledgers)?;
        let journal = self.journal.get_or_init(|| journal);
        if let Err(closed) = &self.state.lock().lock {
            // The caller has given up meanwhile, and closed this, without a journal to stop.
            journal.stop()?;
            return Err(closed.clone());
        }
        self.due.lock().after_start = true;
        if must_save {
            self.save(tables)?;
        }
        Ok(path)
    }

    /// Saves a checkpoint that names no log, and only then lets go of one that no start will repeat.
    fn make_room(&self, left_over: LeftOver, tables: &[TableHandle]) -> Result<()> {
        self.save(tables)?;
        left_over.make_room(&self.log_place)
    }

    /// Saves the state of the tables at one moment, then removes older checkpoints beyond the number to keep. Saves run
    /// one at a time. Returns the path of the checkpoint when it is on disk and was read back.
    ///
    /// # Errors
    /// [`Error::Storage`] if the folder cannot be written to, [`Error::DataLoss`] if the files read back differ,
    /// [`Error::InvalidArgument`] if the options name a group, [`Error::Cancelled`] after [`Checkpointer::close`].
    /// Existing checkpoints are kept then.
    pub fn save(&self, tables: &[TableHandle]) -> Result<PathBuf> {
        let mut begun = Instant::now();
        let saved = self.save_in_turn(tables, &mut begun);
        self.board.note_save(&saved, begun.elapsed());
        let mut due = self.due.lock();
        due.failed_at = saved.is_err().then(Instant::now);
        due.after_start &= saved.is_err();
        saved
    }

    /// Says why the last checkpoint could not be saved, and what is lost with it.
    fn lost(&self, tables: &[TableHandle], why: &str) -> String {
        let items: usize = tables.iter().map(|table| table.with_table(Table::len)).sum();
        let lost = match Store::status(self).saved.first() {
            Some(saved) => format!("all that was done since {} was saved is lost", saved.path.display()),
            None => "all of it is lost, because there is no checkpoint".into(),
        };
        format!("the last checkpoint could not be saved: {why}. The tables have {items} items; {lost}")
    }

    /// As [`Checkpointer::save`]. Sets `begun` when its turn comes.
    fn save_in_turn(&self, tables: &[TableHandle], begun: &mut Instant) -> Result<PathBuf> {
        if !self.options.group.is_empty() {
            return Err(Error::invalid("Setting non-empty group is not supported"));
        }
        let mut state = self.state.lock();
        state.lock.as_ref().map_err(Clone::clone)?;
        if !state.is_root_synced {
            self.sync_root()?;
            state.is_root_synced = true;
        }
        *begun = Instant::now();
        let (disk, root) = (&*self.disk, &self.options.root);
        let name = folder::new_name(&folder::checkpoints(disk, root)?, OffsetDateTime::now_utc())?;
        let path = root.join(&name);
        let saving = folder::saving_path(root, &name);
        let journal = self.journal.get();
        let (log, snapshots) = match journal {
            Some(journal) => journal.begin_epoch().map(|(begin, snapshots)| (Some(begin), snapshots))?,
            None => (None, snapshot_all(tables)),
        };
        let write = |disk: &dyn Disk| self.write(disk, (&saving, &path), snapshots, &state.defined, log);
        let bytes = self.board.saving(disk, &path, write).inspect_err(|_| {
            if let Some(journal) = journal {
                // A name that could not be synced may stay.
                journal.not_saved(!matches!(folder::files_of(disk, &path), Ok(None)));
            }
            if let Err(left) = folder::remove_files(disk, &saving) {
                tracing::warn!("an incomplete checkpoint could not be removed: {left}");
            }
        })?;
        self.board.note_verified(&name);
        state.verified.insert(name);
        let (seconds, shown) = (begun.elapsed().as_secs_f64(), path.display());
        tracing::info!(path = %shown, bytes, seconds, "saved checkpoint {shown} in {seconds:.1} s");
        if let Err(error) = self.prune(&mut state) {
            tracing::warn!("checkpoint {} is saved, but older ones could not be removed: {error}", path.display());
        }
        if let (Some(journal), Some(Position { log_id, .. })) = (journal, log) {
            journal.saved(oldest_epoch(disk, root, log_id, &state.damaged), bytes)?;
        }
        Ok(path)
    }

    /// Syncs the folders above the root, which may be new, like the root itself.
    fn sync_root(&self) -> Result<()> {
        let root = &self.options.root;
        self.disk.create_dir_all(root).map_err(|error| storage_error("cannot create", root, &error))?;
        for folder in root.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty()) {
            match self.disk.sync_dir(folder) {
                // Folders that this process may not open existed before, so they need no sync. Some systems cannot sync
                // any.
                Err(error) if !matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::InvalidInput) => {
                    return Err(storage_error("cannot sync", folder, &error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes a checkpoint, and returns the size of its files.
    fn write(
        &self,
        disk: &dyn Disk,
        (saving, path): (&Path, &Path),
        snapshots: Vec<TableSnapshot>,
        defined: &HashMap<String, BTreeMap<String, String>>,
        log: Option<Position>,
    ) -> Result<u64> {
        let sidecar = save::write_checkpoint(disk, saving, snapshots, self.options.compression, defined, log)?;
        // Verified before the rename, so that a damaged checkpoint is removed like any other failed save.
        for name in sidecar.files.keys() {
            load::check_file(disk, saving, name, &sidecar)?;
        }
        if load::read_sidecar(disk, saving)? != sidecar {
            return Err(Error::DataLoss(format!("{} differs from the file that was written", saving.display())));
        }
        disk.rename(saving, path).map_err(|error| storage_error("cannot rename", saving, &error))?;
        let root = &self.options.root;
        disk.sync_dir(root).map_err(|error| storage_error("cannot sync", root, &error))?;
        Ok(sidecar.files.values().map(|file| file.size).sum())
    }

    /// Removes good checkpoints of this package beyond the number to keep. Damaged ones are kept and not counted.
    fn prune(&self, state: &mut CheckpointerState) -> Result<()> {
        let (disk, root) = (&*self.disk, &self.options.root);
        let mut good = 0;
        for entry in folder::checkpoints(disk, root)? {
            if !entry.is_ours || entry.time.is_none() || state.damaged.contains(&entry.name) {
                continue;
            }
            if !state.verified.contains(&entry.name) {
                match verify_files(disk, &root.join(&entry.name)) {
                    Ok(()) => {
                        self.board.note_verified(&entry.name);
                        state.verified.insert(entry.name.clone());
                    }
                    Err(error) => {
                        tracing::warn!("checkpoint {} is damaged and is kept: {error}", entry.name);
                        state.damaged.insert(entry.name);
                        continue;
                    }
                }
            }
            good += 1;
            if good > self.options.keep {
                folder::remove(disk, root, &entry.name)?;
                state.verified.remove(&entry.name);
                self.board.note_removed(&entry.name);
            }
        }
        Ok(())
    }

    /// Syncs the log, and unlocks the folder. Waits for a running save. Later saves fail.
    ///
    /// # Errors
    /// [`Error::Storage`] if the log could not be synced.
    pub fn close(&self) -> Result<()> {
        let mut state = self.state.lock();
        let stopped = self.journal.get().map_or(Ok(()), |journal| journal.stop());
        state.lock = Err(Error::Cancelled("the server was stopped and cannot save checkpoints".into()));
        let root = &self.options.root;
        if self.options.is_temporary
            && folder::files_of(&*self.disk, root).is_ok_and(|files| files.is_some_and(is_unused))
        {
            let _gone = self.disk.remove_file(&root.join(lock::LOCK));
            let _gone = self.disk.remove_dir(root);
        }
        stopped
    }
}

impl Store for Checkpointer {
    fn save(&self, tables: &[TableHandle]) -> Result<PathBuf> {
        Self::save(self, tables)
    }

    fn save_last(&self, tables: &[TableHandle]) -> Result<PathBuf> {
        Self::save(self, tables).map_err(|error| match error {
            Error::Storage(why) => Error::Storage(self.lost(tables, &why)),
            Error::DataLoss(why) => Error::DataLoss(self.lost(tables, &why)),
            error => error,
        })
    }

    fn interval(&self) -> Option<Duration> {
        self.options.interval
    }

    fn saves_on_stop(&self) -> bool {
        self.options.save_on_stop
    }

    fn failure(&self) -> Option<String> {
        self.board.failure()
    }

    fn wants_save(&self) -> bool {
        let Some(journal) = self.journal.get() else { return false };
        let Due { after_start, failed_at } = *self.due.lock();
        let pause = if journal.is_closed() { HEAL_TIME } else { RETRY_TIME };
        failed_at.is_none_or(|at| at.elapsed() >= pause) && (after_start || journal.wants_save())
    }

    fn log(&self) -> Option<StoreLog> {
        self.journal.get()?.status()
    }

    fn status(&self) -> StoreStatus {
        StoreStatus { log: self.log(), ..self.board.status(&*self.disk, &self.options.root) }
    }

    fn close(&self) -> Result<()> {
        Self::close(self)
    }
}

/// Whether a folder with these names has never held a checkpoint.
fn is_unused(names: Vec<String>) -> bool {
    names.iter().all(|name| name == lock::LOCK)
}

/// Compares all files of a checkpoint with the hashes in its sidecar.
fn verify_files(disk: &dyn Disk, path: &Path) -> Result<()> {
    let sidecar = load::read_sidecar(disk, path)?;
    [folder::TABLES, folder::ITEMS, folder::CHUNKS]
        .iter()
        .try_for_each(|name| load::check_file(disk, path, name, &sidecar))
}
