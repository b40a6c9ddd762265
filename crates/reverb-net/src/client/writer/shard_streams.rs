//! The streams of a writer of a cluster: one to each shard that the writer has items for.
//!
//! An episode stays on the shard that it began on, and the keys of its items lie in the slots of that shard, so they tell
//! the stream of an item. Each stream has its own task and outbox: what an earlier shard has not confirmed stays with it
//! while the next episode is written elsewhere. A stream that has nothing to do any more is closed when the next episode
//! begins.
//!
//! The writer takes part in the limiters of its tables that shards keep together. The tasks of the streams see to that, and
//! one task for tables that come later. A stream with items of a table sends nothing before, since its shard would let them
//! in by the limiter of its own. A stream to a shard that is new makes the client look for new shards.

use super::open_sessions;
use super::worker::{self, CONNECT_TIME, Way};
use crate::client::cluster::RoomUse;
use crate::client::servers::{Servers, is_lost};
use crate::client::{Client, Road, Turn};
use crate::transport::back_off::BackOff;
use crate::transport::cluster::{ClusterOptions, OnShardLoss, Placement};
use crate::writing::{Queued, SharedSession, name_items};
use parking_lot::Mutex;
use reverb_core::writer::{StepBuffer, WriterItem};
use reverb_core::{EpisodeId, Error, KeySlots, Result, fork, item_key_in};
use reverb_service::warn;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// A shard that items are sent to.
#[derive(Debug, Clone)]
struct Shard {
    /// The address at which it was chosen.
    peer: Arc<str>,
    slots: KeySlots,
}

impl Shard {
    fn of(road: &Road) -> Self {
        Self { peer: road.peer().unwrap_or_default().into(), slots: road.key_slots() }
    }
}

/// A stream to one shard.
#[derive(Debug, Clone)]
struct ShardStream {
    shard: Shard,
    /// The items of the stream.
    shared: Arc<SharedSession>,
}

/// The streams of one writer.
#[derive(Debug)]
pub struct ShardStreams {
    client: Arc<Client>,
    cluster: ClusterOptions,
    /// What is told to the caller of streams that have ended. It has no items.
    ended: Arc<SharedSession>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: Vec<ShardStream>,
    /// The episode that each buffer of steps is in, and the slots of its shard.
    placed: HashMap<u64, (EpisodeId, KeySlots)>,
    /// A shard that was reached, for items that come while none can be.
    known: Option<Shard>,
    /// Whether a shard was chosen since lost ones were last tried again.
    has_chosen: bool,
    /// The tables of the items so far. `None` until the writer takes part in the limiter, or knows that it need not.
    tables: HashMap<Arc<str>, Option<Part>>,
    /// Whether a task sees to the tables that have come later.
    is_joining: bool,
    is_closed: bool,
}

/// How a writer takes part in the limiter of a table.
#[derive(Debug)]
struct Part {
    /// There is one while the shards keep the limiter together.
    _room: Option<RoomUse>,
    /// Whether the writer has reported that the shards refuse the limiter.
    is_told: bool,
}

impl ShardStreams {
    /// Makes the streams of a writer of a cluster. Nothing is contacted yet.
    pub fn new(client: Arc<Client>, cluster: ClusterOptions, ended: Arc<SharedSession>) -> Self {
        Self { client, cluster, ended, state: Mutex::default() }
    }

    /// Calls a function for what is told of ended streams, and for each open one, the newest first. No stream is opened or
    /// ended meanwhile.
    pub fn each(&self, mut call: impl FnMut(&SharedSession)) {
        let state = self.state.lock();
        call(&self.ended);
        state.open.iter().rev().for_each(|stream| call(&stream.shared));
    }

    /// Whether a shard was ever reached, so that keys can be made.
    pub fn is_reached(&self) -> bool {
        self.state.lock().known.is_some()
    }

    /// Waits until a shard is reached, so that the slots of keys are known.
    ///
    /// # Errors
    /// [`Error::Unavailable`] after the `reconnect_timeout` of the writer, [`Error::Unreached`] after `deadline`, or
    /// [`Error::ServerStopped`] if all shards were stopped for good.
    pub async fn reach(&self, deadline: Option<Instant>) -> Result<()> {
        let (mut back_off, mut is_told) = (BackOff::default(), false);
        let give_up = Instant::now().checked_add(self.ended.options.reconnect_timeout);
        let limit = [deadline, give_up].into_iter().flatten().min();
        while !self.is_reached() && !self.ended.is_over() {
            match self.client.road(Turn::Write, None, limit).await {
                Ok(road) => self.state.lock().known = Some(Shard::of(&road)),
                Err(error) if !error.is_transient() || limit.is_some_and(|limit| Instant::now() >= limit) => {
                    return Err(match error {
                        // It was not the deadline of the caller that passed.
                        Error::Unreached(reason) if limit != deadline => Error::Unavailable(reason),
                        error => error,
                    });
                }
                Err(error) => {
                    if !std::mem::replace(&mut is_told, true) {
                        warn(&format!("a writer waits for the shards of {}: {error}", self.ended.address));
                    }
                    tokio::time::sleep(back_off.pause()).await;
                }
            }
        }
        Ok(())
    }

    /// Returns the slots of the keys of an episode's items. Chooses a shard for an episode that has none yet, or whose
    /// stream has ended.
    pub fn place(&self, steps: &StepBuffer) -> KeySlots {
        if self.ended.generation != fork::generation() {
            // The lock may be held for ever. Nothing is sent.
            return KeySlots::ALL;
        }
        let (buffer, episode) = match self.cluster.placement {
            Placement::Episode => (steps.writer(), steps.episode_id()),
            Placement::Writer => (0, 0),
        };
        let mut state = self.state.lock();
        if let Some(&(placed, slots)) = state.placed.get(&buffer)
            && placed == episode
            && state.stream(|stream| stream.shard.slots == slots).is_some()
        {
            return slots;
        }
        let Some(slots) = self.choose(&mut state) else { return KeySlots::ALL };
        state.placed.insert(buffer, (episode, slots));
        self.end_idle(&mut state);
        slots
    }

    /// Chooses a shard, and makes its stream. `None` before one was reached.
    fn choose(&self, state: &mut State) -> Option<KeySlots> {
        state.has_chosen = true;
        let chosen = self.client.cluster().and_then(|servers| servers.emptier(None));
        let shard = chosen.as_ref().map(Shard::of).or_else(|| state.known.clone())?;
        Some(self.stream_to(state, shard).shard.slots)
    }

    /// Returns the stream to a shard. Makes one if there is none, or if another server is the shard by now and the stream
    /// has no items.
    fn stream_to(&self, state: &mut State, shard: Shard) -> ShardStream {
        if let Some(place) = state.open.iter().position(|stream| stream.shard.slots == shard.slots) {
            let stream = &state.open[place];
            if stream.shard.peer == shard.peer || stream.shared.state.lock().outbox.len() > 0 {
                return stream.clone();
            }
            self.end(&state.open.remove(place));
        }
        let shared = Arc::new(self.ended.beside());
        open_sessions::add(&shared);
        let stream = ShardStream { shard, shared };
        state.open.push(stream.clone());
        stream
    }

    /// Closes the streams that no episode is on and that have no items.
    fn end_idle(&self, state: &mut State) {
        let State { open, placed, .. } = state;
        open.retain(|stream| {
            let is_used = placed.values().any(|&(_, slots)| slots == stream.shard.slots);
            let is_idle = !is_used && stream.shared.state.lock().outbox.len() == 0;
            if is_idle {
                self.end(stream);
            }
            !is_idle
        });
    }

    /// Ends a stream. Returns its unconfirmed items.
    fn end(&self, stream: &ShardStream) -> Vec<WriterItem> {
        let items = {
            let mut of_stream = stream.shared.state.lock();
            let items = of_stream.close(&self.ended.all);
            self.ended.state.lock().outbox.take_results(&mut of_stream.outbox);
            items
        };
        stream.shared.wake.notify_one();
        items
    }

    /// Queues items, each on the stream of its shard. An item whose shard has no stream gets a new key.
    ///
    /// # Errors
    /// Those of [`SharedSession::queue`], and [`Error::Unavailable`] if no shard was reached yet.
    pub fn push(self: &Arc<Self>, runtime: &Handle, items: impl IntoIterator<Item = WriterItem>) -> Result<()> {
        let mut state = self.state.lock();
        self.ended.state.lock().check_open()?;
        if std::mem::take(&mut state.has_chosen)
            && let Some(servers) = self.client.cluster()
        {
            let _in_runtime = runtime.enter();
            // A shard that has returned gets its part of the next episodes.
            servers.try_lost();
        }
        let dropped = self.ended.chunks.take_dropped();
        for stream in state.open.iter().filter(|_| !dropped.is_empty()) {
            stream.shared.chunks.drop_chunks(&dropped);
        }
        let mut can_send = Vec::new();
        for mut item in items {
            let stream = match state.stream(|stream| stream.shard.slots.contains(item.key)) {
                Some(stream) => stream.clone(),
                None => {
                    let slots = self.choose(&mut state).ok_or_else(|| self.unreached())?;
                    item.key = item_key_in(slots);
                    state.stream(|stream| stream.shard.slots == slots).expect("it was just made").clone()
                }
            };
            if self.queue(&mut state, runtime, &stream, [item])?
                && !can_send.iter().any(|other| Arc::ptr_eq(other, &stream.shared))
            {
                can_send.push(stream.shared);
            }
        }
        drop(state);
        can_send.iter().for_each(|stream| stream.wake.notify_one());
        Ok(())
    }

    /// Queues items on a stream, and starts its task if there is none. If the stream sends by now, another task takes part in
    /// the limiters of new tables. Returns whether the task of the stream has something to do.
    fn queue(
        self: &Arc<Self>,
        state: &mut State,
        runtime: &Handle,
        stream: &ShardStream,
        items: impl AsRef<[WriterItem]> + IntoIterator<Item = WriterItem>,
    ) -> Result<bool> {
        let mut must_join = false;
        for item in items.as_ref() {
            must_join |= state.tables.entry(item.table.clone()).or_default().is_none();
        }
        if must_join {
            stream.shared.state.lock().is_held = true;
        }
        let Queued { needs_worker, can_send, .. } = stream.shared.queue(items)?;
        if needs_worker {
            let way = ToShard { streams: self.clone(), stream: stream.clone() };
            runtime.spawn(worker::run(self.client.clone(), stream.shared.clone(), way));
        } else if must_join && !std::mem::replace(&mut state.is_joining, true) {
            runtime.spawn(self.clone().join());
        }
        Ok(can_send)
    }

    /// Takes part in the limiters of tables that have come since the streams send.
    async fn join(self: Arc<Self>) {
        let mut back_off = BackOff::default();
        while !self.ended.is_over() {
            let deadline = Instant::now() + CONNECT_TIME;
            let joined = async {
                let servers = self.client.cluster().ok_or_else(|| self.unreached())?;
                let road = servers.emptier(None).ok_or_else(|| self.unreached())?;
                self.take_part(&servers, &road, deadline).await
            };
            let is_joined = joined.await.is_ok();
            {
                let mut state = self.state.lock();
                state.is_joining = state.tables.values().any(Option::is_none);
                if !state.is_joining {
                    return;
                }
            }
            if !is_joined {
                tokio::time::sleep(back_off.pause()).await;
            }
        }
    }

    /// Takes part in the limiters of the tables that the writer has items for. A refusal becomes the error of the next call.
    ///
    /// # Errors
    /// Those of [`Servers::room_of`] that another attempt may not meet.
    async fn take_part(&self, servers: &Servers, road: &Road, deadline: Instant) -> Result<()> {
        let tables: Vec<_> = self.state.lock().tables.keys().cloned().collect();
        for table in tables {
            let (room, refusal) = match servers.room_of(&table, vec![road.clone()], Some(deadline)).await {
                Ok(room) => (room, None),
                Err(error) if error.is_transient() || matches!(error, Error::DeadlineExceeded(_)) => return Err(error),
                Err(error) => (None, Some(error)),
            };
            let part = Part { _room: room, is_told: refusal.is_some() };
            let before = {
                let mut state = self.state.lock();
                if state.is_closed {
                    return Ok(());
                }
                let before = state.tables.insert(table, Some(part)).flatten();
                state.release();
                before
            };
            if let Some(error) = refusal.filter(|_| before.is_none_or(|before| !before.is_told)) {
                self.ended.state.lock().outbox.keep_error(error);
                self.ended.tell();
            }
        }
        Ok(())
    }

    fn unreached(&self) -> Error {
        Error::Unavailable(format!("no shard of {} was reached yet", self.ended.address))
    }

    /// Ends all streams. Returns their unconfirmed items. No other is made.
    pub fn close(&self) -> Vec<WriterItem> {
        let mut state = self.state.lock();
        state.is_closed = true;
        let tables = std::mem::take(&mut state.tables);
        let items = std::mem::take(&mut state.open).iter().flat_map(|stream| self.end(stream)).collect();
        drop(state);
        drop(tables);
        items
    }

    /// Returns the time for which a stream waits for its shard.
    fn patience(&self) -> Duration {
        self.cluster.on_shard_loss.patience().unwrap_or(self.ended.options.reconnect_timeout)
    }

    /// Ends a stream whose shard is lost, and moves its items to another shard, or gives them up. Returns false if no other
    /// shard can be reached and the writer still has patience.
    fn leave(self: &Arc<Self>, stream: &ShardStream, error: &Error, lost_for: Duration) -> bool {
        let servers = self.client.cluster();
        let is_loss = is_lost(error) || matches!(error, Error::DeadlineExceeded(_));
        let may_move = is_loss && self.cluster.on_shard_loss == OnShardLoss::Continue;
        let mut state = self.state.lock();
        if state.is_closed {
            return true;
        }
        let has_items = stream.shared.state.lock().outbox.len() > 0;
        let next = servers.as_ref().filter(|_| may_move).and_then(|servers| servers.emptier(Some(stream.shard.slots)));
        let are_over = servers.as_ref().is_some_and(|servers| servers.are_over());
        if has_items && may_move && next.is_none() && !are_over && lost_for < self.patience() {
            return false;
        }
        state.open.retain(|other| !Arc::ptr_eq(&other.shared, &stream.shared));
        let items = self.end(stream);
        match (next, servers) {
            (Some(road), Some(servers)) if has_items => {
                self.move_to(&mut state, Shard::of(&road), stream, items);
                drop(state);
                self.tell_move(&servers, stream, error);
            }
            (_, servers) if has_items => {
                let over = servers.filter(|_| are_over && is_loss).map(|servers| servers.over());
                let items = format!("{} items were not confirmed ({})", items.len(), name_items(items.iter()));
                let name = stream.shard.name();
                let error = match over {
                    Some(over) => over.with_remark(&format!("; {items}")),
                    None if is_loss => Error::Unavailable(format!(
                        "{name} is missing: {error}; the writer gave up after {:.0} s without it; {items}",
                        lost_for.as_secs_f64()
                    )),
                    None => error.clone().with_remark(&format!(" ({name}); {items}")),
                };
                // The next call of the writer reports it.
                self.ended.state.lock().outbox.keep_error(error);
            }
            _ => {}
        }
        self.ended.tell();
        true
    }

    /// Gives items to the stream of another shard, under keys of that one. The rest of their episodes follows them.
    fn move_to(self: &Arc<Self>, state: &mut State, shard: Shard, from: &ShardStream, mut items: Vec<WriterItem>) {
        let to = self.stream_to(state, shard);
        items.iter_mut().for_each(|item| item.key = item_key_in(to.shard.slots));
        for (_, slots) in state.placed.values_mut().filter(|(_, slots)| *slots == from.shard.slots) {
            *slots = to.shard.slots;
        }
        // A stream that was just found open is closed only under the lock of these.
        let _closed = self.queue(state, &Handle::current(), &to, items);
        to.shared.wake.notify_one();
    }

    fn tell_move(&self, servers: &Servers, stream: &ShardStream, error: &Error) {
        let name = stream.shard.name();
        if servers.is_news(&format!("writers of {name}")) {
            warn(&format!(
                "writers go on without {name} ({error}): its unconfirmed items go to other shards, under new keys"
            ));
        }
    }
}

/// The way of a stream to its shard.
#[derive(Debug)]
struct ToShard {
    streams: Arc<ShardStreams>,
    stream: ShardStream,
}

impl Way for ToShard {
    const OUTLIVES_SERVER: bool = false;

    async fn road(&mut self, client: &Client, connect_by: Instant) -> Result<Road> {
        let servers = client.cluster().ok_or_else(|| self.streams.unreached())?;
        match servers.returned_shard(self.stream.shard.slots, connect_by).await {
            Some(road) => self.streams.take_part(&servers, &road, connect_by).await.map(|()| road),
            None if servers.are_over() => Err(servers.over()),
            None => Err(Error::Unavailable("it does not answer".into())),
        }
    }

    async fn settled(&self, client: &Client, error: Error) -> Error {
        let are_over = client.cluster().is_some_and(|servers| servers.are_over());
        let waits = self.streams.cluster.on_shard_loss == OnShardLoss::Wait && !are_over;
        if waits { error.with_successor() } else { error }
    }

    fn patience(&self, _shared: &SharedSession) -> Duration {
        self.streams.patience()
    }

    fn end(&self, _shared: &SharedSession, error: &Error, lost_for: Duration) -> bool {
        self.streams.leave(&self.stream, error, lost_for)
    }
}

impl State {
    fn stream(&self, is_meant: impl Fn(&ShardStream) -> bool) -> Option<&ShardStream> {
        self.open.iter().find(|stream| is_meant(stream))
    }

    /// Lets streams send that have no items left of tables that the writer does not take part in.
    fn release(&self) {
        for ShardStream { shared, .. } in &self.open {
            let mut of_stream = shared.state.lock();
            let takes_part = |item: &WriterItem| self.tables.get(&item.table).is_some_and(Option::is_some);
            if of_stream.is_held && of_stream.outbox.items().all(takes_part) {
                of_stream.is_held = false;
                shared.wake.notify_one();
            }
        }
    }
}

impl Shard {
    /// Names the shard for display.
    fn name(&self) -> String {
        format!("shard {} at {}", self.slots.id(), self.peer)
    }
}
