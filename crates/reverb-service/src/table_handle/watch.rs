//! Waits for changes of a table, beside its queues: nothing of the table waits for them, and no figure counts them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Those who wait for a change of a table.
#[derive(Debug, Default)]
pub struct Watchers {
    number: AtomicUsize,
    changed: Notify,
}

impl Watchers {
    /// Begins to watch the table.
    pub fn watch(self: &Arc<Self>) -> Watch {
        self.number.fetch_add(1, Relaxed);
        Watch(self.clone())
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
}

/// Notes that somebody watches the table, until it is dropped.
#[derive(Debug)]
pub struct Watch(Arc<Watchers>);

impl Watch {
    /// Completes at a change of the table after the future was enabled.
    pub fn changed(&self) -> Notified<'_> {
        self.0.changed.notified()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.number.fetch_sub(1, Relaxed);
    }
}
