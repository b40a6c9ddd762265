//! What all threads of a log share: whose turn it is to write and to sync, and how far that has come.
//!
//! A thread that needs a confirmation takes the turn, unless another one has it: then it waits, and leads the next group
//! or finds that another thread has led it. One mutex, which nobody holds during I/O, guards turns. While one thread has
//! the turn to write, another may sync what earlier turns have written.

use super::fence::Fence;
use super::folder::SegmentName;
use super::options::Clock;
use super::payload::Payload;
use super::progress::Progress;
use super::segment::Segment;
use super::writer::Writer;
use parking_lot::{Condvar, Mutex, MutexGuard};
use reverb_core::{Error, Result};
use reverb_service::LogMode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::Release};
use std::time::Duration;

/// The segment that is made ahead.
#[derive(Debug)]
pub struct Spare {
    /// Which segment is made next.
    pub next: SegmentName,
    /// The one that is ready.
    pub segment: Option<Arc<Segment>>,
}

/// What all threads of a log share.
pub struct Shared {
    pub mode: LogMode,
    pub sync_interval: Duration,
    pub segment_bytes: u64,
    pub fence: Arc<Fence>,
    pub clock: Clock,
    /// Used by the thread that has the turn to write.
    pub writer: Mutex<(Writer, Payload)>,
    pub spare: Mutex<Spare>,
    pub progress: Mutex<Progress>,
    /// Whether the progress has a failure.
    pub is_closed: AtomicBool,
    /// Size of the last group in bytes.
    pub last_group_bytes: AtomicU64,
    /// Told whenever a turn ends.
    pub turn_ended: Condvar,
    /// Wakes the log's own thread.
    pub wake: Condvar,
}

type Guard<'a> = MutexGuard<'a, Progress>;

impl Shared {
    /// Waits until the group is written. Leads it if nobody has the turn; only then `drain` is called.
    pub fn write_through(
        &self,
        progress: &mut Guard<'_>,
        group: u64,
        drain: &dyn Fn(&mut Payload) -> Result<()>,
    ) -> Result<()> {
        while progress.written < group {
            progress.check()?;
            if progress.is_writing {
                self.turn_ended.wait(progress);
            } else {
                self.lead(progress, |writer, payload, synced| {
                    drain(payload)?;
                    self.last_group_bytes.store(payload.len() as u64, Relaxed);
                    if payload.is_empty() { Ok(()) } else { self.append(writer, payload, synced) }
                })?;
            }
        }
        Ok(())
    }

    /// Waits until the turn to write is free, takes it, and does `work` with an empty payload and the synced LSN. `work`
    /// drains: this is a group.
    ///
    /// # Errors
    /// Those of `work`, which close the log; [`Error::Cancelled`] if it was stopped.
    pub fn lead<T>(
        &self,
        progress: &mut Guard<'_>,
        work: impl FnOnce(&mut Writer, &mut Payload, u64) -> Result<T>,
    ) -> Result<T> {
        self.wait_for_turn(progress);
        progress.check_open()?;
        progress.begun += 1;
        self.write(progress, work)
    }

    /// Appends a mark once the turn to write is free. That drains nothing, so it is no group.
    ///
    /// # Errors
    /// [`Error::Storage`] if the log is or will be closed by a failure.
    pub fn mark(&self, progress: &mut Guard<'_>) -> Result<()> {
        self.wait_for_turn(progress);
        progress.check()?;
        self.write(progress, |writer, payload, synced| self.append(writer, payload, synced))
    }

    /// Waits until the turn to write is free.
    pub fn wait_for_turn(&self, progress: &mut Guard<'_>) {
        while progress.is_writing {
            self.turn_ended.wait(progress);
        }
    }

    /// Takes the turn to write, which must be free.
    fn write<T>(
        &self,
        progress: &mut Guard<'_>,
        work: impl FnOnce(&mut Writer, &mut Payload, u64) -> Result<T>,
    ) -> Result<T> {
        progress.is_writing = true;
        let synced = progress.synced_lsn;
        let result = MutexGuard::unlocked(progress, || {
            let panicking = CloseOnPanic(self);
            let (writer, payload) = &mut *self.writer.lock();
            let result = work(writer, payload, synced);
            payload.clear();
            std::mem::forget(panicking);
            result
        });
        progress.is_writing = false;
        let result = match result {
            Ok(value) => {
                progress.take_in(&mut self.writer.lock().0, (self.clock)());
                progress.written = progress.begun;
                Ok(value)
            }
            Err(error) => Err(self.close(progress, &error)),
        };
        self.turn_ended.notify_all();
        if progress.is_wanted {
            self.wake.notify_one();
        }
        result
    }

    /// Appends a frame, in a new segment if it does not fit in this one.
    pub fn append(&self, writer: &mut Writer, payload: &Payload, synced: u64) -> Result<()> {
        writer.append(payload, synced, &|| {
            self.fence.check()?;
            self.next_segment()
        })
    }

    /// Takes the segment that was made ahead, or makes one.
    fn next_segment(&self) -> Result<Arc<Segment>> {
        let mut spare = self.spare.lock();
        self.make_ahead(&mut spare)?;
        Ok(spare.segment.take().expect("it was made"))
    }

    /// Makes the next segment unless there is one.
    pub fn make_ahead(&self, spare: &mut Spare) -> Result<()> {
        if spare.segment.is_none() {
            spare.segment = Some(self.make(spare.next)?);
            spare.next.number += 1;
        }
        Ok(())
    }

    /// Makes a segment.
    pub fn make(&self, name: SegmentName) -> Result<Arc<Segment>> {
        Segment::create(&*self.fence.disk, &self.fence.folder, name, self.segment_bytes).map(Arc::new)
    }

    /// Waits until the group, which is written, is synced. Syncs unless another thread does.
    pub fn sync_through(&self, progress: &mut Guard<'_>, group: u64) -> Result<()> {
        while progress.synced < group {
            progress.check()?;
            if progress.is_syncing {
                self.turn_ended.wait(progress);
            } else {
                self.sync(progress)?;
            }
        }
        Ok(())
    }

    /// Syncs all that was written before, marks too.
    pub fn sync_all(&self, progress: &mut Guard<'_>) -> Result<()> {
        while progress.is_syncing {
            self.turn_ended.wait(progress);
        }
        progress.check()?;
        self.sync(progress)
    }

    /// Syncs what was written before. The turn to sync must be free.
    fn sync(&self, progress: &mut Guard<'_>) -> Result<()> {
        let (group, lsn) = (progress.written, progress.last_lsn);
        let segments = std::mem::take(&mut progress.unsynced);
        if segments.is_empty() {
            progress.synced = group;
            return Ok(());
        }
        progress.is_syncing = true;
        // Another server may start during a pause from here on, and what is written from here on is not synced.
        let begun = (self.clock)();
        let result = MutexGuard::unlocked(progress, || {
            self.fence.check()?;
            segments.iter().try_for_each(|segment| segment.sync())
        });
        progress.is_syncing = false;
        let result = match result {
            Ok(()) => {
                progress.synced = group;
                progress.synced_lsn = lsn;
                progress.last_sync = (self.clock)();
                progress.last_check = begun;
                progress.unsynced_since = begun;
                let current = progress.segment.clone();
                progress.sealed.extend(segments.into_iter().filter(|segment| !Arc::ptr_eq(segment, &current)));
                // The thread writes a mark.
                let lacks_mark = self.mode == LogMode::Power && !progress.naps && progress.lacks_mark();
                progress.is_wanted |= lacks_mark || !progress.sealed.is_empty();
                Ok(())
            }
            Err(error) => Err(self.close(progress, &error)),
        };
        self.turn_ended.notify_all();
        if progress.is_wanted {
            self.wake.notify_one();
        }
        result
    }

    /// Looks at the fence if nobody has for longer than the interval: the process was paused, and another server may
    /// have started meanwhile.
    pub fn check_fence(&self, progress: &mut Guard<'_>) -> Result<()> {
        let now = (self.clock)();
        if now.saturating_duration_since(progress.last_check) <= self.sync_interval {
            return Ok(());
        }
        match MutexGuard::unlocked(progress, || self.fence.check()) {
            Ok(()) => progress.last_check = now,
            Err(error) => return Err(self.close(progress, &error)),
        }
        Ok(())
    }

    /// Closes the log for good, unless it is closed, and returns the error that all callers get from now on.
    pub fn close(&self, progress: &mut Progress, cause: &Error) -> Error {
        let failure = progress.failure.get_or_insert_with(|| {
            let folder = self.fence.folder.display();
            tracing::error!("the log in {folder} is closed: {cause}");
            Error::Storage(format!(
                "the log in {folder} is closed, and changes that were not confirmed may or may not be there after a \
                 restart: {cause}"
            ))
        });
        let failure = failure.clone();
        self.is_closed.store(true, Release);
        self.turn_ended.notify_all();
        self.wake.notify_all();
        failure
    }
}

/// Closes the log if the thread that has the turn to write panics. Others would wait for ever.
struct CloseOnPanic<'a>(&'a Shared);

impl Drop for CloseOnPanic<'_> {
    fn drop(&mut self) {
        let mut progress = self.0.progress.lock();
        progress.is_writing = false;
        self.0.close(&mut progress, &Error::Internal("a thread panicked while it wrote".into()));
    }
}
