//! The caller's side of the session of a writer.

use super::drawn;
use super::open_sessions;
use super::shard_streams::ShardStreams;
use super::worker;
use crate::client::{Client, Road};
use crate::writing::{
    Local, Outbox, Queued, SessionOptions, SessionState, SharedSession, count_items, name_counts, name_items,
};
use reverb_core::writer::{StepBuffer, StreamChunks, WriterChunk, WriterItem};
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
    /// The streams of a writer of a cluster, which have all items then.
    shards: Option<Arc<ShardStreams>>,
}

impl Session {
    /// Makes the session of a new writer. Nothing is sent yet.
    pub fn new(client: Arc<Client>, options: SessionOptions, chunks: StreamChunks) -> Self {
        let shared = Arc::new(SharedSession::new(client.address(), client.pending(), options, chunks));
        open_sessions::add(&shared);
        shared.all.join();
        let streams =
            client.endpoint.cluster.map(|cluster| Arc::new(ShardStreams::new(client.clone(), cluster, shared.clone())));
        Self { client, shared, shards: streams }
    }

    /// Calls a function for each stream of the writer, all at one moment, the newest first.
    fn each(&self, mut call: impl FnMut(&SharedSession)) {
        match &self.shards {
            Some(shards) => shards.each(call),
            None => call(&self.shared),
        }
    }

    /// Returns the sum of what a function finds in each outbox.
    fn sum(&self, mut of: impl FnMut(&Outbox) -> usize) -> usize {
        let mut sum = 0;
        self.each(|shared| sum += of(&shared.state.lock().outbox));
        sum
    }

    /// Whether a stream has this.
    fn any(&self, mut has: impl FnMut(&SessionState) -> bool) -> bool {
        let mut any = false;
        self.each(|shared| any = any || has(&shared.state.lock()));
        any
    }

    /// Queues items, for which the caller has taken the room ([`Session::take_room`]), and inserts them into tables of
    /// this process at once if possible. Returns whether [`Session::check`] has an earlier item to report that was refused.
    ///
    /// # Errors
    /// The errors of [`Session::check_open`]. No item is queued then.
    pub fn push(&self, runtime: &Handle, items: impl IntoIterator<Item = WriterItem>) -> Result<bool> {
        let queued = self.queue(runtime, items)?;
        if queued.can_send {
            self.pump();
        }
        Ok(queued.has_refusal)
    }

    /// As [`Session::push`], without [`Session::pump`], which the caller calls next if an item can be sent.
    ///
    /// # Errors
    /// Those of [`Session::push`].
    pub fn queue(&self, runtime: &Handle, items: impl IntoIterator<Item = WriterItem>) -> Result<Queued> {
        self.check_process()?;
        let shared = &self.shared;
        if let Some(shards) = &self.shards {
            // Not of these items, which the next call reports.
            let has_refusal = self.check_open()?;
            shards.push(runtime, items)?;
            return Ok(Queued { has_refusal, needs_worker: false, can_send: false });
        }
        let queued = shared.queue(items)?;
        if queued.needs_worker {
            if let Some(replay) = self.client.road_now().as_ref().and_then(Road::here) {
                *shared.local.lock() = Some(Local::new(replay.clone(), self.client.id()));
            }
            runtime.spawn(worker::run(self.client.clone(), shared.clone(), worker::ToServer::default()));
        }
        Ok(queued)
    }

    /// Whether [`Session::pump`] would be over at once: it wakes tasks, or inserts items with at most so many bytes into
    /// quiet tables of this process.
    pub fn pumps_at_once(&self, most_bytes: usize) -> bool {
        self.shards.is_some() || self.shared.pumps_at_once(most_bytes)
    }

    /// Waits until keys can be made: a writer of a cluster must have reached a shard, since keys lie in the slots of the
    /// shard that gets the items. [`Session::take_room`] waits for that, too.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if none is reached within the `reconnect_timeout` of the writer, [`Error::Unreached`] after
    /// `deadline`, or [`Error::ServerStopped`] if all shards were stopped for good.
    pub async fn reach(&self, deadline: Option<Instant>) -> Result<()> {
        self.check_process()?;
        match &self.shards {
            Some(shards) => shards.reach(deadline).await,
            None if self.is_reached() => Ok(()),
            None => self.client.roads(deadline).await.map(drop),
        }
    }

    /// Whether keys can be made; see [`Session::reach`].
    pub fn is_reached(&self) -> bool {
        match &self.shards {
            // In a forked child the lock may be held for ever; the call fails when it begins.
            Some(shards) => self.shared.generation != fork::generation() || shards.is_reached(),
            // A cluster may have one shard.
            None => self.client.endpoint.cluster.is_none() || self.client.transport().is_some(),
        }
    }

    /// Returns the slots of the keys of new items of these steps, as far as they are known: those of the server. In a
    /// cluster, the first call in an episode chooses the shard that gets the items of the episode.
    ///
    /// A shard may be lost later; its unconfirmed items then go to another shard under new keys.
    pub fn key_slots(&self, steps: &StepBuffer) -> KeySlots {
        match &self.shards {
            Some(shards) => shards.place(steps),
            None => self.client.key_slots(),
        }
    }

    /// Leaves inserts into tables of this process to the task of the writer. For a caller that must not wait for the tables,
    /// such as an event loop.
    pub fn leave_to_task(&self) {
        self.shared.is_left_to_task.store(true, Relaxed);
    }

    /// Sends the items that are ready. Called after chunks were closed.
    pub fn pump(&self) {
        if self.shards.is_some() {
            self.each(|shared| shared.wake.notify_one());
        } else if !self.shared.pump_local() {
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
        let mut refusal = None;
        self.each(|shared| refusal = refusal.take().or_else(|| shared.state.lock().outbox.take_refusal()));
        if let Some(error) = refusal {
            return Err(error);
        }
        let mut is_open = Ok(());
        self.each(|shared| is_open = is_open.clone().and_then(|()| shared.state.lock().check_open()));
        is_open
    }

    /// Checks that items can be sent. Returns whether [`Session::check`] has an item to report that was refused, which a
    /// call does after its own work.
    ///
    /// # Errors
    /// [`Error::Cancelled`] after the session was closed, [`Error::Unavailable`] after the writer has given up. An item
    /// that was refused is reported before either.
    pub fn check_open(&self) -> Result<bool> {
        self.check_process()?;
        let mut has_refusal = Ok(false);
        self.each(|shared| {
            if let Ok(known) = has_refusal {
                has_refusal = shared.state.lock().has_refusal().map(|more| known || more);
            }
        });
        has_refusal
    }

    fn check_process(&self) -> Result<()> {
        if self.shared.generation == fork::generation() {
            return Ok(());
        }
        Err(Error::Cancelled(
            "a writer cannot be used in a child of the process that made it; make a new writer in the child".into(),
        ))
    }

    /// Whether there is room for so many more items, whose keys can be made; 0 asks whether the writer is over its limits.
    pub fn has_room(&self, count: usize) -> bool {
        // In a forked child the lock may be held for ever; the call fails when it begins.
        self.shared.generation != fork::generation() || self.is_reached() && self.has_room_now(count)
    }

    fn has_room_now(&self, count: usize) -> bool {
        let mut bytes = 0;
        let len = self.sum(|outbox| {
            bytes += outbox.bytes();
            outbox.len()
        });
        self.shared.has_room(len, bytes, count)
    }

    /// Closes the chunks of the items that must be confirmed first, and waits until there is room for so many more items.
    /// For more than the writer may have in flight, it waits until no item is unconfirmed. Passes the reason of a long wait
    /// to `notice`.
    ///
    /// # Errors
    /// The errors of [`Session::check_open`], or [`Error::DeadlineExceeded`]. Items that were refused stay to be reported.
    pub async fn take_room(&self, count: usize, deadline: Option<Instant>, notice: impl Fn(&str)) -> Result<()> {
        self.reach(deadline).await?;
        let most = self.shared.most_items_before(count);
        // The caller appends no steps while it waits, so nothing else would close these chunks.
        self.close_chunks(most)?;
        self.wait(deadline, Refused::Stays, &notice, || self.num_pending() <= most).await?;
        if !self.has_room(count) {
            self.close_chunks(0)?;
        }
        self.wait(deadline, Refused::Stays, notice, || self.has_room_now(count)).await
    }

    /// Closes the chunks of all items except the last `but_last`, and sends these items.
    fn close_chunks(&self, but_last: usize) -> Result<()> {
        self.unsent_chunks(but_last).iter().try_for_each(|chunk| chunk.close().map(drop))?;
        self.pump();
        Ok(())
    }

    /// Returns the chunks of all unsent items except the last `but_last`. Of several streams, those of the newest are the
    /// last.
    fn unsent_chunks(&self, mut but_last: usize) -> Vec<Arc<WriterChunk>> {
        let mut chunks = Vec::new();
        self.each(|shared| {
            let state = shared.state.lock();
            chunks.extend(state.outbox.unsent_chunks(but_last));
            but_last = but_last.saturating_sub(state.outbox.counts().0);
        });
        chunks
    }

    /// Whether more than `limit` items are unconfirmed that were sent or are ready to be sent.
    pub fn has_more_in_flight(&self, limit: usize) -> bool {
        let mut count = 0;
        self.each(|shared| {
            let outbox = &shared.state.lock().outbox;
            count += outbox.counts().1;
            // Items that wait for an open chunk do not count.
            if let Some(left) = limit.checked_sub(count) {
                count += outbox.num_ready(left.saturating_add(1));
            }
        });
        count > limit
    }

    /// Waits until [`Session::has_more_in_flight`] is false.
    ///
    /// # Errors
    /// The errors of [`Session::check`].
    pub async fn wait_in_flight(&self, limit: usize, notice: impl Fn(&str)) -> Result<()> {
        self.wait(None, Refused::Ends, notice, || !self.has_more_in_flight(limit)).await
    }

    /// Closes the chunks of all items except the last `but_last`, and waits until at most `but_last` items are
    /// unconfirmed.
    ///
    /// # Errors
    /// The errors of [`Session::check`], or [`Error::DeadlineExceeded`] with the numbers of unconfirmed items.
    pub async fn flush(&self, but_last: usize, deadline: Option<Instant>, notice: impl Fn(&str)) -> Result<()> {
        self.check()?;
        self.close_chunks(but_last)?;
        self.wait(deadline, Refused::Ends, notice, || self.num_pending() <= but_last).await
    }

    async fn wait(
        &self,
        deadline: Option<Instant>,
        refused: Refused,
        notice: impl Fn(&str),
        enough: impl Fn() -> bool,
    ) -> Result<()> {
        let mut changed = self.shared.changed.subscribe();
        let begun = Instant::now();
        let (mut notice_at, mut is_told) = (begun + REPORT_DELAY, false);
        loop {
            let freed = self.shared.all.freed();
            // An item that is refused after this look still counts in it, so its error is not missed below.
            let is_enough = enough();
            let ends = |state: &SessionState| {
                state.failed.is_some() || state.closed || refused == Refused::Ends && state.outbox.has_refusal()
            };
            if self.any(ends) {
                return self.check();
            }
            if is_enough {
                if is_told {
                    notice(&format!("a writer goes on after {:.1} s", begun.elapsed().as_secs_f64()));
                }
                return Ok(());
            }
            let count = self.num_pending();
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
            let mut items = self.items_by_table();
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
        let tables = name_counts(&self.items_by_table());
        let items = if count == 1 {
            "1 item is not in its table yet".into()
        } else {
            format!("{count} items are not in their tables yet")
        };
        format!("{items} ({tables}).{}", self.reason())
    }

    /// Returns the numbers of unconfirmed items.
    fn items_by_table(&self) -> BTreeMap<Arc<str>, usize> {
        let mut items = BTreeMap::new();
        self.each(|shared| {
            let counts = count_items(shared.state.lock().outbox.items());
            counts.into_iter().for_each(|(table, count)| *items.entry(table).or_default() += count);
        });
        items
    }

    /// Says why items wait, as far as is known.
    fn reason(&self) -> String {
        let mut reason = String::new();
        // Of several streams, what the oldest says.
        self.each(|shared| {
            let said = shared.reason();
            if !said.is_empty() {
                reason = said;
            }
        });
        reason
    }

    /// Closes the chunks of all items, and waits at most `patience` until no item is unconfirmed. Returns whether none is.
    /// Errors of refused items stay to be reported.
    pub async fn drain(&self, patience: Duration) -> bool {
        let shared = &self.shared;
        if shared.generation != fork::generation() {
            return true;
        }
        for chunk in self.unsent_chunks(0) {
            // An error is reported when the item is sent.
            let _reported_later = chunk.close();
        }
        self.pump();
        let is_over = || self.any(|state| state.failed.is_some() || state.closed) || self.num_pending() == 0;
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
        !self.any(|state| state.failed.is_some() || state.outbox.len() > 0 || state.outbox.has_refusal())
    }

    /// Ends the session. Waits at most `patience` until all items are confirmed, and drops the rest. Returns the dropped
    /// and refused items; `None` if there are none. A second call does nothing.
    pub async fn close(&self, patience: Duration) -> Option<Discarded> {
        if self.shared.generation != fork::generation() || self.shared.state.lock().closed {
            return None;
        }
        let reason = if self.drain(patience).await { String::new() } else { self.reason() };
        let lost = self.end();
        let mut reasons = {
            let mut state = self.shared.state.lock();
            let mut reasons: Vec<_> = std::iter::from_fn(|| state.outbox.take_refusal()).collect();
            reasons.extend(state.take_untold());
            reasons.iter().map(Error::to_string).collect::<Vec<_>>()
        };
        self.shared.tell();
        drop(self.shared.local.lock().take());
        if lost.is_empty() && reasons.is_empty() {
            return None;
        }
        reasons.extend(Some(reason.trim_start().to_owned()).filter(|reason| !reason.is_empty()));
        Some(Discarded { items: count_items(lost.iter()), reasons })
    }

    /// Closes all streams, and returns their unconfirmed items.
    fn end(&self) -> Vec<WriterItem> {
        let (was_closed, mut lost) = {
            let mut state = self.shared.state.lock();
            (state.closed, state.close(&self.shared.all))
        };
        if let Some(shards) = &self.shards {
            lost.extend(shards.close());
        }
        if !was_closed {
            self.shared.all.leave();
        }
        self.shared.wake.notify_one();
        lost
    }

    /// Whether the server could be reached, as far as is known.
    pub fn has_server(&self) -> bool {
        !self.any(|state| state.failed.is_some() || state.is_lost)
    }

    /// Returns the number of unconfirmed items.
    pub fn num_pending(&self) -> usize {
        self.sum(Outbox::len)
    }

    /// Returns the number of items confirmed so far.
    pub fn num_confirmed(&self) -> u64 {
        let mut confirmed = 0;
        self.each(|shared| confirmed += shared.state.lock().outbox.confirmed());
        confirmed
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The task shares the state, and ends when it sees that the session is closed.
        if self.shared.generation == fork::generation() {
            let lost = self.end();
            if !lost.is_empty() {
                tracing::warn!(
                    "a writer was dropped with {} items unconfirmed ({})",
                    lost.len(),
                    name_items(lost.iter())
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_reports_an_item_that_is_refused_while_it_looks_whether_all_are_confirmed() {
        let client = Arc::new(Client::new("ipv4:127.0.0.1:1"));
        let session = Session::new(client, SessionOptions::default(), StreamChunks::default());
        let item = WriterItem {
            table: "table".into(),
            key: 1,
            priority: 1.0.into(),
            columns: Box::default(),
            is_validated: true,
        };
        {
            let mut state = session.shared.state.lock();
            state.outbox.push(item);
            state.outbox.send_front(|_, _| ());
        }
        let refusal = Error::invalid("refused");
        let is_enough = || {
            session.shared.settle([(1, Err(refusal.clone()))].into_iter().collect());
            session.num_pending() == 0
        };
        assert_eq!(session.wait(None, Refused::Ends, |_| {}, is_enough).await, Err(refusal.clone()));
        // A call that has work to do leaves the report to the end of that work.
        session.shared.state.lock().outbox.keep_error(refusal.clone());
        assert_eq!(session.wait(None, Refused::Stays, |_| {}, || true).await, Ok(()));
        assert_eq!(session.check(), Err(refusal));
    }
}
