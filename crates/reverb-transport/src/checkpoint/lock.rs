//! Keeps a second server out of a folder of checkpoints.

use super::disk::storage_error;
use parking_lot::Mutex;
use reverb_core::{Error, Result, fork};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file that is locked.
pub const LOCK: &str = ".reverb-lock";

/// Folders that this process holds. The system's lock is one of processes: it would let a second server of this one in.
static HELD: Mutex<Vec<(u32, PathBuf)>> = Mutex::new(Vec::new());

/// Held until dropped, or until the process ends.
#[derive(Debug)]
pub struct FolderLock {
    root: PathBuf,
    generation: u32,
    file: Option<File>,
}

impl FolderLock {
    /// Locks the folder `root`, which exists.
    ///
    /// A POSIX lock of a record rather than a lock of the open file: a forked child, which has the file too, does not
    /// keep it when the parent ends.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if another server has it, naming its process; [`Error::Storage`].
    pub fn take(root: &Path) -> Result<Self> {
        let root = root.canonicalize().map_err(|error| storage_error("cannot open", root, &error))?;
        let generation = fork::generation();
        let mut held = HELD.lock();
        if held.contains(&(generation, root.clone())) {
            return Err(Error::invalid(format!(
                "another server of this process keeps its checkpoints in {}: stop it first, or choose another folder",
                root.display()
            )));
        }
        let path = root.join(LOCK);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(|error| storage_error("cannot open", &path, &error))?;
        let mut lock = whole_file();
        // SAFETY: the file is open, and the structure outlives the call.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &lock) } != 0 {
            let error = io::Error::last_os_error();
            if !matches!(error.raw_os_error(), Some(libc::EACCES | libc::EAGAIN)) {
                return Err(storage_error("cannot lock", &path, &error));
            }
            // SAFETY: as above; the call writes to the structure.
            let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut lock) };
            let holder =
                if asked == 0 && lock.l_pid > 0 { format!("process {}", lock.l_pid) } else { "another".into() };
            return Err(Error::invalid(format!(
                "the server of {holder} keeps its checkpoints in {}: stop it first, or choose another folder",
                root.display()
            )));
        }
        held.push((generation, root.clone()));
        Ok(Self { root, generation, file: Some(file) })
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // Closing the file unlocks it for the whole process, so nobody may have taken the lock anew before that. In a
        // forked child the list may have been locked for ever at the fork; there nobody holds anything.
        let held = HELD.try_lock_for(Duration::from_millis(100));
        self.file = None;
        if let Some(mut held) = held {
            held.retain(|held| *held != (self.generation, self.root.clone()));
        }
    }
}

fn whole_file() -> libc::flock {
    // SAFETY: all fields are numbers, for which 0 is a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as _;
    lock.l_whence = libc::SEEK_SET as _;
    lock
}
