//! The state that the caller of a writer and the task of the writer share.

use super::local::{Local, Sent, arrival};
use super::outbox::{Outbox, is_ready, waits_for_chunk};
use super::pending_limit::{DEFAULT_PENDING_BYTES, PendingLimit};
use parking_lot::Mutex;
use reverb_core::writer::{StreamChunks, WriterItem};
use reverb_core::{Error, Result, fork, random_key};
use reverb_service::write_queue::Done;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// Maximum number of items that are inserted into tables of this process at a time.
const ITEMS_PER_TURN: usize = 64;

/// Limits of a session.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// Bytes of unconfirmed items of this writer above which the caller waits.
    pub max_pending_bytes: usize,
    /// Number of unconfirmed items of this writer above which the caller waits.
    pub max_in_flight_items: usize,
    /// Time without a server after which the writer gives its items up.
    pub reconnect_timeout: Duration,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            max_pending_bytes: DEFAULT_PENDING_BYTES,
            max_in_flight_items: usize::MAX,
            reconnect_timeout: Duration::from_secs(300),
        }
    }
}

/// The shared part of a session.
#[derive(Debug)]
pub struct SharedSession {
    /// The address of the server, as the program has given it. The streams of one writer share it.
    pub address: Arc<str>,
    pub writer_id: u64,
    pub options: SessionOptions,
    /// The limit on the unconfirmed items of all writers of the client.
    pub all: Arc<PendingLimit>,
    pub generation: u32,
    pub state: Mutex<SessionState>,
    /// The tables of this process, while the writer uses them.
    pub local: Mutex<Option<Local>>,
    /// Whether the task alone uses these tables, because the caller must not wait for them.
    pub is_left_to_task: AtomicBool,
    /// Wakes the task when it has something to do.
    pub wake: Notify,
    /// Wakes callers after a confirmation or an error. The value is a counter, so that no change is missed.
    pub changed: watch::Sender<u64>,
    pub chunks: StreamChunks,
}

/// The part of a session that its lock guards.
#[derive(Debug, Default)]
pub struct SessionState {
    pub outbox: Outbox,
    /// The error after which nothing can be sent.
    pub failed: Option<Error>,
    /// Whether a caller has got that error, which names the items that were lost.
    is_told: bool,
    pub closed: bool,
    /// Whether the server is lost and the task tries to reach it.
    pub is_lost: bool,
    /// Text that says what the first item waits for, as far as is known.
    pub reason: String,
    /// Whether the task limits the time for which the first item waits for an open chunk.
    pub lingers: bool,
    /// Whether the task of the writer was started.
    pub has_worker: bool,
    /// Whether nothing is sent before the writer takes part in the limiters of its tables.
    pub is_held: bool,
    /// Bytes that the writer has counted in the limit of its client.
    counted: usize,
}

impl SessionState {
    /// Counts the unconfirmed items in the limit of the client. Called after the items have changed.
    pub fn count(&mut self, all: &PendingLimit) {
        let bytes = self.outbox.bytes();
        if bytes != self.counted {
            all.change(std::mem::replace(&mut self.counted, bytes), bytes);
        }
    }

    /// Queues items, unless the session was closed or has failed. Returns whether an earlier item was refused, which is
    /// not reported yet.
    ///
    /// # Errors
    /// The error of an earlier item that was refused, else those of [`SessionState::check_open`].
    pub fn push(&mut self, items: impl IntoIterator<Item = WriterItem>, all: &PendingLimit) -> Result<bool> {
        let has_refusal = self.has_refusal()?;
        items.into_iter().for_each(|item| self.outbox.push(item));
        self.count(all);
        Ok(has_refusal)
    }

    /// Whether an item was refused and not reported yet.
    ///
    /// # Errors
    /// Those of [`SessionState::push`].
    pub fn has_refusal(&mut self) -> Result<bool> {
        if let Some(error) = (self.failed.is_some() || self.closed).then(|| self.outbox.take_refusal()).flatten() {
            return Err(error);
        }
        self.check_open().map(|()| self.outbox.has_refusal())
    }

    /// Checks that items can be sent.
    pub fn check_open(&mut self) -> Result<()> {
        match &self.failed {
            Some(error) => {
                self.is_told = true;
                Err(error.clone())
            }
            None if self.closed => Err(Error::Cancelled("TrajectoryWriter::Close has been called.".into())),
            None => Ok(()),
        }
    }

    /// The error after which nothing can be sent, if no caller has got it.
    pub fn take_untold(&mut self) -> Option<Error> {
        if std::mem::replace(&mut self.is_told, true) { None } else { self.failed.clone() }
    }

    /// Closes the session and returns its unconfirmed items.
    pub fn close(&mut self, all: &PendingLimit) -> Vec<WriterItem> {
        self.closed = true;
        let items = self.outbox.take_all();
        self.count(all);
        items
    }

    /// Returns the first unsent item if it may be sent.
    pub fn next(&self) -> Option<&WriterItem> {
        self.outbox.front().filter(|item| !self.is_held && is_ready(item))
    }

    /// Takes the items that are ready from the front of the outbox.
    fn take_ready(&mut self) -> Vec<Sent> {
        let mut sent = Vec::new();
        while sent.len() < ITEMS_PER_TURN && !self.closed {
            let is_compressed = |item: &&WriterItem| !item.chunks().any(|chunk| chunk.needs_compression());
            if self.next().filter(is_compressed).is_none() {
                break;
            }
            sent.extend(
                self.outbox.send_front(|sequence, item| (sequence, item.table.clone(), arrival(sequence, item))),
            );
        }
        sent
    }
}

/// What the caller of a writer does after it has queued items.
#[derive(Debug, Clone, Copy)]
pub struct Queued {
    /// It reports an earlier item that was refused.
    pub has_refusal: bool,
    /// It starts the task.
    pub needs_worker: bool,
    /// It sends items. While the first item waits for an open chunk, the task only has to limit the time of that wait.
    pub can_send: bool,
}

impl SharedSession {
    /// Makes the shared part of a new writer.
    pub fn new(address: &str, all: Arc<PendingLimit>, options: SessionOptions, chunks: StreamChunks) -> Self {
        Self {
            all,
            address: address.into(),
            writer_id: random_key().max(1),
            options,
            generation: fork::generation(),
            state: Mutex::default(),
            local: Mutex::default(),
            is_left_to_task: AtomicBool::new(false),
            wake: Notify::new(),
            changed: watch::Sender::new(0),
            chunks,
        }
    }

    /// Makes the part of another stream of the same writer, which numbers its items itself.
    pub fn beside(&self) -> Self {
        Self {
            address: self.address.clone(),
            changed: self.changed.clone(),
            ..Self::new("", self.all.clone(), self.options.clone(), StreamChunks::default())
        }
    }

    /// Queues items.
    ///
    /// # Errors
    /// Those of [`SessionState::push`].
    pub fn queue(&self, items: impl IntoIterator<Item = WriterItem>) -> Result<Queued> {
        let mut state = self.state.lock();
        let was_idle = state.outbox.front().is_none();
        let has_refusal = state.push(items, &self.all)?;
        let needs_worker = !std::mem::replace(&mut state.has_worker, true);
        Ok(Queued { has_refusal, needs_worker, can_send: was_idle || state.outbox.front().is_some_and(is_ready) })
    }

    /// The number of unconfirmed items with which the caller may make so many more. A writer without any may make as many
    /// as it likes.
    pub fn most_items_before(&self, count: usize) -> usize {
        self.options.max_in_flight_items.saturating_sub(count)
    }

    /// Whether the caller may make so many more items if the writer has `len` unconfirmed ones of so many bytes. A writer
    /// may have one item whatever its size, and whatever the other writers have.
    pub fn has_room(&self, len: usize, bytes: usize, count: usize) -> bool {
        let exceeds_all = || len > 1 && self.all.is_exceeded_by(bytes);
        len == 0 || len <= self.most_items_before(count) && bytes <= self.options.max_pending_bytes && !exceeds_all()
    }

    pub fn tell(&self) {
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Says why items wait, as far as is known. Takes both locks, one after the other.
    pub fn reason(&self) -> String {
        let reason = self.local.lock().as_ref().and_then(Local::explain);
        let reason = reason.unwrap_or_else(|| self.state.lock().reason.clone());
        if reason.is_empty() { reason } else { format!(" {reason}") }
    }

    /// Whether [`SharedSession::pump_local`] would be over at once: it leaves the items to the task, or inserts few bytes into
    /// quiet tables.
    pub fn pumps_at_once(&self, most_bytes: usize) -> bool {
        if self.is_left_to_task.load(Relaxed) {
            return true;
        }
        let Some(local) = self.local.try_lock() else { return false };
        let Some(local) = local.as_ref() else { return true };
        let to_compress = || self.state.lock().outbox.uncompressed();
        local.is_quiet() && to_compress().iter().map(|chunk| chunk.size_bytes()).sum::<usize>() <= most_bytes
    }

    /// Inserts the items that are ready into tables of this process. Returns false if that is left to the task, or the
    /// road is a different one.
    pub fn pump_local(&self) -> bool {
        if self.is_left_to_task.load(Relaxed) {
            return false;
        }
        let mut local = self.local.lock();
        let Some(local) = local.as_mut() else { return false };
        self.pump(local);
        true
    }

    /// Inserts items from the front of the outbox into tables of this process while their chunks are closed.
    pub fn pump(&self, local: &mut Local) {
        let mut done = Done::new();
        let waiting_before = local.num_waiting();
        loop {
            let sent = self.state.lock().take_ready();
            if sent.is_empty() {
                let (needs_compression, is_unwatched) = {
                    let state = self.state.lock();
                    let waits = state.outbox.front().is_some_and(waits_for_chunk);
                    (!state.outbox.uncompressed().is_empty(), waits && !state.lingers)
                };
                if is_unwatched {
                    self.wake.notify_one();
                }
                if !needs_compression {
                    break;
                }
                self.compress();
            }
            local.insert(sent, &mut done);
        }
        // The task polls waiting items, and has not seen the new ones yet. It also looks for the next server: an idle
        // task is not woken when its server stops.
        if local.num_waiting() > waiting_before || local.is_closed() {
            self.wake.notify_one();
        }
        self.settle(done);
    }

    /// Whether the session has ended: the writer was closed, or this is a copy in a forked child.
    pub fn is_over(&self) -> bool {
        self.generation != fork::generation() || self.state.lock().closed
    }

    /// Records that the server was lost, and the reason.
    pub fn note_lost(&self, error: &Error) {
        let mut state = self.state.lock();
        state.reason = format!("The server cannot be reached: {error}");
        state.is_lost = true;
        drop(state);
        self.tell();
    }

    /// Gives up all items for good. `error` makes the error of later calls from a text that counts the items.
    pub fn fail(&self, error: impl FnOnce(&str) -> Error) {
        let lost = {
            let mut state = self.state.lock();
            let (count, tables) = (state.outbox.len(), state.outbox.describe());
            state.failed = Some(error(&format!("{count} items were not confirmed ({tables})")));
            let lost = state.outbox.take_all();
            state.count(&self.all);
            lost
        };
        self.tell();
        drop(lost);
    }

    /// Records the results of items.
    pub fn settle(&self, done: Done) {
        if done.is_empty() {
            return;
        }
        let mut finished = Vec::with_capacity(done.len());
        {
            let mut state = self.state.lock();
            for (sequence, result) in done {
                finished.push(match result {
                    Ok(()) => state.outbox.confirm(sequence),
                    // The server was stopped. The item stays, and is sent to the next server.
                    Err(Error::Cancelled(_) | Error::CallCancelled(_) | Error::ServerStopped(_)) => None,
                    Err(error) => state.outbox.refuse(sequence, error),
                });
            }
            state.count(&self.all);
            state.reason.clear();
        }
        self.tell();
    }

    /// Compresses the chunks of the first items without holding the lock.
    pub fn compress(&self) {
        loop {
            let chunks = self.state.lock().outbox.uncompressed();
            if chunks.is_empty() {
                return;
            }
            for chunk in chunks {
                // An error is reported when the item is sent.
                let _reported_later = chunk.compress();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_that_come_when_the_session_was_closed_are_refused_and_do_not_count() {
        let all = Arc::new(PendingLimit::new(0));
        let session = SharedSession::new("", all.clone(), SessionOptions::default(), StreamChunks::default());
        let item = || WriterItem {
            table: "table".into(),
            key: 1,
            priority: 1.0.into(),
            columns: Box::default(),
            is_validated: true,
        };
        let mut state = session.state.lock();
        assert!(matches!(state.push([item()], &all), Ok(false)));
        assert!(all.is_exceeded_by(1), "it counts");
        assert_eq!(state.close(&all).len(), 1);
        assert!(matches!(state.push([item()], &all), Err(Error::Cancelled(_))));
        assert!(!all.is_exceeded_by(1) && state.outbox.len() == 0, "nothing would take its bytes back");
    }
}
