//! The progress and results of a checkpointer's saves and loads. Nothing here waits for a save.

use super::folder::{self, CHUNKS, ITEMS, TABLES};
use super::sidecar::SIDECAR;
use crate::disk::{Disk, OutFile};
use parking_lot::Mutex;
use reverb_core::{Error, Result};
use reverb_service::{SavedState, StoreProgress, StoreStatus};
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

/// What a checkpointer has done and does now.
#[derive(Debug, Default)]
pub struct StatusBoard(Mutex<Board>);

#[derive(Debug, Default)]
struct Board {
    /// What is over: the counts and results of saves, and the checkpoint that was loaded.
    done: StoreStatus,
    saving: Option<Running>,
    loading: Option<Running>,
    /// Times that the saves of this process took, by the names of their checkpoints.
    durations: HashMap<String, Duration>,
    /// Names of checkpoints that this process has read and verified.
    verified: HashSet<String>,
    /// The checkpoints in the folder. `None` if they may have changed since they were listed.
    listed: Option<Vec<SavedState>>,
    /// Number of changes of the folder.
    changes: u64,
}

/// A save or a load that is running.
#[derive(Debug)]
struct Running {
    path: PathBuf,
    since: SystemTime,
    done: Arc<AtomicU64>,
    total_bytes: u64,
}

impl Running {
    fn progress(&self) -> StoreProgress {
        let done_bytes = self.done.load(Relaxed);
        StoreProgress { path: self.path.clone(), since: self.since, done_bytes, total_bytes: self.total_bytes }
    }
}

impl StatusBoard {
    /// Saves the checkpoint at `path` by `save`, which gets a file system that counts the bytes.
    pub fn saving<T>(&self, disk: &dyn Disk, path: &Path, save: impl FnOnce(&dyn Disk) -> T) -> T {
        let done = Arc::new(AtomicU64::new(0));
        let since = SystemTime::now();
        // How much will be written is not known before, because the data is compressed.
        self.0.lock().saving = Some(Running { path: path.into(), since, done: done.clone(), total_bytes: 0 });
        let result = save(&CountingDisk { disk, done });
        self.0.lock().saving = None;
        result
    }

    /// Loads the checkpoint at `path` by `load`, which gets a file system that counts the bytes.
    pub fn loading<T>(&self, disk: &dyn Disk, path: &Path, load: impl FnOnce(&dyn Disk) -> T) -> T {
        let done = Arc::new(AtomicU64::new(0));
        let (since, total_bytes) = (SystemTime::now(), size_of(disk, path));
        self.0.lock().loading = Some(Running { path: path.into(), since, done: done.clone(), total_bytes });
        let result = load(&CountingDisk { disk, done });
        self.0.lock().loading = None;
        result
    }

    /// Notes the result of a save.
    pub fn note_save(&self, result: &Result<PathBuf>, duration: Duration) {
        let board = &mut *self.0.lock();
        match result {
            Ok(path) => {
                board.done.saves_ok += 1;
                board.done.last_error = None;
                board.durations.extend(path.file_name().map(|name| (name.to_string_lossy().into_owned(), duration)));
            }
            // The server was stopped, and nothing has failed.
            Err(Error::Cancelled(_)) => {}
            Err(error) => {
                board.done.saves_failed += 1;
                board.done.last_error = Some(error.to_string());
            }
        }
        board.listed = None;
        board.changes += 1;
    }

    /// Notes that a checkpoint was read and verified.
    pub fn note_verified(&self, name: &str) {
        self.0.lock().verified.insert(name.into());
    }

    /// Notes that a checkpoint was removed.
    pub fn note_removed(&self, name: &str) {
        let board = &mut *self.0.lock();
        board.verified.remove(name);
        board.durations.remove(name);
    }

    /// Notes which checkpoint was loaded, and when it was saved, since a later save may remove it.
    pub fn note_restored(&self, path: &Path) {
        let done = &mut self.0.lock().done;
        done.restored_from = Some(path.into());
        done.restored_saved_at = path.file_name().and_then(|name| folder::time_of(name.to_str()?)).map(Into::into);
    }

    /// Returns the error of the latest save, if it failed.
    pub fn failure(&self) -> Option<String> {
        self.0.lock().done.last_error.clone()
    }

    /// Returns the status. Lists the folder only if it may have changed since it was listed last. Checkpoints whose
    /// names are not times are left out.
    pub fn status(&self, disk: &dyn Disk, root: &Path) -> StoreStatus {
        let changes = {
            let board = self.0.lock();
            if let Some(saved) = &board.listed {
                return board.status(root, saved.clone());
            }
            board.changes
        };
        // Without the lock, because a disk may be slow. An unreadable folder is listed as empty, and not again.
        let entries = folder::checkpoints(disk, root).unwrap_or_default();
        let sizes: Vec<_> = entries.iter().map(|entry| size_of(disk, &root.join(&entry.name))).collect();
        let board = &mut *self.0.lock();
        let saved = entries.into_iter().zip(sizes).filter_map(|(entry, size_bytes)| {
            Some(SavedState {
                path: root.join(&entry.name),
                saved_at: entry.time?.into(),
                size_bytes,
                duration: board.durations.get(&entry.name).copied(),
                is_verified: board.verified.contains(&entry.name),
            })
        });
        let saved: Vec<_> = saved.collect();
        if board.changes == changes {
            board.listed = Some(saved.clone());
        }
        board.status(root, saved)
    }
}

impl Board {
    fn status(&self, root: &Path, saved: Vec<SavedState>) -> StoreStatus {
        StoreStatus {
            path: root.into(),
            saving: self.saving.as_ref().map(Running::progress),
            loading: self.loading.as_ref().map(Running::progress),
            saved,
            ..self.done.clone()
        }
    }
}

/// Returns the size of the files of a checkpoint. Those that cannot be read do not count.
fn size_of(disk: &dyn Disk, path: &Path) -> u64 {
    [TABLES, ITEMS, CHUNKS, SIDECAR].iter().filter_map(|name| disk.size(&path.join(name)).ok()).sum()
}

/// A file system that counts the bytes that are read from files and written to them.
#[derive(Debug)]
struct CountingDisk<'a> {
    disk: &'a dyn Disk,
    done: Arc<AtomicU64>,
}

struct Counting<F> {
    file: F,
    done: Arc<AtomicU64>,
}

impl<F> Counting<F> {
    fn count(&self, bytes: io::Result<usize>) -> io::Result<usize> {
        if let Ok(bytes) = bytes {
            self.done.fetch_add(bytes as u64, Relaxed);
        }
        bytes
    }
}

impl Read for Counting<Box<dyn Read + Send>> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer);
        self.count(read)
    }
}

impl Write for Counting<Box<dyn OutFile>> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes);
        self.count(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl OutFile for Counting<Box<dyn OutFile>> {
    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }

    fn begin_sync(&mut self) {
        self.file.begin_sync();
    }
}

impl Disk for CountingDisk<'_> {
    fn create(&self, path: &Path) -> io::Result<Box<dyn OutFile>> {
        let file = self.disk.create(path)?;
        Ok(Box::new(Counting { file, done: self.done.clone() }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        let file = self.disk.open(path)?;
        Ok(Box::new(Counting { file, done: self.done.clone() }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir_all(path)
    }

    fn size(&self, path: &Path) -> io::Result<u64> {
        self.disk.size(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        self.disk.list(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_dir(path)
    }
}
