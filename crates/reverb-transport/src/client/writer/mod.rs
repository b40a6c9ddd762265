//! A writer's way to the server: items are sent in order, confirmed, and sent again where a connection was lost.
//!
//! [`Session`] is what the caller's thread uses. In the same process it inserts items itself; over a network a task
//! (`remote.rs`) sends them. The task also closes chunks that an item has waited for long enough, and looks for the
//! server when it is gone.

mod in_flight;
mod local;
mod outbox;
mod remote;
mod worker;

use super::Client;
use crate::replay::Replay;
use local::Local;
use outbox::{Outbox, name_items};
use parking_lot::Mutex;
use reverb_core::writer::{DroppedChunks, WriterItem};
use reverb_core::{Error, Result, fork, random_key};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

/// A wait this long is reported, once for each call.
const LONG_WAIT: Duration = Duration::from_secs(10);

/// How a writer sends.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// Bytes of items that are not confirmed, past which the caller waits.
    pub max_pending_bytes: usize,
    /// How long the server is looked for when it is gone, before the writer gives its items up.
    pub reconnect_timeout: Duration,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self { max_pending_bytes: 64 << 20, reconnect_timeout: Duration::from_secs(300) }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Session {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    client: Arc<Client>,
    writer_id: u64,
    options: SessionOptions,
    generation: u32,
    state: Mutex<State>,
    /// The table's side of the same-process road, while that is in use.
    local: Mutex<Option<Local>>,
    /// Tells the task that there is something to do.
    wake: Notify,
    /// Tells callers that something was confirmed or went wrong. Counts, so that nothing is missed.
    changed: watch::Sender<u64>,
    dropped: DroppedChunks,
}

#[derive(Debug, Default)]
struct State {
    outbox: Outbox,
    /// Why nothing can be sent any more.
    failed: Option<Error>,
    closed: bool,
    /// Whether the server is being looked for.
    is_lost: bool,
    /// What the first item waits for, as far as is known.
    reason: String,
    has_worker: bool,
}

impl Session {
    /// A session of a new writer. Nothing is sent yet.
    pub fn new(client: Arc<Client>, options: SessionOptions, dropped: DroppedChunks) -> Self {
        let shared = Shared {
            client,
            writer_id: random_key().max(1),
            options,
            generation: fork::generation(),
            state: Mutex::default(),
            local: Mutex::default(),
            wake: Notify::new(),
            changed: watch::Sender::new(0),
            dropped,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Queues items, and hands them to tables of this process at once if that is possible. True if the caller should wait for
    /// [`Session::room`].
    ///
    /// # Errors
    /// As [`Session::check`]; no item was queued then.
    pub fn push(&self, runtime: &Handle, items: impl IntoIterator<Item = WriterItem>) -> Result<bool> {
        self.check()?;
        let shared = &self.shared;
        let (has_worker, was_idle) = {
            let mut state = shared.state.lock();
            let was_idle = state.outbox.front().is_none();
            items.into_iter().for_each(|item| state.outbox.push(item));
            (std::mem::replace(&mut state.has_worker, true), was_idle)
        };
        if !has_worker {
            if let Some(replay) = shared.client.same_process() {
                *shared.local.lock() = Some(Local::new(replay));
            }
            runtime.spawn(worker::run(shared.clone()));
        }
        let (has_ready, is_full) = {
            let state = shared.state.lock();
            let has_ready = state.outbox.front().is_some_and(outbox::is_ready);
            (has_ready, state.outbox.bytes() > shared.options.max_pending_bytes)
        };
        // While the first item waits for its chunk there is nothing to do for the task, but to see that it does not wait long.
        if was_idle || has_ready {
            self.pump();
        }
        Ok(is_full && shared.state.lock().outbox.bytes() > shared.options.max_pending_bytes)
    }

    /// Hands over what can go now, after chunks were closed.
    pub fn pump(&self) {
        if !self.shared.pump_local() {
            self.shared.wake.notify_one();
        }
    }

    /// Whether items can be sent, and what became of those before.
    ///
    /// # Errors
    /// The first error of an item that the server refused and that was not reported yet: the writer goes on without it.
    /// [`Error::Cancelled`] after a close, [`Error::Unavailable`] if the server was lost for good.
    pub fn check(&self) -> Result<()> {
        if self.shared.generation != fork::generation() {
            return Err(Error::Cancelled(
                "a writer cannot be used in a child of the process that made it; make a new one there".into(),
            ));
        }
        let mut state = self.shared.state.lock();
        if let Some(error) = state.outbox.take_refusal() {
            return Err(error);
        }
        match &state.failed {
            Some(error) => Err(error.clone()),
            None if state.closed => Err(Error::Cancelled("TrajectoryWriter::Close has been called.".into())),
            None => Ok(()),
        }
    }

    /// Waits until there is room for more items.
    ///
    /// # Errors
    /// As [`Session::check`].
    pub async fn room(&self, notice: impl Fn(&str)) -> Result<()> {
        let limit = self.shared.options.max_pending_bytes;
        self.wait(None, notice, |outbox| outbox.bytes() <= limit || outbox.len() == 0).await
    }

    /// Whether more than `limit` items that could be sent are unconfirmed.
    pub fn has_more_in_flight(&self, limit: usize) -> bool {
        let state = self.shared.state.lock();
        has_more_in_flight(&state.outbox, limit)
    }

    /// Waits until that is not so.
    ///
    /// # Errors
    /// As [`Session::check`].
    pub async fn wait_in_flight(&self, limit: usize, notice: impl Fn(&str)) -> Result<()> {
        self.wait(None, notice, |outbox| !has_more_in_flight(outbox, limit)).await
    }

    /// Closes the chunks of all items but the last `but_last`, and waits until no more than those are unconfirmed.
    ///
    /// # Errors
    /// As [`Session::check`]; [`Error::DeadlineExceeded`] with what is still on its way.
    pub async fn flush(&self, but_last: usize, deadline: Option<Instant>, notice: impl Fn(&str)) -> Result<()> {
        self.check()?;
        let chunks = self.shared.state.lock().outbox.unsent_chunks(but_last);
        chunks.iter().try_for_each(|chunk| chunk.close().map(drop))?;
        self.pump();
        self.wait(deadline, notice, |outbox| outbox.len() <= but_last).await
    }

    async fn wait(
        &self,
        deadline: Option<Instant>,
        notice: impl Fn(&str),
        enough: impl Fn(&Outbox) -> bool,
    ) -> Result<()> {
        let mut changed = self.shared.changed.subscribe();
        let mut notice_at = Some(Instant::now() + LONG_WAIT);
        loop {
            let counts = {
                let state = self.shared.state.lock();
                if state.failed.is_some() || state.closed || state.outbox.has_refusal() {
                    drop(state);
                    return self.check();
                }
                if enough(&state.outbox) {
                    return Ok(());
                }
                state.outbox.counts()
            };
            let (unsent, sent) = counts;
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Err(Error::DeadlineExceeded(format!(
                    "Timeout exceeded with {unsent} items waiting to be written and {sent} items awaiting confirmation.{}",
                    self.shared.reason()
                )));
            }
            if notice_at.is_some_and(|at| now >= at) {
                notice_at = None;
                notice(&format!("a writer waits: {} items are not confirmed.{}", unsent + sent, self.shared.reason()));
            }
            let wake = [deadline, notice_at].into_iter().flatten().min();
            match wake {
                None => drop(changed.changed().await),
                Some(wake) => drop(tokio::time::timeout_at(wake.into(), changed.changed()).await),
            }
        }
    }

    /// Ends the session: waits until all items are confirmed, `patience` at most, and drops the rest. What was dropped, in
    /// words, with the reason; `None` if that is nothing. A second call does nothing.
    pub async fn close(&self, patience: Duration) -> Option<String> {
        if self.shared.generation != fork::generation() || self.shared.state.lock().closed {
            return None;
        }
        let result = self.flush(0, Instant::now().checked_add(patience), |_| {}).await;
        let (lost, refused) = {
            let mut state = self.shared.state.lock();
            state.closed = true;
            let mut refused = Vec::new();
            while let Some(error) = state.outbox.take_refusal() {
                refused.push(error);
            }
            (state.outbox.take_all(), refused)
        };
        self.shared.tell();
        self.shared.wake.notify_one();
        drop(self.shared.local.lock().take());
        let mut words = Vec::new();
        if !lost.is_empty() {
            words.push(format!(
                "{} items were not confirmed and are given up ({})",
                lost.len(),
                name_items(lost.iter())
            ));
        }
        words.extend(refused.iter().map(ToString::to_string));
        if words.is_empty() {
            return None;
        }
        if let Err(error) = result {
            words.push(error.to_string());
        }
        Some(words.join("; "))
    }

    /// Whether the server is there, as far as is known.
    pub fn has_server(&self) -> bool {
        let state = self.shared.state.lock();
        state.failed.is_none() && !state.is_lost
    }

    /// Items that are not confirmed.
    pub fn num_pending(&self) -> usize {
        self.shared.state.lock().outbox.len()
    }

    /// Items confirmed so far.
    pub fn num_confirmed(&self) -> u64 {
        self.shared.state.lock().outbox.confirmed()
    }
}

/// Items that wait for an open chunk are not in flight, whatever their number.
fn has_more_in_flight(outbox: &Outbox, limit: usize) -> bool {
    let (_, sent) = outbox.counts();
    sent > limit || outbox.num_ready(limit + 1 - sent) > limit - sent
}

impl Drop for Session {
    fn drop(&mut self) {
        // The task holds the shared part, and ends when it sees this.
        if self.shared.generation == fork::generation() {
            let lost = {
                let mut state = self.shared.state.lock();
                state.closed = true;
                state.outbox.take_all()
            };
            if !lost.is_empty() {
                tracing::warn!(
                    "a writer was dropped with {} items unconfirmed ({})",
                    lost.len(),
                    name_items(lost.iter())
                );
            }
            self.shared.wake.notify_one();
        }
    }
}

impl Shared {
    fn tell(&self) {
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Why items wait, as far as is known. Takes both locks, one after the other.
    fn reason(&self) -> String {
        let reason = self.local.lock().as_ref().and_then(Local::explain);
        let reason = reason.unwrap_or_else(|| self.state.lock().reason.clone());
        if reason.is_empty() { reason } else { format!(" {reason}") }
    }

    /// Inserts what can go into the tables of this process. False if there are none.
    fn pump_local(&self) -> bool {
        let mut local = self.local.lock();
        let Some(local) = local.as_mut() else { return false };
        local.pump(self);
        true
    }

    /// Whether the first item could go but for chunks that are to be compressed.
    fn needs_compression(&self) -> bool {
        !self.state.lock().outbox.uncompressed().is_empty()
    }

    /// Compresses the chunks of the first items, without a lock.
    fn compress(&self) {
        loop {
            let chunks = self.state.lock().outbox.uncompressed();
            if chunks.is_empty() {
                return;
            }
            for chunk in chunks {
                // What cannot be closed is reported when its item is sent.
                let _reported_later = chunk.compress();
            }
        }
    }

    /// The service of this process, if the same-process road can be used.
    fn same_process(&self) -> Option<Arc<Replay>> {
        self.client.same_process()
    }
}
