//! What a log does beside commits: syncs at intervals, marks, the next segment, hints to the system, free space.

use super::progress::HINT_BYTES;
use super::shared::Shared;
use reverb_core::Result;
use reverb_service::LogMode;
use std::time::Duration;

/// Time after a sync in which changes usually follow, so that no mark is needed.
const MARK_PAUSE: Duration = Duration::from_millis(10);

/// Does what is due now. Failures close the log.
pub fn tick(shared: &Shared) {
    let mut progress = shared.progress.lock();
    if progress.failure.is_some() || progress.is_stopped {
        return;
    }
    progress.is_wanted = false;
    let sealed = std::mem::take(&mut progress.sealed);
    drop(progress);
    sealed.iter().for_each(|segment| segment.forget());
    if let Err(error) = make_spare(shared) {
        shared.close(&mut shared.progress.lock(), &error);
        return;
    }
    hint(shared);
    // The log has told what went wrong.
    let _closed = sync_if_due(shared).and_then(|()| mark_if_due(shared));
    watch_space(shared);
}

fn make_spare(shared: &Shared) -> Result<()> {
    let mut spare = shared.spare.lock();
    if spare.segment.is_some() {
        return Ok(());
    }
    shared.fence.check()?;
    shared.make_ahead(&mut spare)
}

fn hint(shared: &Shared) {
    let mut progress = shared.progress.lock();
    let (begin, end) = (progress.hinted, progress.offset);
    if end - begin >= HINT_BYTES {
        progress.hinted = end;
        let segment = progress.segment.clone();
        drop(progress);
        segment.begin_sync(begin..end);
    }
}

fn sync_if_due(shared: &Shared) -> Result<()> {
    let mut progress = shared.progress.lock();
    if progress.unsynced_age((shared.clock)()).is_none_or(|age| age < shared.sync_interval) {
        return Ok(());
    }
    let group = progress.written;
    shared.sync_through(&mut progress, group)
}

fn mark_if_due(shared: &Shared) -> Result<()> {
    let mut progress = shared.progress.lock();
    let pause = if shared.mode == LogMode::Power { MARK_PAUSE } else { Duration::ZERO };
    let age = (shared.clock)().saturating_duration_since(progress.last_sync);
    if progress.is_writing || !progress.lacks_mark() || age < pause {
        return Ok(());
    }
    shared.mark(&mut progress)
}

fn watch_space(shared: &Shared) {
    let now = (shared.clock)();
    let mut progress = shared.progress.lock();
    if progress.last_look.is_some_and(|last| now.saturating_duration_since(last) < shared.sync_interval) {
        return;
    }
    progress.last_look = Some(now);
    drop(progress);
    // A system that does not answer this may still write.
    let Ok(free) = shared.fence.disk.free_space(&shared.fence.folder) else { return };
    let mut progress = shared.progress.lock();
    let is_low = free < (2 * shared.segment_bytes).saturating_add(progress.reserve_bytes);
    if is_low && !progress.is_low {
        tracing::warn!(
            "{} has {free} bytes left, less than two segments of the log and {} bytes for a checkpoint",
            shared.fence.folder.display(),
            progress.reserve_bytes
        );
    }
    progress.is_low = is_low;
}

/// Runs until the log is stopped or closed: the log's own thread.
pub fn run(shared: &Shared) {
    loop {
        let mut progress = shared.progress.lock();
        if !progress.is_wanted && !progress.is_stopped && progress.failure.is_none() {
            progress.naps = shared.mode == LogMode::Power && progress.lacks_mark();
            // Also after a wake, what was written is synced in time.
            let age = progress.unsynced_age((shared.clock)()).unwrap_or_default();
            let pause = shared.sync_interval.saturating_sub(age);
            let pause = if progress.naps { MARK_PAUSE.min(pause) } else { pause };
            shared.wake.wait_for(&mut progress, pause);
            progress.naps = false;
        }
        if progress.is_stopped || progress.failure.is_some() {
            return;
        }
        drop(progress);
        tick(shared);
    }
}

/// Syncs all that was written, and writes a synced mark that says so.
pub fn write_synced_mark(shared: &Shared) -> Result<()> {
    let mut progress = shared.progress.lock();
    shared.wait_for_turn(&mut progress);
    shared.sync_all(&mut progress)?;
    shared.mark(&mut progress)?;
    shared.sync_all(&mut progress)
}
