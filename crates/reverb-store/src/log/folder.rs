//! The segments in the folder of checkpoints: their names and their order, and how damaged ones are set aside.

use super::format::{Id, SEGMENT_HEADER_BYTES, SegmentHeader, is_zero};
use crate::disk::{Disk, storage_error};
use reverb_core::{Error, Result};
use std::fmt::{self, Display};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

const PREFIX: &str = "log-";
const SUFFIX: &str = ".rvlog";
/// What is appended to the name of a segment that is set aside.
const ASIDE: &str = ".damaged";

/// Which segment a file is. Segments are ordered as they were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentName {
    /// The epoch.
    pub epoch: u64,
    /// Number of the segment in its epoch, from 0.
    pub number: u64,
}

impl Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}-{}{SUFFIX}", self.epoch, self.number)
    }
}

impl SegmentName {
    fn parse(name: &str) -> Option<Self> {
        let (epoch, number) = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.split_once('-')?;
        // Half of the numbers are enough, and the next one of each is a number, too.
        let number_of = |digits: &str| digits.parse::<i64>().ok()?.try_into().ok();
        let parsed = Self { epoch: number_of(epoch)?, number: number_of(number)? };
        // Numbers have one spelling, so that no two files are the same segment.
        (parsed.to_string() == name).then_some(parsed)
    }

    /// Returns the path of the segment.
    pub fn path(self, folder: &Path) -> PathBuf {
        folder.join(self.to_string())
    }
}

/// A place in a log from which it is replayed: the beginning of an epoch. A checkpoint names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Id of the log.
    pub log_id: Id,
    /// The epoch.
    pub epoch: u64,
    /// LSN of the first frame of the epoch.
    pub lsn: u64,
}

/// Returns the segments in a folder, in their order. A missing folder has none.
///
/// # Errors
/// [`Error::Storage`] if the folder cannot be read.
pub fn segments(disk: &dyn Disk, folder: &Path) -> Result<Vec<SegmentName>> {
    let names = match disk.list(folder) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(storage_error("cannot list", folder, &error)),
    };
    let mut found: Vec<_> = names.iter().filter_map(|name| SegmentName::parse(name.to_str()?)).collect();
    found.sort_unstable();
    Ok(found)
}

/// Returns where the oldest epoch in a folder begins. `None` if no segment was ever used.
///
/// # Errors
/// [`Error::Storage`] if a file cannot be read, [`Error::DataLoss`] if the first segment is damaged.
pub fn oldest(disk: &dyn Disk, folder: &Path) -> Result<Option<Position>> {
    for name in segments(disk, folder)? {
        let path = name.path(folder);
        match read_header(disk, &path)? {
            Some(header) => {
                return Ok(Some(Position { log_id: header.log_id, epoch: header.epoch, lsn: header.first_lsn }));
            }
            None if is_unused(disk, &path)? => {}
            None => return Err(Error::DataLoss(format!("{}: the header of the segment is damaged", path.display()))),
        }
    }
    Ok(None)
}

/// Reads the header of a segment. `None` if it has none, or a damaged one.
pub(super) fn read_header(disk: &dyn Disk, path: &Path) -> Result<Option<SegmentHeader>> {
    let mut bytes = Vec::new();
    let file = disk.open(path).map_err(|error| storage_error("cannot open", path, &error))?;
    let read = file.take(SEGMENT_HEADER_BYTES as u64).read_to_end(&mut bytes);
    read.map_err(|error| storage_error("cannot read", path, &error))?;
    SegmentHeader::decode(&bytes, path)
}

/// Whether a segment without a whole header has nothing but zeros behind it: it was made ahead, or a crash has torn the
/// header of an epoch that had not begun.
pub(super) fn is_unused(disk: &dyn Disk, path: &Path) -> Result<bool> {
    let mut file = disk.open(path).map_err(|error| storage_error("cannot open", path, &error))?;
    let header = io::copy(&mut file.by_ref().take(SEGMENT_HEADER_BYTES as u64), &mut io::sink());
    header.map_err(|error| storage_error("cannot read", path, &error))?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(true),
            Ok(size) if !is_zero(&buffer[..size]) => return Ok(false),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(storage_error("cannot read", path, &error)),
        }
    }
}

/// Removes all segments in a folder from an epoch on.
///
/// # Errors
/// [`Error::Storage`] if a file cannot be removed. Those behind it were removed then.
pub fn remove_from(disk: &dyn Disk, folder: &Path, epoch: u64) -> Result<()> {
    for name in segments(disk, folder)?.into_iter().rev().filter(|name| name.epoch >= epoch) {
        remove(disk, folder, name)?;
    }
    Ok(())
}

/// Removes a segment, durably: one that is missing between others is damage.
pub(super) fn remove(disk: &dyn Disk, folder: &Path, name: SegmentName) -> Result<()> {
    let path = name.path(folder);
    disk.remove_file(&path).map_err(|error| storage_error("cannot remove", &path, &error))?;
    disk.sync_dir(folder).map_err(|error| storage_error("cannot sync", folder, &error))
}

/// Renames all segments in a folder, so that they are no longer part of a log, and returns their new paths.
///
/// # Errors
/// [`Error::Storage`] if a file cannot be renamed. Those before it were renamed then, and the rest is a log without
/// its beginning, which [`super::recover`] refuses.
pub fn set_aside(disk: &dyn Disk, folder: &Path) -> Result<Vec<PathBuf>> {
    let taken = disk.list(folder).map_err(|error| storage_error("cannot list", folder, &error))?;
    let mut aside = Vec::new();
    for name in segments(disk, folder)? {
        let numbered = (1..).map(|number| format!("{name}{ASIDE}-{number}"));
        let free = numbered.into_iter().find(|name| taken.iter().all(|taken| taken != name.as_str()));
        let (from, to) = (name.path(folder), folder.join(free.expect("numbers do not end")));
        disk.rename(&from, &to).map_err(|error| storage_error("cannot rename", &from, &error))?;
        // One after the other also on disk: a log that lacks its end would look whole.
        disk.sync_dir(folder).map_err(|error| storage_error("cannot sync", folder, &error))?;
        aside.push(to);
    }
    Ok(aside)
}
