//! How far a log has come: what was written and synced, and what has closed it.

use super::segment::Segment;
use super::writer::Writer;
use reverb_core::{Error, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of written bytes after which the system is asked to begin writing them to disk. A sync would otherwise find
/// a second's worth of them at once.
pub const HINT_BYTES: u64 = 4 << 20;

/// How far a log has come. Groups count the turns of writers that drain; frames have LSNs.
#[derive(Debug)]
pub struct Progress {
    /// Whether a thread has the turn to write, and to sync.
    pub is_writing: bool,
    pub is_syncing: bool,
    /// The last group that was begun, that was written, and that is synced.
    pub begun: u64,
    pub written: u64,
    pub synced: u64,
    /// LSN of the last frame that was written, of the last one that has a payload, and of the last one that is synced.
    pub last_lsn: u64,
    pub last_data: u64,
    pub synced_lsn: u64,
    /// The segment that is written, the end of its frames, and how much of it the system was asked to write to disk.
    pub segment: Arc<Segment>,
    pub offset: u64,
    pub hinted: u64,
    /// Segments that may have something to sync.
    pub unsynced: Vec<Arc<Segment>>,
    /// Full segments that are synced and may still be in the system's memory.
    pub sealed: Vec<Arc<Segment>>,
    /// Number of bytes of each epoch, oldest first.
    pub epochs: Vec<(u64, u64)>,
    pub last_sync: Instant,
    /// Since when there are changes that were written and not synced, if there are.
    pub unsynced_since: Instant,
    /// When the fence was looked at last.
    pub last_check: Instant,
    /// When the log asked for the free space last.
    pub last_look: Option<Instant>,
    /// Number of bytes that should stay free on the disk beyond two segments, and whether they do not.
    pub reserve_bytes: u64,
    pub is_low: bool,
    pub failure: Option<Error>,
    pub is_stopped: bool,
    /// Whether the log's own thread has something to do before its pause ends, and whether it only naps, until a mark may
    /// be due.
    pub is_wanted: bool,
    pub naps: bool,
}

impl Progress {
    /// The progress of a log whose writer has begun an epoch.
    pub fn begin(writer: &mut Writer, synced_lsn: u64, mut epochs: Vec<(u64, u64)>, now: Instant) -> Self {
        epochs.append(&mut writer.grown);
        Self {
            is_writing: false,
            is_syncing: false,
            begun: 0,
            written: 0,
            synced: 0,
            last_lsn: writer.next_lsn - 1,
            last_data: writer.last_data,
            synced_lsn,
            segment: writer.segment.clone(),
            offset: writer.offset,
            hinted: 0,
            unsynced: Vec::new(),
            sealed: Vec::new(),
            epochs,
            last_sync: now,
            unsynced_since: now,
            last_check: now,
            last_look: None,
            reserve_bytes: 0,
            is_low: false,
            failure: None,
            is_stopped: false,
            // The thread makes the second segment.
            is_wanted: true,
            naps: false,
        }
    }

    /// Fails if the log was closed by a failure.
    pub fn check(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Fails if the log was closed by a failure, or was stopped.
    pub fn check_open(&self) -> Result<()> {
        self.check()?;
        if self.is_stopped { Err(Error::Cancelled("the log was stopped".into())) } else { Ok(()) }
    }

    /// Whether there are changes that were written and not synced.
    fn has_unsynced(&self) -> bool {
        self.last_data > self.synced_lsn
    }

    /// For how long there have been changes that were written and not synced. `None` if there are none.
    pub fn unsynced_age(&self, now: Instant) -> Option<Duration> {
        self.has_unsynced().then(|| now.saturating_duration_since(self.unsynced_since))
    }

    /// Whether the last frame has changes and is synced, and no frame says so yet.
    pub fn lacks_mark(&self) -> bool {
        self.last_lsn == self.last_data && self.synced_lsn == self.last_lsn
    }

    /// Enters what the turn that ends now has written.
    pub fn take_in(&mut self, writer: &mut Writer, now: Instant) {
        if !self.has_unsynced() {
            self.unsynced_since = now;
        }
        for segment in writer.touched.drain(..) {
            if self.unsynced.last().is_none_or(|last| !Arc::ptr_eq(last, &segment)) {
                self.unsynced.push(segment);
            }
        }
        if !Arc::ptr_eq(&self.segment, &writer.segment) {
            self.segment = writer.segment.clone();
            self.hinted = 0;
            // The thread makes the next one.
            self.is_wanted = true;
        }
        self.last_lsn = writer.next_lsn - 1;
        self.last_data = writer.last_data;
        self.offset = writer.offset;
        for (epoch, grown) in writer.grown.drain(..) {
            match self.epochs.last_mut() {
                Some((last, bytes)) if *last == epoch => *bytes += grown,
                _ => self.epochs.push((epoch, grown)),
            }
        }
        self.is_wanted |= self.offset - self.hinted >= HINT_BYTES;
    }
}
