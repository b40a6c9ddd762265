//! The file-system operations that checkpoints use. Tests replace them to make any operation fail.

use reverb_core::Error;
use std::ffi::OsString;
use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

/// A file that is being written.
pub trait OutFile: Write + Send {
    /// Waits until the content is on disk.
    fn sync(&mut self) -> io::Result<()>;

    /// Asks the system to begin writing the content to disk. This is a hint: errors are reported by `sync`.
    fn begin_sync(&mut self) {}
}

/// A file system.
pub trait Disk: Send + Sync + Debug {
    /// Creates a folder and its missing parents.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Creates a file, which must not exist.
    fn create(&self, path: &Path) -> io::Result<Box<dyn OutFile>>;
    /// Opens a file for reading.
    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>>;
    /// Returns the size of a file in bytes.
    fn size(&self, path: &Path) -> io::Result<u64>;
    /// Returns the names in a folder, in any order.
    fn list(&self, path: &Path) -> io::Result<Vec<OsString>>;
    /// Renames a folder.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty folder.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Waits until the names in a folder are on disk.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

/// The file system of the machine.
#[derive(Debug)]
pub struct RealDisk;

impl OutFile for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }

    fn begin_sync(&mut self) {
        #[cfg(target_os = "linux")]
        // SAFETY: the file is open, and the call does not access memory of this process.
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

    fn size(&self, path: &Path) -> io::Result<u64> {
        Ok(fs::metadata(path)?.len())
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

/// Makes an error that states the failed operation (`what`), the path and the reason.
pub fn storage_error(what: &str, path: &Path, error: &io::Error) -> Error {
    let place = path.display();
    match error.kind() {
        io::ErrorKind::StorageFull => Error::Storage(format!("{what} {place}: the disk is full ({error})")),
        io::ErrorKind::QuotaExceeded => {
            Error::Storage(format!("{what} {place}: the disk quota is exhausted ({error})"))
        }
        _ => Error::Storage(format!("{what} {place}: {error}")),
    }
}
