//! Recovery of a log after a crash: replays its frames and cuts the torn tail.

use super::fence::Fence;
use super::folder::{Position, remove};
use super::format::Id;
use super::options::Start;
use super::walk::{Replay, Walk, walk};
use crate::disk::{Disk, LogDisk, storage_error};
use reverb_core::Result;
use std::path::Path;

/// What was recovered of a log, or would be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// Where the log goes on.
    pub next: Start,
    /// Number of frames with changes.
    pub frames: u64,
    /// Number of bytes of all whole frames.
    pub bytes: u64,
    /// Number of bytes that a crash has torn off. Nothing of them was synced.
    pub torn_bytes: u64,
}

/// Replays a log from a position on, cuts its torn tail, and waits until what is left is on disk. `boot_id` is that of
/// this boot.
///
/// # Errors
/// [`reverb_core::Error::DataLoss`] if frames are missing or damaged that a crash cannot have torn, or if the log is
/// another one. All frames before those were replayed, and no file was changed: [`super::set_aside`] makes room for a new
/// log, which begins with a checkpoint of what was replayed. [`reverb_core::Error::Storage`] if a file cannot be read or
/// changed; and errors of `replay`, after which no file is changed.
pub fn recover(fence: &Fence, from: Position, boot_id: Option<Id>, replay: Replay<'_>) -> Result<Recovered> {
    let (disk, folder) = (&*fence.disk, &*fence.folder);
    let walk = walk(disk, folder, from, boot_id, replay)?;
    // Another server may have claimed the folder, and recovered the log, while this one read it.
    fence.check()?;
    cut(disk, folder, &walk)?;
    if walk.torn_bytes > 0 {
        let path = walk.segments[walk.end.0].path(folder);
        tracing::warn!("{}: {} bytes that a crash has torn were cut off", path.display(), walk.torn_bytes);
    }
    Ok(recovered(from, &walk))
}

/// Replays a log as [`recover`] does, and changes nothing.
///
/// # Errors
/// As [`recover`].
pub fn verify(
    disk: &dyn Disk,
    folder: &Path,
    from: Position,
    boot_id: Option<Id>,
    replay: Replay<'_>,
) -> Result<Recovered> {
    let walk = walk(disk, folder, from, boot_id, replay)?;
    Ok(recovered(from, &walk))
}

fn recovered(from: Position, walk: &Walk) -> Recovered {
    // Not the name of a segment that was cut off: another server that has read the log may still remove it.
    let last = walk.segments.last().map_or(from.epoch, |last| last.epoch);
    let position = Position { epoch: last + 1, lsn: walk.next_lsn, ..from };
    Recovered {
        next: Start { position, synced_through: walk.next_lsn - 1 },
        frames: walk.frames,
        bytes: walk.bytes,
        torn_bytes: walk.torn_bytes,
    }
}

/// Removes what lies behind the last whole frame, durably. What is left at any moment is a log with a torn tail or none.
fn cut(disk: &dyn LogDisk, folder: &Path, walk: &Walk) -> Result<()> {
    let (last, end) = walk.end;
    for name in walk.segments[last + 1..].iter().rev() {
        remove(disk, folder, *name)?;
    }
    for (index, name) in walk.segments[..=last].iter().enumerate() {
        let path = name.path(folder);
        let file = disk.open_shared(&path).map_err(|error| storage_error("cannot open", &path, &error))?;
        if index == last {
            let size = disk.size(&path).map_err(|error| storage_error("cannot ask for the size of", &path, &error))?;
            if size > end {
                file.truncate(end).map_err(|error| storage_error("cannot cut", &path, &error))?;
            }
        }
        file.sync_data().map_err(|error| storage_error("cannot sync", &path, &error))?;
    }
    Ok(())
}
