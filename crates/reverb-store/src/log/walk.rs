//! Reads the frames of a log in order, up to the first that is not there.

use super::evidence::{self, Evidence};
use super::folder::{Position, SegmentName, is_unused, read_header, segments};
use super::format::{ALIGNMENT, FRAME_HEADER_BYTES, FrameHeader, Id, SEGMENT_HEADER_BYTES};
use crate::disk::{Disk, storage_error};
use bytes::Bytes;
use reverb_core::{Error, Result};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Number of bytes that are read at once.
const READ_BYTES: usize = 1 << 16;
/// Number of bytes of a payload for which memory is taken before they were read.
const TRUSTED_BYTES: u64 = 1 << 20;

/// What was read of a log.
#[derive(Debug)]
pub struct Walk {
    /// All segments from the first that was read, in order.
    pub segments: Vec<SegmentName>,
    /// Index of the segment in which the last whole frame ends, and the offset of its end.
    pub end: (usize, u64),
    /// LSN behind the last whole frame.
    pub next_lsn: u64,
    /// Number of frames with a payload.
    pub frames: u64,
    /// Number of bytes of all whole frames.
    pub bytes: u64,
    /// Number of bytes of the torn tail.
    pub torn_bytes: u64,
}

/// What is called with the LSN and the payload of each frame.
pub type Replay<'a> = &'a mut dyn FnMut(u64, Bytes) -> Result<()>;

/// Reads a log from a position on, and calls `replay` with each payload, in order. Changes nothing.
///
/// # Errors
/// [`Error::DataLoss`] if frames are missing or damaged that a crash cannot have torn: those before them were replayed.
/// [`Error::Storage`] if a file cannot be read; and errors of `replay`.
pub fn walk(disk: &dyn Disk, folder: &Path, from: Position, boot_id: Option<Id>, replay: Replay<'_>) -> Result<Walk> {
    let names = segments(disk, folder)?.into_iter().filter(|name| name.epoch >= from.epoch).collect::<Vec<_>>();
    check_numbers(&names, folder, from)?;
    let end = (0, SEGMENT_HEADER_BYTES as u64);
    let mut walk = Walk { segments: names, end, next_lsn: from.lsn, frames: 0, bytes: 0, torn_bytes: 0 };
    // The boot of the server that has written the frame that is read.
    let mut written_at = None;
    for index in 0..walk.segments.len() {
        let name = walk.segments[index];
        let path = name.path(folder);
        match read_header(disk, &path)? {
            Some(header) => {
                if (header.log_id, header.epoch, header.number) != (from.log_id, name.epoch, name.number) {
                    return Err(foreign(&path, from));
                }
                if header.first_lsn != walk.next_lsn || header.first_lsn == 0 {
                    break;
                }
                written_at = Some(header.boot_id);
                walk.end = (index, SEGMENT_HEADER_BYTES as u64);
                let limit = next_epoch(disk, folder, &walk.segments[index..])?;
                read_frames(disk, &path, (from.log_id, limit), &mut walk, replay)?;
            }
            None if index > 0 && is_unused(disk, &path)? => {}
            None => break,
        }
    }
    let Some(written_at) = written_at else {
        let path = walk.segments[0].path(folder);
        let lsn = from.lsn;
        return Err(Error::DataLoss(format!("{}: the segment does not begin with frame {lsn}", path.display())));
    };
    let is_same_boot = boot_id == Some(written_at);
    walk.torn_bytes = judge(disk, folder, &walk, from, is_same_boot)?;
    Ok(walk)
}

/// Checks that no segment is missing between others.
fn check_numbers(names: &[SegmentName], folder: &Path, from: Position) -> Result<()> {
    let mut expected = SegmentName { epoch: from.epoch, number: 0 };
    for &name in names {
        // Epochs may be left out: a start that fails uses one.
        if name.epoch > expected.epoch && expected.number > 0 {
            expected = SegmentName { epoch: name.epoch, number: 0 };
        }
        if name != expected {
            break;
        }
        expected.number += 1;
    }
    let last = names.last().map(|last| SegmentName { epoch: last.epoch, number: last.number + 1 });
    if last == Some(expected) {
        return Ok(());
    }
    Err(Error::DataLoss(format!("{} is missing: a segment of the log", expected.path(folder).display())))
}

fn foreign(path: &Path, from: Position) -> Error {
    let id = u128::from_be_bytes(from.log_id);
    Error::DataLoss(format!("{} is not this segment of log {id:032x}", path.display()))
}

/// LSN with which the epoch behind that of the first segment begins. `None` if none has begun.
fn next_epoch(disk: &dyn Disk, folder: &Path, segments: &[SegmentName]) -> Result<Option<u64>> {
    for name in segments.iter().filter(|name| name.epoch > segments[0].epoch && name.number == 0) {
        if let Some(header) = read_header(disk, &name.path(folder))? {
            return Ok(Some(header.first_lsn));
        }
    }
    Ok(None)
}

/// Reads the frames of a segment of a log (its id) until one is not whole, or until the next epoch begins (its LSN): a
/// server that did not know yet that another had begun an epoch may have written frames behind the end of its own.
fn read_frames(
    disk: &dyn Disk,
    path: &Path,
    (log_id, limit): (Id, Option<u64>),
    walk: &mut Walk,
    replay: Replay<'_>,
) -> Result<()> {
    let size = disk.size(path).map_err(|error| storage_error("cannot ask for the size of", path, &error))?;
    let file = disk.open(path).map_err(|error| storage_error("cannot open", path, &error))?;
    let mut file = BufReader::with_capacity(READ_BYTES, file);
    let failed = |error| storage_error("cannot read", path, &error);
    skip(&mut file, SEGMENT_HEADER_BYTES as u64).map_err(failed)?;
    let mut header = Vec::with_capacity(FRAME_HEADER_BYTES);
    while limit != Some(walk.next_lsn) {
        let offset = walk.end.1;
        header.clear();
        file.by_ref().take(FRAME_HEADER_BYTES as u64).read_to_end(&mut header).map_err(failed)?;
        let Some(frame) = FrameHeader::decode(&header) else { return Ok(()) };
        if frame.log_id != log_id || frame.lsn != walk.next_lsn {
            return Err(Error::DataLoss(format!(
                "{}: expected frame {} at offset {offset}, found frame {} of log {:032x}",
                path.display(),
                walk.next_lsn,
                frame.lsn,
                u128::from_be_bytes(frame.log_id)
            )));
        }
        let length = u64::from(frame.length);
        if frame.frame_bytes() > size.saturating_sub(offset) {
            return Ok(());
        }
        let mut payload = Vec::with_capacity(length.min(TRUSTED_BYTES) as usize);
        file.by_ref().take(length).read_to_end(&mut payload).map_err(failed)?;
        if payload.len() as u64 != length || crc32c::crc32c(&payload) != frame.payload_sum {
            return Ok(());
        }
        if length > 0 {
            replay(frame.lsn, payload.into())?;
            walk.frames += 1;
        }
        let end = (offset + frame.frame_bytes()).next_multiple_of(ALIGNMENT);
        skip(&mut file, end - offset - frame.frame_bytes()).map_err(failed)?;
        walk.next_lsn = walk.next_lsn.saturating_add(1);
        walk.bytes += end - offset;
        walk.end.1 = end;
    }
    Ok(())
}

/// Reads bytes and drops them. The file may end before.
fn skip(file: &mut impl BufRead, mut bytes: u64) -> std::io::Result<()> {
    while bytes > 0 {
        let there = file.fill_buf()?.len().min(bytes as usize);
        if there == 0 {
            break;
        }
        file.consume(there);
        bytes -= there as u64;
    }
    Ok(())
}

/// Decides whether what lies behind the last whole frame was torn by a crash, and returns its bytes.
///
/// A frame that was synced cannot be torn; any later frame that was written after the sync says so. If the system has
/// not been booted since, it has all that was written: only the frame that was being written can be torn.
fn judge(disk: &dyn Disk, folder: &Path, walk: &Walk, from: Position, is_same_boot: bool) -> Result<u64> {
    let (index, offset) = walk.end;
    let Evidence { synced, later, torn_bytes } =
        evidence::behind(disk, folder, &walk.segments[index..], offset, from.log_id, walk.next_lsn)?;
    let proof = synced
        .filter(|(lsn, _)| *lsn >= walk.next_lsn)
        .map(|(lsn, place)| (format!("through {lsn} were synced"), place));
    let proof = proof.or_else(|| {
        let (lsn, place) = later.filter(|_| is_same_boot)?;
        Some((format!("before {lsn} were written, and the system has not been booted since"), place))
    });
    let Some((what, (name, at))) = proof else { return Ok(torn_bytes) };
    Err(Error::DataLoss(format!(
        "{}: frame {} is damaged or missing at offset {offset}; the frames {what}, says {} at offset {at}",
        walk.segments[index].path(folder).display(),
        walk.next_lsn,
        name.path(folder).display()
    )))
}
