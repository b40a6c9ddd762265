//! The caller's side of the session of a writer.

use super::drawn;
use super::open_sessions;
use super::worker;
use crate::client::{Client, Road};
use crate::writing::{Local, Outbox, SessionOptions, SharedSession, count_items, is_ready, name_items};
use reverb_core::writer::{DroppedChunks, WriterItem};
use reverb_core::{Error, KeySlots, Result, fork};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// Time after which a wait is reported, again and again.
const REPORT_DELAY: Duration = Duration::from_secs(10);

/// What becomes of a wait when an item is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refused {
    /// It ends with the error of the item.
    Ends,
    /// It goes on: the call that waits has not done its work yet, and reports the item after that.
    Stays,
}

/// What a closed session has discarded.
#[derive(Debug)]
pub struct Discarded {
    /// Number of unconfirmed items for each table.
    pub items: BTreeMap<Arc<str>, usize>,
    /// The errors of refused items, and the reason why others were not confirmed.
    pub reasons: Vec<String>,
}

/// The session of one writer. Dropping it without [`Session::close`] drops all unconfirmed items.
#[derive(Debug)]
pub struct Session {
    client: Arc<Client>,
    shared: Arc<SharedSession>,
}

impl Session {
    /// Makes the session of a new writer. Nothing is sent yet.
    pub fn new(client: Arc<Client>, options: SessionOptions, dropped: DroppedChunks) -> Self {
        let shared = Arc::new(SharedSession::new(client.address(), client.pending(), options, dropped));
        open_sessions::add(&shared);
        Self { client, shared }
    }

    /// Queues items, for which the caller has taken the room ([`Session::take_room`]), and inserts them into tables of
    /// this process at once if possible. Returns whether [`Session::check`] has an earlier item to report that was refused.
    ///
    /// # Errors
    /// The errors of [`Session::check_open`]. No item is queued then.
    pub fn push(&self, runtime: &Handle, items: impl IntoIterator<Item = WriterItem>) -> Result<bool> {
        self.check_process()?;
        let shared = &self.shared;
        let (has_worker, was_idle, has_refusal) = {
            let mut state = shared.state.lock();
            let was_idle = state.outbox.front().is_none();
            // Not of these items, which the next call reports.
            let has_refusal = state.push(items, &shared.all)?;
            (std::mem::replace(&mut state.has_worker, true), was_idle, has_refusal)
        };
        if !has_worker {
            if let Some(replay) = self.client.road_now().as_ref().and_then(Road::here) {
                *shared.local.lock() = Some(Local::new(replay.clone(), self.client.id()));
            }
            runtime.spawn(worker::run(self.client.clone(), shared.clone()));
        }
        let has_ready = shared.state.lock().outbox.front().is_some_and(is_ready);
        // While the first item waits for an open chunk, the task only has to limit the time of that wait.
        if was_idle || has_ready {
            self.pump();
        }
        Ok(has_refusal)
    }

    /// Returns the slots of the keys of new items, as far as they are known: those of the server.
    pub fn key_slots(&self) -> KeySlots {
        self.client.key_slots()
    }

    /// Leaves inserts into tables of this process to the task of the writer. For a caller that must not wait for the tables,
    /// such as an event loop.
    pub fn leave_to_task(&self) {
        self.shared.is_left_to_task.store(true, Relaxed);
    }

    /// Sends the items that are ready. Called after chunks were closed.
    pub fn pump(&self) {
        if !self.shared.pump_local() {
            self.shared.wake.notify_one();
        }
    }

    /// Checks that items can be sent, and that no earlier item has failed.
    ///
    /// # Errors
    /// The first error that was not reported yet, of an item that the server refused. The writer continues without that
    /// item. [`Error::Cancelled`] after the session was closed, [`Error::Unavailable`] after the writer has given up.
    pub fn check(&self) -> Result<()> {
        self.check_process()?;
        let mut state = self.shared.state.lock();
        match state.outbox.take_refusal() {
            Some(error) => Err(error),
            None => state.check_open(),
        }
    }

    /// Checks that items can be sent. Returns whether [`Session::check`] has an item to report that was refused, which a
    /// call does after its own work.
    ///
    /// # Errors
    /// [`Error::Cancelled`] after the session was closed, [`Error::Unavailable`] after the writer has given up. An item
    /// that was refused is reported before either.
    pub fn check_open(&self) -> Result<bool> {
        self.check_process()?;
        self.shared.state.lock().has_refusal()
    }

    fn check_process(&self) -> Result<()> {
        if self.shared.generation == fork::generation() {
            return Ok(());
        }
        Err(Error::Cancelled(
            "a writer cannot be used in a child of the process that made it; make a new writer in the child".into(),
        ))
    }

    /// Whether there is room for so many more items; 0 asks whether the writer is over its limits.
    pub fn has_room(&self, count: usize) -> bool {
        // In a forked child the lock may be held for ever; the call fails when it begins.
        let shared = &self.shared;
        shared.generation != fork::generation() || shared.has_room(&shared.state.lock().outbox, count)
    }

    /// Closes the chunks of the items that must be confirmed first, and waits until there is room for so many more items.
    /// For more than the writer may have in flight, it waits until no item is unconfirmed. Passes the reason of a long wait
    /// to `notice`.
    ///
    /// # Errors
    /// The errors of [`Session::check_open`], or [`Error::DeadlineExceeded`]. Items that were refused stay to be reported.
    pub async fn take_room(&self, count: usize, deadline: Option<Instant>, notice: impl Fn(&str)) -> Result<()> {
        let shared = &self.shared;
        self.check_process()?;
        let most = shared.most_items_before(count);
        // The caller appends no steps while it waits, so nothing else would close these chunks.
        self.close_chunks(most)?;
        self.wait(deadline, Refused::Stays, &notice, |outbox| outbox.len() <= most).await?;
        if !self.has_room(count) {
            self.close_chunks(0)?;
        }
        self.wait(deadline, Refused::Stays, notice, |outbox| shared.has_room(outbox, count)).await
    }

    /// Closes the chunks of all items except the last `but_last`, and sends these items.
    fn close_chunks(&self, but_last: usize) -> Result<()> {
        let chunks = self.shared.state.lock().outbox.unsent_chunks(but_last);
        chunks.iter().try_for_each(|chunk| chunk.close().map(drop))?;
        self.pump();
        Ok(())
    }

    /// Whether more than `limit` items are unconfirmed that were sent or are ready to be sent.
    pub fn has_more_in_flight(&self, limit: usize) -> bool {
        let state = self.shared.state.lock();
        has_more_in_flight(&state.outbox, limit)
    }

    /// Waits until [`Session::has_more_in_flight`] is false.
    ///
    /// # Errors
    /// The errors of [`Session::check`].
    pub async fn wait_in_flight(&self, limit: usize, notice: impl Fn(&str)) -> Result<()> {
        self.wait(None, Refused::Ends, notice, |outbox| !has_more_in_flight(outbox, limit)).await
    }

    /// Closes the chunks of all items except the last `but_last`, and waits until at most `but_last` items are
    /// unconfirmed.
    ///
    /// # Errors
    /// The errors of [`Session::check`], or [`Error::DeadlineExceeded`] with the numbers of unconfirmed items.
    pub async fn flush(&self, but_last: usize, deadline: Option<Instant>, notice: impl Fn(&str)) -> Result<()> {
        self.check()?;
        self.close_chunks(but_last)?;
        self.wait(deadline, Refused::Ends, notice, |outbox| outbox.len() <= but_last).await
    }

    async fn wait(
        &self,
        deadline: Option<Instant>,
        refused: Refused,
        notice: impl Fn(&str),
        enough: impl Fn(&Outbox) -> bool,
    ) -> Result<()> {
        let mut changed = self.shared.changed.subscribe();
        let begun = Instant::now();
        let (mut notice_at, mut is_told) = (begun + REPORT_DELAY, false);
        loop {
            let freed = self.shared.all.freed();
            let count = {
                let state = self.shared.state.lock();
                let is_refused = refused == Refused::Ends && state.outbox.has_refusal();
                if state.failed.is_some() || state.closed || is_refused {
                    drop(state);
                    return self.check();
                }
                if enough(&state.outbox) {
                    drop(state);
                    if is_told {
                        notice(&format!("a writer goes on after {:.1} s", begun.elapsed().as_secs_f64()));
                    }
                    return Ok(());
                }
                state.outbox.len()
            };
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Err(Error::DeadlineExceeded(self.describe_items(count)));
            }
            if now >= notice_at {
                is_told = true;
                notice_at = now + REPORT_DELAY;
                notice(&self.describe_wait(count));
            }
            let wake = deadline.map_or(notice_at, |deadline| deadline.min(notice_at));
            tokio::select! {
                _ = changed.changed() => {}
                () = freed => {}
                () = tokio::time::sleep_until(wake.into()) => {}
            }
        }
    }

    /// Says what a caller waits for, and that it may be the one who is to draw.
    fn describe_wait(&self, count: usize) -> String {
        let drawn: Vec<_> = {
            let mut items = count_items(self.shared.state.lock().outbox.items());
            items.retain(|table, _| drawn::has_drawn(&self.shared.address, table));
            items.into_keys().map(|table| format!("`{table}`")).collect()
        };
        let mut text = format!("a writer waits: {}", self.describe_items(count));
        if !drawn.is_empty() {
            let end = if text.ends_with('.') { "" } else { "." };
            text += &format!(
                "{end} This process has drawn from {}: one thread that both writes and samples waits for itself here. Let it \
                 sample first, or write with a timeout",
                drawn.join(", ")
            );
        }
        text
    }

    /// Says which items are unconfirmed, and why.
    fn describe_items(&self, count: usize) -> String {
        let tables = self.shared.state.lock().outbox.describe();
        let items = if count == 1 {
            "1 item is not in its table yet".into()
        } else {
            format!("{count} items are not in their tables yet")
        };
        format!("{items} ({tables}).{}", self.shared.reason())
    }

    /// Closes the chunks of all items, and waits at most `patience` until no item is unconfirmed. Returns whether none is.
    /// Errors of refused items stay to be reported.
    pub async fn drain(&self, patience: Duration) -> bool {
        let shared = &self.shared;
        if shared.generation != fork::generation() {
            return true;
        }
        let chunks = shared.state.lock().outbox.unsent_chunks(0);
        for chunk in chunks {
            // An error is reported when the item is sent.
            let _reported_later = chunk.close();
        }
        self.pump();
        let is_over = || {
            let state = shared.state.lock();
            state.failed.is_some() || state.closed || state.outbox.len() == 0
        };
        let mut changed = shared.changed.subscribe();
        let over = async {
            while !is_over() {
                let _last_value = changed.changed().await;
            }
        };
        let _out_of_time = tokio::time::timeout(patience, over).await;
        self.num_pending() == 0
    }

    /// Whether all items are confirmed and no error is left to be reported.
    pub fn is_settled(&self) -> bool {
        let state = self.shared.state.lock();
        state.failed.is_none() && state.outbox.len() == 0 && !state.outbox.has_refusal()
    }

    /// Ends the session. Waits at most `patience` until all items are confirmed, and drops the rest. Returns the dropped
    /// and refused items; `None` if there are none. A second call does nothing.
    pub async fn close(&self, patience: Duration) -> Option<Discarded> {
        if self.shared.generation != fork::generation() || self.shared.state.lock().closed {
            return None;
        }
        let reason = if self.drain(patience).await { String::new() } else { self.shared.reason() };
        let (lost, mut reasons) = {
            let mut state = self.shared.state.lock();
            let lost = state.close(&self.shared.all);
            let mut reasons: Vec<_> = std::iter::from_fn(|| state.outbox.take_refusal()).collect();
            reasons.extend(state.take_untold());
            (lost, reasons.iter().map(Error::to_string).collect::<Vec<_>>())
        };
        self.shared.tell();
        self.shared.wake.notify_one();
        drop(self.shared.local.lock().take());
        if lost.is_empty() && reasons.is_empty() {
            return None;
        }
        reasons.extend(Some(reason.trim_start().to_owned()).filter(|reason| !reason.is_empty()));
        Some(Discarded { items: count_items(lost.iter()), reasons })
    }

    /// Whether the server could be reached, as far as is known.
    pub fn has_server(&self) -> bool {
        let state = self.shared.state.lock();
        state.failed.is_none() && !state.is_lost
    }

    /// Returns the number of unconfirmed items.
    pub fn num_pending(&self) -> usize {
        self.shared.state.lock().outbox.len()
    }

    /// Returns the number of items confirmed so far.
    pub fn num_confirmed(&self) -> u64 {
        self.shared.state.lock().outbox.confirmed()
    }
}

/// See [`Session::has_more_in_flight`]. Items that wait for an open chunk do not count.
fn has_more_in_flight(outbox: &Outbox, limit: usize) -> bool {
    let (_, sent) = outbox.counts();
    sent > limit || outbox.num_ready(limit + 1 - sent) > limit - sent
}

impl Drop for Session {
    fn drop(&mut self) {
        // The task shares the state, and ends when it sees that the session is closed.
        if self.shared.generation == fork::generation() {
            let lost = self.shared.state.lock().close(&self.shared.all);
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
