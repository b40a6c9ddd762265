//! The limit on the unconfirmed items of all writers of a client together.

use reverb_core::fork;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tokio::sync::Notify;

// limit (Writers): bytes of the unconfirmed items of all writers of a client | {}, and one item of each writer; more if
// writers are made while others have filled it | half is shared on demand, half divided equally: once the first half is
// used, a writer above its equal share waits | `Client(max_pending_bytes=)`
/// Default limit in bytes.
pub const DEFAULT_PENDING_BYTES: usize = 64 << 20;

/// The bytes of unconfirmed items of all writers of one client, and their limit.
///
/// Half of the limit is shared on demand. The other half is divided equally among the writers: a writer with less than
/// its share never waits for the others, so one whose table is blocked does not stop them. A writer that is alone has
/// all of the limit.
#[derive(Debug)]
pub struct PendingLimit {
    limit: usize,
    bytes: AtomicUsize,
    writers: AtomicUsize,
    /// Notified when waiting writers may go on.
    freed: Notify,
    generation: u32,
}

impl PendingLimit {
    /// Makes the limit of a client without writers.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            bytes: AtomicUsize::new(0),
            writers: AtomicUsize::new(0),
            freed: Notify::new(),
            generation: fork::generation(),
        }
    }

    /// Makes the limit for a child of the process that made this one, if this is the child. Writers of the parent do not
    /// count in it.
    pub fn after_fork(&self) -> Option<Self> {
        (self.generation != fork::generation()).then(|| Self::new(self.limit))
    }

    /// Counts a writer.
    pub fn join(&self) {
        self.writers.fetch_add(1, SeqCst);
    }

    /// Stops counting a writer, which has no items any more.
    pub fn leave(&self) {
        self.writers.fetch_sub(1, SeqCst);
        self.freed.notify_waiters();
    }

    /// Changes the bytes that a writer has counted.
    pub fn change(&self, before: usize, after: usize) {
        if after >= before {
            self.bytes.fetch_add(after - before, SeqCst);
            return;
        }
        let freed = before - after;
        let all = self.bytes.fetch_sub(freed, SeqCst);
        let (common, _) = self.parts();
        if all > common && all - freed <= common {
            self.freed.notify_waiters();
        }
    }

    /// Returns the part of the limit that is for all writers, and the share of one.
    fn parts(&self) -> (usize, usize) {
        match self.writers.load(SeqCst) {
            0 | 1 => (self.limit, self.limit),
            writers => (self.limit / 2, self.limit / 2 / writers),
        }
    }

    /// Whether a writer with this many bytes must wait.
    pub fn is_exceeded_by(&self, bytes: usize) -> bool {
        let (common, share) = self.parts();
        self.bytes.load(SeqCst) > common && bytes > share
    }

    /// Completes when writers that wait may go on. A call before a check of [`PendingLimit::is_exceeded_by`] misses
    /// nothing that comes after the check.
    pub fn freed(&self) -> impl Future<Output = ()> {
        self.freed.notified()
    }
}
