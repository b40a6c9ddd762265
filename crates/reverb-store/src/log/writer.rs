//! Appends frames to segments. Only the thread whose turn it is uses the writer.

use super::format::{ALIGNMENT, FrameHeader, Id, SEGMENT_HEADER_BYTES, SegmentHeader};
use super::payload::Payload;
use super::segment::Segment;
use reverb_core::{Error, Result};
use std::sync::Arc;

/// Number of zeros that are written behind a small frame which is synced. The first sync of a part of a file also waits
/// until the file system has noted that the part was written; so that is one sync in hundreds.
const AHEAD_BYTES: usize = 256 << 10;
static ZEROS: [u8; AHEAD_BYTES] = [0; AHEAD_BYTES];

/// The end of a log.
#[derive(Debug)]
pub struct Writer {
    /// The segment that frames are appended to.
    pub segment: Arc<Segment>,
    /// Where the next frame begins in it.
    pub offset: u64,
    /// Up to where the segment was written, zeros behind the last frame too.
    zeroed: u64,
    /// LSN of the next frame.
    pub next_lsn: u64,
    /// LSN of the last frame with a payload.
    pub last_data: u64,
    /// Segments that were written since they were last taken from here.
    pub touched: Vec<Arc<Segment>>,
    /// Numbers of bytes written, each with its epoch, since they were last taken from here.
    pub grown: Vec<(u64, u64)>,
    /// Number of bytes after which a segment is full.
    segment_bytes: u64,
    /// Number of zeros that are written ahead behind small frames.
    ahead_bytes: usize,
    log_id: Id,
    boot_id: Id,
}

impl Writer {
    /// A writer that begins an epoch in a new segment. `ids` are those of the log and of the boot, `lsns` that of the
    /// first frame and that of the last frame with a payload before it. `is_synced_often` is whether most frames are synced
    /// alone.
    ///
    /// # Errors
    /// [`Error::Storage`] if the header of the segment cannot be written.
    pub fn begin(
        segment: Arc<Segment>,
        (log_id, boot_id): (Id, Id),
        (next_lsn, last_data): (u64, u64),
        (segment_bytes, is_synced_often): (u64, bool),
    ) -> Result<Self> {
        let mut writer = Self {
            segment,
            offset: 0,
            zeroed: 0,
            next_lsn,
            last_data,
            touched: Vec::new(),
            grown: Vec::new(),
            segment_bytes,
            ahead_bytes: if is_synced_often { AHEAD_BYTES } else { 0 },
            log_id,
            boot_id,
        };
        writer.begin_epoch(writer.segment.clone())?;
        Ok(writer)
    }

    /// Goes on in the first segment of a new epoch.
    ///
    /// # Errors
    /// As [`Writer::begin`].
    pub fn begin_epoch(&mut self, segment: Arc<Segment>) -> Result<()> {
        self.segment = segment;
        self.touched.push(self.segment.clone());
        let header = self.header();
        self.segment.write(&mut Payload::default().io_slices(&[&header], &[]), 0)?;
        self.offset = SEGMENT_HEADER_BYTES as u64;
        self.zeroed = self.offset;
        self.grown.push((self.segment.name.epoch, self.offset));
        Ok(())
    }

    fn header(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let name = self.segment.name;
        let (log_id, boot_id, first_lsn) = (self.log_id, self.boot_id, self.next_lsn);
        SegmentHeader { log_id, boot_id, epoch: name.epoch, number: name.number, first_lsn }.encode()
    }

    /// Appends a frame by one vectored write. Where it does not fit in the segment, `next_segment` gives the next; a
    /// frame that is larger than a segment makes its segment grow.
    ///
    /// # Errors
    /// [`Error::Storage`] if the frame cannot be written, and errors of `next_segment`.
    pub fn append(
        &mut self,
        payload: &Payload,
        synced_through: u64,
        next_segment: &dyn Fn() -> Result<Arc<Segment>>,
    ) -> Result<()> {
        let length = u32::try_from(payload.len())
            .map_err(|_| Error::Storage(format!("a frame of {} bytes is more than a log can hold", payload.len())))?;
        let (log_id, payload_sum) = (self.log_id, payload.checksum());
        let frame = FrameHeader { length, lsn: self.next_lsn, synced_through, log_id, payload_sum };
        let is_first = self.offset == SEGMENT_HEADER_BYTES as u64;
        let (mut offset, mut header) = (self.offset, None);
        if !is_first && offset + frame.frame_bytes() > self.segment_bytes {
            self.segment = next_segment()?;
            self.zeroed = 0;
            (offset, header) = (0, Some(self.header()));
        }
        if self.touched.last().is_none_or(|last| !Arc::ptr_eq(last, &self.segment)) {
            self.touched.push(self.segment.clone());
        }
        let encoded = frame.encode();
        let header = header.as_ref().map_or(&[][..], |header| &header[..]);
        let written = offset + header.len() as u64 + frame.frame_bytes();
        // The zeros up to the next frame are there.
        let end = written.next_multiple_of(ALIGNMENT);
        let ahead = self.ahead_of(payload, end);
        self.segment.write(&mut payload.io_slices(&[header, &encoded], &ZEROS[..ahead]), offset)?;
        self.zeroed = self.zeroed.max(written + ahead as u64);
        self.grown.push((self.segment.name.epoch, end - offset));
        self.offset = end;
        self.next_lsn += 1;
        if length > 0 {
            self.last_data = frame.lsn;
        }
        Ok(())
    }

    /// Number of zeros to write behind a frame that ends here.
    fn ahead_of(&self, payload: &Payload, end: u64) -> usize {
        if end <= self.zeroed || payload.len() >= self.ahead_bytes / 8 {
            return 0;
        }
        let room = self.segment_bytes.saturating_sub(end);
        self.ahead_bytes.min(usize::try_from(room).unwrap_or(usize::MAX))
    }
}

const _: () = assert!((SEGMENT_HEADER_BYTES as u64).is_multiple_of(ALIGNMENT));
