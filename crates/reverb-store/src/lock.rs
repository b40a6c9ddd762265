//! The lock of a folder of checkpoints: only one server at a time may write there (see `docs/decisions/020`).

use crate::disk::storage_error;
use crate::parent_file::ParentFile;
use parking_lot::Mutex;
use reverb_core::{Error, Result, fork};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Name of the file that is locked.
pub const LOCK: &str = ".reverb-lock";

/// The commands that lock a file and ask for its lock, best first. A system that does not know a command answers
/// `EINVAL`. Locks of the open file come first: locks of records end when this process closes any descriptor of the
/// file.
#[cfg(target_os = "linux")]
const COMMANDS: &[(libc::c_int, libc::c_int)] =
    &[(libc::F_OFD_SETLK, libc::F_OFD_GETLK), (libc::F_SETLK, libc::F_GETLK)];
#[cfg(not(target_os = "linux"))]
const COMMANDS: &[(libc::c_int, libc::c_int)] = &[(libc::F_SETLK, libc::F_GETLK)];

/// Folders that this process has locked. A lock of a record is held by a process, so it does not exclude a second
/// server of the same process.
static LOCKED_FOLDERS: Mutex<Vec<(u32, PathBuf)>> = Mutex::new(Vec::new());

/// A locked folder. The lock is released when this is dropped or the process ends.
#[derive(Debug)]
pub struct FolderLock {
    root: PathBuf,
    generation: u32,
    file: Option<ParentFile>,
}

impl FolderLock {
    /// Locks the folder `root`, which must exist.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if another server has locked the folder, naming its process; [`Error::Storage`] if
    /// the file cannot be opened or locked.
    pub fn take(root: &Path) -> Result<Self> {
        let root = root.canonicalize().map_err(|error| storage_error("cannot open", root, &error))?;
        let generation = fork::generation();
        let mut held = LOCKED_FOLDERS.lock();
        if held.contains(&(generation, root.clone())) {
            return Err(Error::invalid(format!(
                "another server of this process keeps its checkpoints in {}: stop it first or choose another folder",
                root.display()
            )));
        }
        let path = root.join(LOCK);
        let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = ParentFile::open(open).map_err(|error| storage_error("cannot open", &path, &error))?;
        if let Some(file) = file.get() {
            lock(file, &root)?;
            name_this_process(file);
        }
        held.push((generation, root.clone()));
        Ok(Self { root, generation, file: Some(file) })
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // Closing the file may release a lock that the whole process holds, so no other server of this process may take
        // it before that. In a forked child, the list may be locked and never released; the child holds no folder.
        let held = LOCKED_FOLDERS.try_lock_for(fork::LOCK_TIME);
        if let Some(file) = self.file.as_ref().and_then(ParentFile::get) {
            unlock(file);
        }
        self.file = None;
        if let Some(mut held) = held {
            held.retain(|held| *held != (self.generation, self.root.clone()));
        }
    }
}

/// Locks the file of the folder `root` with the first command that the system knows.
fn lock(file: &File, root: &Path) -> Result<()> {
    for &(set, ask) in COMMANDS {
        match control(file, set, libc::F_WRLCK) {
            Ok(_) => return Ok(()),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EACCES | libc::EAGAIN)) => {
                return Err(Error::invalid(format!(
                    "the server of {} keeps its checkpoints in {}: stop it first or choose another folder",
                    holder(file, ask),
                    root.display()
                )));
            }
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            Err(error) => return Err(storage_error("cannot lock", &root.join(LOCK), &error)),
        }
    }
    Err(storage_error("cannot lock", &root.join(LOCK), &io::Error::from_raw_os_error(libc::EINVAL)))
}

/// Unlocks the file even if another process still shares the open file, such as a child that is about to run a program.
fn unlock(file: &File) {
    for &(set, _) in COMMANDS {
        let _unknown = control(file, set, libc::F_UNLCK);
    }
}

/// Names the process that has locked the file. The system names it only for locks of records.
fn holder(file: &File, ask: libc::c_int) -> String {
    let named = control(file, ask, libc::F_WRLCK).map_or(0, |lock| lock.l_pid);
    let mut bytes = [0; 16];
    let written = file.read_at(&mut bytes, 0).map(|size| String::from_utf8_lossy(&bytes[..size]).trim().parse());
    match (named, written) {
        (1.., _) => format!("process {named}"),
        (_, Ok(Ok(written @ 1_u32..))) => format!("process {written}"),
        _ => "another process".into(),
    }
}

/// Writes the id of this process to the file. Without it, an error cannot name the process, so failures are ignored.
fn name_this_process(file: &File) {
    let name = format!("{}\n", std::process::id());
    let _unnamed = file.write_all_at(name.as_bytes(), 0).and_then(|()| file.set_len(name.len() as u64));
}

/// Calls the system with a lock of the whole file, and returns what it answers.
fn control(file: &File, command: libc::c_int, lock_type: impl Into<i64>) -> io::Result<libc::flock> {
    // SAFETY: all fields are numbers, and 0 is a valid number.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = lock_type.into() as _;
    lock.l_whence = libc::SEEK_SET as _;
    // SAFETY: the file is open. The call reads and writes the structure, which outlives it.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) } {
        0 => Ok(lock),
        _ => Err(io::Error::last_os_error()),
    }
}
