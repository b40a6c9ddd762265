//! Waits for changes of a table, beside its queues: nothing of the table waits for them, and no figure counts them.

use super::requests::WaitKind;
use crate::peer::Peer;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Those who wait for a change of a table.
#[derive(Debug, Default)]
pub struct Watchers {
    /// The number of those in `waiting`, for tables that change all the time.
    number: AtomicUsize,
    waiting: Mutex<Vec<Arc<Watcher>>>,
    changed: Notify,
}

#[derive(Debug)]
struct Watcher {
    kind: WaitKind,
    peer: Arc<Peer>,
    since: Instant,
}

impl Watchers {
    /// Begins to watch the table for a peer, which has waited since a moment.
    pub fn watch(self: &Arc<Self>, kind: WaitKind, peer: Arc<Peer>, since: Instant) -> Watch {
        self.number.fetch_add(1, Relaxed);
        let watcher = Arc::new(Watcher { kind, peer, since });
        self.waiting.lock().push(watcher.clone());
        Watch { watchers: self.clone(), watcher }
    }

    /// Wakes them. Called after a change, without the lock of the table.
    ///
    /// Who watches has noted it before a look under the lock. The change was made under the lock, so either that look
    /// has seen it, or this sees the number.
    #[inline]
    pub fn tell(&self) {
        if self.number.load(Relaxed) > 0 {
            self.changed.notify_waiters();
        }
    }

    /// Returns at most `limit` of them: who waits, and since when.
    pub fn waiting(&self, limit: usize) -> Vec<(WaitKind, Arc<Peer>, Instant)> {
        let first = |watcher: &Arc<Watcher>| (watcher.kind, watcher.peer.clone(), watcher.since);
        self.waiting.lock().iter().take(limit).map(first).collect()
    }
}

/// Notes that somebody watches the table, until it is dropped.
#[derive(Debug)]
pub struct Watch {
    watchers: Arc<Watchers>,
    watcher: Arc<Watcher>,
}

impl Watch {
    /// Completes at a change of the table after the future was enabled.
    pub fn changed(&self) -> Notified<'_> {
        self.watchers.changed.notified()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.watchers.waiting.lock().retain(|other| !Arc::ptr_eq(other, &self.watcher));
        self.watchers.number.fetch_sub(1, Relaxed);
    }
}
