//! The file-system operations that checkpoints and logs use. Tests replace them to make any operation fail.

use reverb_core::Error;
use std::ffi::{CString, OsString};
use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
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
    /// Renames a file or folder.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty folder.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Waits until the names in a folder are on disk.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

/// A file that several threads write and sync at the same time.
pub trait SharedFile: Send + Sync + Debug {
    /// Writes the pieces one behind the other, and returns how many bytes it has written, as `pwritev` does.
    fn write_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<usize>;
    /// Waits until the content, and the size if it has grown, are on disk.
    fn sync_data(&self) -> io::Result<()>;
    /// Grows the file to `size` bytes of zeros and reserves their space.
    fn allocate(&self, size: u64) -> io::Result<()>;
    /// Cuts the file off behind `size` bytes.
    fn truncate(&self, size: u64) -> io::Result<()>;

    /// Asks the system to begin writing a range to disk. This is a hint: errors are reported by `sync_data`.
    fn begin_sync(&self, _range: Range<u64>) {}

    /// Asks the system to keep nothing of the file in memory. This is a hint.
    fn forget(&self) {}
}

/// A file system with what logs need beyond checkpoints.
pub trait LogDisk: Disk {
    /// Creates a file, which must not exist.
    fn create_shared(&self, path: &Path) -> io::Result<Box<dyn SharedFile>>;
    /// Opens an existing file.
    fn open_shared(&self, path: &Path) -> io::Result<Box<dyn SharedFile>>;
    /// Returns how many bytes a user without privileges can write to the file system of a folder.
    fn free_space(&self, path: &Path) -> io::Result<u64>;
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
            libc::sync_file_range(self.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE);
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

impl SharedFile for File {
    fn write_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        // SAFETY: the file is open. `IoSlice` has the layout of `iovec`, and its memory is borrowed during the call.
        let written = unsafe {
            libc::pwritev(self.as_raw_fd(), pieces.as_ptr().cast(), pieces.len() as libc::c_int, offset as libc::off_t)
        };
        usize::try_from(written).map_err(|_| io::Error::last_os_error())
    }

    fn sync_data(&self) -> io::Result<()> {
        Self::sync_data(self)
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        loop {
            // SAFETY: the file is open, and the call does not access memory of this process.
            if unsafe { libc::fallocate(self.as_raw_fd(), 0, 0, size as libc::off_t) } == 0 {
                return Ok(());
            }
            match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                // Some file systems cannot reserve space. A write may find the disk full then.
                error if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) => break,
                error => return Err(error),
            }
        }
        self.set_len(size)
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.set_len(size)
    }

    fn begin_sync(&self, _range: Range<u64>) {
        #[cfg(target_os = "linux")]
        // SAFETY: the file is open, and the call does not access memory of this process.
        unsafe {
            let (offset, bytes) = (_range.start as libc::off64_t, (_range.end - _range.start) as libc::off64_t);
            libc::sync_file_range(self.as_raw_fd(), offset, bytes, libc::SYNC_FILE_RANGE_WRITE);
        }
    }

    fn forget(&self) {
        #[cfg(target_os = "linux")]
        // SAFETY: the file is open, and the call does not access memory of this process.
        unsafe {
            libc::posix_fadvise(self.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED);
        }
    }
}

impl LogDisk for RealDisk {
    fn create_shared(&self, path: &Path) -> io::Result<Box<dyn SharedFile>> {
        Ok(Box::new(OpenOptions::new().write(true).create_new(true).open(path)?))
    }

    fn open_shared(&self, path: &Path) -> io::Result<Box<dyn SharedFile>> {
        Ok(Box::new(OpenOptions::new().write(true).open(path)?))
    }

    fn free_space(&self, path: &Path) -> io::Result<u64> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: all fields are numbers, and 0 is a valid number.
        let mut system: libc::statvfs = unsafe { std::mem::zeroed() };
        // SAFETY: the path ends with a zero, and the call writes the structure, which outlives it.
        match unsafe { libc::statvfs(path.as_ptr(), &raw mut system) } {
            0 => Ok((system.f_bavail as u64).saturating_mul(system.f_frsize as u64)),
            _ => Err(io::Error::last_os_error()),
        }
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
