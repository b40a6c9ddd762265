//! A segment that is written.

use super::folder::SegmentName;
use crate::disk::{LogDisk, SharedFile, storage_error};
use reverb_core::{Error, Result};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};

/// Maximum number of pieces that the system takes in one call (`IOV_MAX`).
const MAX_PIECES: usize = 1024;

/// A file of a log that is written.
#[derive(Debug)]
pub struct Segment {
    /// Which segment it is.
    pub name: SegmentName,
    path: PathBuf,
    file: Box<dyn SharedFile>,
}

impl Segment {
    /// Creates a segment of `size` zeros, and waits until it and its name are on disk.
    ///
    /// # Errors
    /// [`Error::Storage`]. The file is removed then, if the disk lets it.
    pub fn create(disk: &dyn LogDisk, folder: &Path, name: SegmentName, size: u64) -> Result<Self> {
        let path = name.path(folder);
        let file = disk.create_shared(&path).map_err(|error| storage_error("cannot create", &path, &error))?;
        let made = file.allocate(size).map_err(|error| storage_error("cannot allocate", &path, &error));
        let segment = Self { name, path, file };
        let synced = made
            .and_then(|()| segment.sync())
            .and_then(|()| disk.sync_dir(folder).map_err(|error| storage_error("cannot sync", folder, &error)));
        match synced {
            Ok(()) => Ok(segment),
            Err(error) => {
                // One that stays has only zeros, so it does no harm.
                let _stays = disk.remove_file(&segment.path);
                Err(error)
            }
        }
    }

    /// Writes all pieces, one behind the other.
    ///
    /// # Errors
    /// [`Error::Storage`]. Nobody knows then which of the bytes are in the file.
    pub fn write(&self, mut pieces: &mut [IoSlice<'_>], mut offset: u64) -> Result<()> {
        while !pieces.is_empty() {
            let most = pieces.len().min(MAX_PIECES);
            match self.file.write_at(&pieces[..most], offset) {
                Ok(0) => return Err(self.error("cannot write", &io::ErrorKind::WriteZero.into())),
                Ok(written) => {
                    offset += written as u64;
                    IoSlice::advance_slices(&mut pieces, written);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.error("cannot write", &error)),
            }
        }
        Ok(())
    }

    /// Waits until all that was written is on disk.
    ///
    /// # Errors
    /// [`Error::Storage`]. What was written may be lost then, and a second call would not tell.
    pub fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|error| self.error("cannot sync", &error))
    }

    /// Asks the system to begin writing a range to disk.
    pub fn begin_sync(&self, range: std::ops::Range<u64>) {
        self.file.begin_sync(range);
    }

    /// Asks the system to keep nothing of the segment in memory.
    pub fn forget(&self) {
        self.file.forget();
    }

    /// Removes the file.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub fn remove(&self, disk: &dyn LogDisk) -> Result<()> {
        disk.remove_file(&self.path).map_err(|error| self.error("cannot remove", &error))
    }

    fn error(&self, what: &str, error: &io::Error) -> Error {
        storage_error(what, &self.path, error)
    }
}
