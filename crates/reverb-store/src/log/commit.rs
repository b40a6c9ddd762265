//! A log as its owner uses it: commits, epochs, status, start and stop.

use super::fence::Fence;
use super::folder::{Position, SegmentName, read_header, segments};
use super::format::GAP;
use super::options::{LogOptions, Start};
use super::payload::{Payload, Source};
use super::progress::Progress;
use super::segment::Segment;
use super::shared::{Shared, Spare};
use super::upkeep;
use super::writer::Writer;
use crate::disk::{LogDisk, storage_error};
use parking_lot::{Condvar, Mutex};
use reverb_core::{Error, Result, fork};
use reverb_service::LogMode;
use std::fmt::{self, Debug};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

/// A log that is written. In a forked child it does nothing, and all calls that could fail do.
pub struct Log {
    shared: Arc<Shared>,
    /// Where its first epoch begins.
    began: Position,
    /// The generation of forks to which the log belongs.
    generation: u32,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The next epoch. Held by who begins one.
    next_epoch: Mutex<u64>,
}

/// What a log tells of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogStatus {
    /// What a confirmed change survives.
    pub mode: LogMode,
    /// Number of bytes of all epochs that were not removed.
    pub bytes: u64,
    /// Number of bytes of this epoch.
    pub epoch_bytes: u64,
    /// For how long there have been changes that were written and not synced. Zero if there are none.
    pub sync_age: Duration,
    /// Whether the disk has less free space than two segments and the reserve.
    pub is_low: bool,
    /// What has closed the log.
    pub failure: Option<Error>,
}

impl Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("folder", &self.shared.fence.folder).finish_non_exhaustive()
    }
}

impl Log {
    /// Begins an epoch of the log in the folder that was claimed. The caller calls [`Log::tick`] or [`Log::with_thread`].
    ///
    /// # Errors
    /// [`Error::Storage`] if another server has claimed the folder since, or if the first segment cannot be made or was
    /// made before: the log must be recovered again before another start. [`Error::InvalidArgument`] if the interval of
    /// syncs is zero.
    pub fn start(fence: Arc<Fence>, start: Start, options: LogOptions) -> Result<Self> {
        if options.sync_interval.is_zero() {
            return Err(Error::invalid("the interval of syncs of a log must not be zero"));
        }
        fence.check()?;
        let (disk, folder) = (&*fence.disk, &*fence.folder);
        let Start { mut position, synced_through } = start;
        let names = segments(disk, folder)?;
        let older = older_epochs(disk, folder, &names)?;
        refuse_used(disk, folder, &names, start)?;
        // A start that has failed may have left a segment.
        position.epoch = older.last().map_or(0, |(last, _)| last + 1).max(position.epoch);
        let LogOptions { mode, sync_interval, segment_bytes, boot_id, clock } = options;
        let name = |number| SegmentName { epoch: position.epoch, number };
        let first = Segment::create(disk, folder, name(0), segment_bytes)?;
        let ids = (position.log_id, boot_id.unwrap_or_default());
        let mut writer = Writer::begin(
            Arc::new(first),
            ids,
            (position.lsn, synced_through),
            (segment_bytes, mode == LogMode::Power),
        )?;
        writer.segment.sync()?;
        let progress = Progress::begin(&mut writer, synced_through, older, clock());
        let needs_mark = synced_through > 0 && progress.lacks_mark();
        let shared = Shared {
            mode,
            sync_interval,
            segment_bytes,
            fence,
            clock,
            writer: Mutex::new((writer, Payload::default())),
            spare: Mutex::new(Spare { next: name(1), segment: None }),
            progress: Mutex::new(progress),
            is_closed: AtomicBool::new(false),
            last_group_bytes: AtomicU64::new(0),
            turn_ended: Condvar::new(),
            wake: Condvar::new(),
        };
        if needs_mark {
            // From now on damage to the frames before it is no torn tail.
            upkeep::write_synced_mark(&shared)?;
        }
        let (thread, next_epoch) = (Mutex::new(None), Mutex::new(position.epoch + 1));
        Ok(Self { shared: Arc::new(shared), began: position, generation: fork::generation(), thread, next_epoch })
    }

    /// Gives the log a thread of its own, which calls [`Log::tick`] whenever something is due.
    ///
    /// # Errors
    /// [`Error::Internal`] if no thread starts.
    pub fn with_thread(self) -> Result<Self> {
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new().name("reverb-sync".into()).spawn(move || upkeep::run(&shared));
        let thread = thread.map_err(|error| Error::Internal(format!("cannot start a thread: {error}")))?;
        *self.thread.lock() = Some(thread);
        Ok(self)
    }

    /// Returns where the first epoch of this log begins.
    pub fn began(&self) -> Position {
        self.began
    }

    /// Returns once all that was noted before this call is written ([`LogMode::Process`]) or synced ([`LogMode::Power`]). All
    /// callers pass the same source: one drains it for the others.
    ///
    /// # Errors
    /// [`Error::Storage`] if the log is closed by a failure: what was noted may or may not be there after a restart.
    /// [`Error::Cancelled`] if the log was stopped; and errors of the source, which close the log.
    pub fn commit(&self, source: &dyn Source) -> Result<()> {
        self.commit_in(source, self.shared.mode)
    }

    /// Returns once all that was noted before this call is written, in each mode. It is synced within the interval.
    ///
    /// # Errors
    /// As [`Log::commit`].
    pub fn commit_written(&self, source: &dyn Source) -> Result<()> {
        self.commit_in(source, LogMode::Process)
    }

    /// Returns once all that was noted before this call is synced, in each mode.
    ///
    /// # Errors
    /// As [`Log::commit`].
    pub fn commit_synced(&self, source: &dyn Source) -> Result<()> {
        self.commit_in(source, LogMode::Power)
    }

    fn commit_in(&self, source: &dyn Source, mode: LogMode) -> Result<()> {
        self.check_process()?;
        let shared = &*self.shared;
        let mut progress = shared.progress.lock();
        progress.check_open()?;
        shared.check_fence(&mut progress)?;
        // The group that is being written may have passed what the caller has noted.
        let group = progress.begun + 1;
        shared.write_through(&mut progress, group, &|payload| source.drain(payload))?;
        if mode == LogMode::Power {
            shared.sync_through(&mut progress, group)?;
        }
        shared.check_fence(&mut progress)
    }

    /// Begins a new epoch. `drain` moves what was noted into the last frame of the old one; the caller takes its snapshot
    /// there, too. No other frame comes in between.
    ///
    /// Returns where the new epoch begins, once that is synced, and what `drain` has returned.
    ///
    /// # Errors
    /// [`Error::Storage`] if the log is or will be closed by a failure, or if the segment of the new epoch cannot be made:
    /// then the old epoch goes on. [`Error::Cancelled`] if the log was stopped; and errors of `drain`, which close the log.
    pub fn begin_epoch<T>(&self, drain: impl FnOnce(&mut Payload) -> Result<T>) -> Result<(Position, T)> {
        self.check_process()?;
        let mut next_epoch = self.next_epoch.lock();
        let shared = &*self.shared;
        shared.progress.lock().check_open()?;
        shared.fence.check().map_err(|error| shared.close(&mut shared.progress.lock(), &error))?;
        let epoch = *next_epoch;
        // A segment that cannot be made may stay.
        *next_epoch += 1;
        let first = shared.make(SegmentName { epoch, number: 0 })?;
        let mut progress = shared.progress.lock();
        let begun = shared.lead(&mut progress, |writer, payload, synced| {
            let value = drain(payload)?;
            if !payload.is_empty() {
                shared.append(writer, payload, synced)?;
            }
            writer.begin_epoch(first.clone())?;
            // Not before: if the epoch does not begin, the segment behind its first one must not be there.
            let mut spare = shared.spare.lock();
            spare.next = SegmentName { epoch, number: 1 };
            let unused = spare.segment.take();
            drop(spare);
            Ok((Position { log_id: self.began.log_id, epoch, lsn: writer.next_lsn }, value, unused))
        });
        let (position, value, unused) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                drop(progress);
                // One that stays does no harm.
                let _stays = first.remove(&*shared.fence.disk);
                return Err(error);
            }
        };
        let group = progress.written;
        shared.sync_through(&mut progress, group)?;
        drop(progress);
        if let Some(unused) = unused {
            // One that stays does no harm.
            let _stays = unused.remove(&*shared.fence.disk);
        }
        Ok((position, value))
    }

    /// Removes the segments of epochs before `epoch`, which no checkpoint needs any longer.
    ///
    /// # Errors
    /// [`Error::Storage`] if a file cannot be removed. The log goes on.
    pub fn remove_before(&self, epoch: u64) -> Result<()> {
        self.check_process()?;
        let shared = &*self.shared;
        let current = shared.progress.lock().segment.name.epoch;
        let epoch = epoch.min(current);
        let (disk, folder) = (&*shared.fence.disk, &*shared.fence.folder);
        for name in segments(disk, folder)?.into_iter().filter(|name| name.epoch < epoch) {
            let path = name.path(folder);
            disk.remove_file(&path).map_err(|error| storage_error("cannot remove", &path, &error))?;
        }
        disk.sync_dir(folder).map_err(|error| storage_error("cannot sync", folder, &error))?;
        shared.progress.lock().epochs.retain(|(older, _)| *older >= epoch);
        Ok(())
    }

    /// Does what is due beside commits: the work of the log's own thread.
    pub fn tick(&self) {
        if self.is_ours() {
            upkeep::tick(&self.shared);
        }
    }

    /// Sets how many bytes should stay free on the disk beyond two segments.
    pub fn set_reserve(&self, bytes: u64) {
        if self.is_ours() {
            self.shared.progress.lock().reserve_bytes = bytes;
        }
    }

    /// Returns what has closed the log. `None` while it works.
    pub fn failure(&self) -> Option<Error> {
        if !self.is_ours() {
            return self.check_process().err();
        }
        // Inserts ask each time, under the lock of their table.
        if self.shared.is_closed.load(Acquire) { self.shared.progress.lock().failure.clone() } else { None }
    }

    /// Returns the number of bytes that the last thread with the turn to write has drained.
    pub fn last_group_bytes(&self) -> u64 {
        self.shared.last_group_bytes.load(Relaxed)
    }

    /// Returns what the log tells of itself. `None` in a forked child.
    pub fn status(&self) -> Option<LogStatus> {
        if !self.is_ours() {
            return None;
        }
        let now = (self.shared.clock)();
        let progress = self.shared.progress.lock();
        Some(LogStatus {
            mode: self.shared.mode,
            bytes: progress.epochs.iter().map(|(_, bytes)| bytes).sum(),
            epoch_bytes: progress.epochs.last().map_or(0, |(_, bytes)| *bytes),
            sync_age: progress.unsynced_age(now).unwrap_or_default(),
            is_low: progress.is_low,
            failure: progress.failure.clone(),
        })
    }

    /// Returns where a log begins that goes on behind this one after its failure, at this attempt, the first of which is 1.
    /// Its first epoch needs a checkpoint of all tables, and a synced mark, before anything is confirmed in it.
    ///
    /// # Errors
    /// [`Error::Storage`] in a forked child.
    pub fn successor(&self, attempt: u64) -> Result<Start> {
        self.check_process()?;
        let epoch = *self.next_epoch.lock();
        let mut progress = self.shared.progress.lock();
        // A thread that took the turn before the failure may not have drained yet.
        self.shared.wait_for_turn(&mut progress);
        let synced_through = progress.synced_lsn;
        drop(progress);
        // The frame that failed may be whole in its file. What happened since is in no frame, so that none may follow it,
        // nor the frames of an attempt before.
        let lsn = self.shared.writer.lock().0.next_lsn + attempt * GAP;
        Ok(Start { position: Position { log_id: self.began.log_id, epoch, lsn }, synced_through })
    }

    /// Syncs what was written, and writes a synced mark that says so.
    ///
    /// # Errors
    /// [`Error::Storage`] if the log is or will be closed by a failure.
    pub fn mark_synced(&self) -> Result<()> {
        self.check_process()?;
        upkeep::write_synced_mark(&self.shared)
    }

    /// Refuses further commits, syncs what was written, marks it as synced, and ends the thread.
    ///
    /// # Errors
    /// [`Error::Storage`] if the log is or will be closed by a failure.
    pub fn stop(&self) -> Result<()> {
        self.check_process()?;
        // A second stop waits for the sync of the first.
        let mut thread = self.thread.lock();
        let was_stopped = self.end_thread(&mut thread);
        self.shared.progress.lock().check()?;
        if was_stopped { Ok(()) } else { upkeep::write_synced_mark(&self.shared) }
    }

    /// Stops the log, and returns whether it was stopped before.
    fn end_thread(&self, thread: &mut Option<JoinHandle<()>>) -> bool {
        // Under the lock, so that the thread does not miss it between its look at the progress and its wait.
        let mut progress = self.shared.progress.lock();
        let was_stopped = std::mem::replace(&mut progress.is_stopped, true);
        self.shared.wake.notify_all();
        drop(progress);
        if let Some(thread) = thread.take() {
            // A panic of the thread was reported when it occurred.
            let _panicked = thread.join();
        }
        was_stopped
    }

    fn is_ours(&self) -> bool {
        self.generation == fork::generation()
    }

    fn check_process(&self) -> Result<()> {
        if self.is_ours() {
            return Ok(());
        }
        Err(Error::Storage("the log belongs to the process that this one was forked from".into()))
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if self.is_ours() {
            self.end_thread(&mut self.thread.lock());
        } else {
            // The thread does not exist here.
            std::mem::forget(self.thread.get_mut().take());
        }
    }
}

/// Fails if the frame that is to be the first may be in a segment of an epoch that has begun already.
fn refuse_used(disk: &dyn LogDisk, folder: &Path, names: &[SegmentName], start: Start) -> Result<()> {
    let Start { position, synced_through } = start;
    let goes_on = synced_through + 1 == position.lsn;
    for name in names.iter().filter(|name| goes_on && name.epoch >= position.epoch) {
        let path = name.path(folder);
        if read_header(disk, &path)?.is_some() {
            return Err(Error::Storage(format!(
                "{} was begun already: recover the log again, or set it aside, before another start",
                path.display()
            )));
        }
    }
    Ok(())
}

/// Number of bytes of each epoch of these segments.
fn older_epochs(disk: &dyn LogDisk, folder: &Path, names: &[SegmentName]) -> Result<Vec<(u64, u64)>> {
    let mut epochs: Vec<(u64, u64)> = Vec::new();
    for name in names {
        let path = name.path(folder);
        let size = disk.size(&path).map_err(|error| storage_error("cannot ask for the size of", &path, &error))?;
        match epochs.last_mut() {
            Some((last, bytes)) if *last == name.epoch => *bytes += size,
            _ => epochs.push((name.epoch, size)),
        }
    }
    Ok(epochs)
}
