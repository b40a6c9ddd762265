//! Looks behind the last whole frame of a log for what says whether frames are missing.

use super::folder::SegmentName;
use super::format::{
    ALIGNMENT, FRAME_HEADER_BYTES, FRAME_MAGIC, FrameHeader, GAP, Id, SEGMENT_HEADER_BYTES, SegmentHeader, is_zero,
};
use crate::disk::{Disk, storage_error};
use reverb_core::{Error, Result};
use std::io::{self, Read};
use std::path::Path;

/// Number of bytes that are read at once.
const WINDOW_BYTES: usize = 1 << 16;

/// A place in a segment: its name and the offset.
pub type Place = (SegmentName, u64);

/// What lies behind the last whole frame.
#[derive(Debug, Default)]
pub struct Evidence {
    /// The greatest LSN that a frame calls synced, and the place of that frame. The header of a frame is enough: it was
    /// written after the sync of which it tells, whatever has become of its payload.
    pub synced: Option<(u64, Place)>,
    /// The LSN and the place of a frame, or of a segment of an epoch that had begun, that was written later than the
    /// frame that is not there. Those behind a gap prove nothing: a log that goes on behind a failure begins there, and
    /// says what it has synced once a checkpoint names it.
    pub later: Option<(u64, Place)>,
    /// Number of bytes from the last whole frame to the last byte that is not zero, in all segments.
    pub torn_bytes: u64,
}

/// Reads the first of the segments from `offset` on, and the others whole. `lsn` is that of the frame that is not there.
///
/// # Errors
/// [`Error::Storage`] if a file cannot be read; [`Error::DataLoss`] if one belongs to another log or place.
pub fn behind(
    disk: &dyn Disk,
    folder: &Path,
    segments: &[SegmentName],
    offset: u64,
    log_id: Id,
    lsn: u64,
) -> Result<Evidence> {
    let mut evidence = Evidence::default();
    let is_later = |other: u64| other > lsn && other - lsn < GAP / 2;
    for (index, &name) in segments.iter().enumerate() {
        let path = name.path(folder);
        let begin = if index == 0 { offset } else { 0 };
        let mut file = disk.open(&path).map_err(|error| storage_error("cannot open", &path, &error))?;
        let mut is_foreign = false;
        let search = |at, bytes: &[u8]| {
            if at == 0 && index > 0 && bytes.len() >= SEGMENT_HEADER_BYTES {
                let header = SegmentHeader::decode(bytes, &path)?;
                // Frames that were read have no second place.
                is_foreign |= header.is_some_and(|header| header.log_id != log_id || header.first_lsn < lsn);
                if let Some(header) = header.filter(|header| header.number > 0 && is_later(header.first_lsn)) {
                    evidence.later.get_or_insert((header.first_lsn, (name, 0)));
                }
            }
            if let Some(frame) = FrameHeader::decode(bytes).filter(|frame| frame.log_id == log_id) {
                if evidence.synced.is_none_or(|(synced, _)| frame.synced_through > synced) {
                    evidence.synced = Some((frame.synced_through, (name, at)));
                }
                if is_later(frame.lsn) {
                    evidence.later.get_or_insert((frame.lsn, (name, at)));
                }
            }
            Ok(())
        };
        let last = search_file(&mut file, &path, begin, search)?;
        if is_foreign {
            let id = u128::from_be_bytes(log_id);
            let path = path.display();
            return Err(Error::DataLoss(format!(
                "{path} is not the segment of log {id:032x} that follows frame {lsn}"
            )));
        }
        evidence.torn_bytes += last.saturating_sub(begin);
    }
    Ok(evidence)
}

/// Calls `search` with the offset and the next bytes of each place from `begin` on where a header may stand. Returns the
/// offset behind the last byte that is not zero.
fn search_file(
    file: &mut impl Read,
    path: &Path,
    begin: u64,
    mut search: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<u64> {
    let failed = |error| storage_error("cannot read", path, &error);
    io::copy(&mut file.by_ref().take(begin), &mut io::sink()).map_err(failed)?;
    let (mut window, mut at, mut last) = (Vec::with_capacity(WINDOW_BYTES), begin, begin);
    loop {
        let room = (WINDOW_BYTES - window.len()) as u64;
        let read = file.by_ref().take(room).read_to_end(&mut window).map_err(failed)?;
        // A header may reach into the next window.
        let is_end = (read as u64) < room;
        let searched = if is_end { window.len() } else { window.len() - SEGMENT_HEADER_BYTES };
        let searched = searched.next_multiple_of(ALIGNMENT as usize).min(window.len());
        let is_empty = is_zero(&window);
        if let Some(byte) = (!is_empty).then(|| window.iter().rposition(|&byte| byte != 0)).flatten() {
            last = last.max(at + byte as u64 + 1);
        }
        for place in (0..searched).step_by(ALIGNMENT as usize).take_while(|_| !is_empty) {
            let bytes = &window[place..];
            if (at == 0 && place == 0) || (bytes.len() >= FRAME_HEADER_BYTES && bytes.starts_with(&FRAME_MAGIC)) {
                search(at + place as u64, bytes)?;
            }
        }
        if is_end {
            return Ok(last);
        }
        window.drain(..searched);
        at += searched as u64;
    }
}
