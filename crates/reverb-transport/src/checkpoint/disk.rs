//! All that checkpoints ask of a file system, so that tests can let any of it fail.

use reverb_core::Error;
use std::ffi::OsString;
use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

/// A file being written.
pub trait OutFile: Write + Send {
    /// Returns when the content is on the disk.
    fn sync(&mut self) -> io::Result<()>;

    /// Lets the disk begin with what was written. A hint: what goes wrong comes to light when it is synced.
    fn begin_sync(&mut self) {}
}

/// A file system.
pub trait Disk: Send + Sync + Debug {
    /// Makes a folder and those above it that are missing.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Makes a file, which must not be there.
    fn create(&self, path: &Path) -> io::Result<Box<dyn OutFile>>;
    /// Opens a file to be read.
    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>>;
    /// The names in a folder, in no order.
    fn list(&self, path: &Path) -> io::Result<Vec<OsString>>;
    /// Gives a folder another name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty folder.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Returns when the names in a folder are on the disk.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

/// The machine's own file system.
#[derive(Debug)]
pub struct RealDisk;

impl OutFile for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }

    fn begin_sync(&mut self) {
        #[cfg(target_os = "linux")]
        // SAFETY: the file is open, and the call reads no memory of ours.
        unsafe {
            libc::sync_file_range(std::os::fd::AsRawFd::as_raw_fd(self), 0, 0, libc::SYNC_FILE_RANGE_WRITE);
        }
    }
}

impl Disk for RealDisk {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn OutFile>> {
        Ok(Box::new(OpenOptions::new().write(true).create_new(true).open(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(File::open(path)?))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

/// What was tried, with which file, and what came of it.
pub fn storage_error(what: &str, path: &Path, error: &io::Error) -> Error {
    let place = path.display();
    match error.kind() {
        io::ErrorKind::StorageFull => Error::Storage(format!("{what} {place}: the disk is full ({error})")),
        io::ErrorKind::QuotaExceeded => Error::Storage(format!("{what} {place}: the quota is used up ({error})")),
        _ => Error::Storage(format!("{what} {place}: {error}")),
    }
}
