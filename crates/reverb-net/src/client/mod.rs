//! Clients. They offer the same calls over every road to a server.

mod call;
mod cluster;
mod connect;
mod explained;
pub mod health;
mod join;
mod pending_draw;
mod persistent;
mod road;
mod roads;
mod servers;
mod started;
mod streamed;
mod unary;
pub mod writer;

pub use crate::replay_v1::client::{
    BenchHold, DrawCall, RaceCall, RaceRequest, StockCall, StockRequest, wait_for_streams,
};
pub use crate::writing::DEFAULT_PENDING_BYTES;
pub use call::Call;
pub use cluster::{Counts as ClusterCounts, ListedShard};
pub use pending_draw::{PendingDraw, Sampled};
pub use road::Road;
pub use servers::{ToAll, Turn};
pub use started::{Rest, Started, WaitsFor};
pub use unary::*;

use crate::replay_v1::client::Session;
use crate::transport::address::Endpoint;
use crate::writing::PendingLimit;
use arc_swap::{ArcSwap, ArcSwapOption};
use reverb_core::writer::ChunkMemory;
use reverb_core::{Error, ItemKeys, KeySlots, Result, fork};
use reverb_service::local::{BatchRequest, RowInsert};
use reverb_service::{Replay, Transport};
use roads::Roads;
use servers::Servers;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Instant;
use streamed::{BeginSample, Insert};

#[derive(Debug)]
struct Current {
    generation: u32,
    /// Counts the roads that the client has had.
    number: u32,
    roads: Roads,
}

/// A client of one server, or of several. It connects when it is first used. It connects again after the server was
/// lost, or after the process forked.
///
/// If the server is in this process, the calling thread does as much of a call as is possible without a wait. The
/// caller awaits the rest, if there is any.
#[derive(Debug)]
pub struct Client {
    endpoint: Endpoint,
    /// What its connections have in common with those of the clients beside it.
    session: Arc<Session>,
    current: ArcSwapOption<Current>,
    /// The number of roads so far.
    num_roads: AtomicU32,
    /// The limit on the unconfirmed items of all writers.
    pending: ArcSwap<PendingLimit>,
}

impl Client {
    /// Makes a client of the server at `endpoint`, without contacting the server.
    pub fn new(endpoint: impl Into<Endpoint>) -> Self {
        Self::of_session(endpoint.into(), Arc::default(), DEFAULT_PENDING_BYTES)
    }

    fn of_session(endpoint: Endpoint, session: Arc<Session>, max_pending_bytes: usize) -> Self {
        let client = Self {
            endpoint,
            session,
            current: ArcSwapOption::empty(),
            num_roads: AtomicU32::new(0),
            pending: ArcSwap::from_pointee(PendingLimit::new(max_pending_bytes)),
        };
        if client.endpoint.has_several() {
            // All threads of the client then use the same connections.
            client.roads_now();
        }
        client
    }

    /// Makes another client of the same server, with a connection of its own. For a balancer and for the server, both
    /// are one client. Its writers together hold about `max_pending_bytes` of unconfirmed items.
    #[must_use]
    pub fn beside(&self, max_pending_bytes: usize) -> Self {
        Self::of_session(self.endpoint.clone(), self.session.clone(), max_pending_bytes)
    }

    /// Returns the number by which servers know the client.
    pub(crate) fn id(&self) -> u64 {
        self.session.id
    }

    /// Returns the number of keys of updates and reads that went on without a shard of the cluster that was missing.
    pub fn keys_passed_over(&self) -> u64 {
        self.session.keys_passed_over.load(Relaxed)
    }

    /// Returns the address of the server, as it was given.
    pub fn address(&self) -> &str {
        self.endpoint.address.text()
    }

    /// Returns the limit on the unconfirmed items of all writers.
    fn pending(&self) -> Arc<PendingLimit> {
        let pending = self.pending.load_full();
        let Some(own) = pending.after_fork() else { return pending };
        // The limit belongs to the parent process. Of several threads, one replaces it.
        self.pending.compare_and_swap(&pending, Arc::new(own));
        self.pending.load_full()
    }

    /// Returns what `of` finds in the roads that this process has used last.
    fn with_current<T>(&self, of: impl FnOnce(&Current) -> Option<T>) -> Option<T> {
        let current = self.current.load();
        of(current.as_deref().filter(|current| current.generation == fork::generation())?)
    }

    /// Returns the roads that need no new connection: those in use, or the road to a server of this process.
    fn roads_now(&self) -> Option<Roads> {
        let open = |current: &Current| current.roads.are_open().then(|| current.roads.clone());
        self.with_current(open).or_else(|| Roads::at_once(&self.endpoint, &self.session).map(|roads| self.keep(roads)))
    }

    /// Returns the road that needs no new connection. `None` if there is none, or if there are several servers.
    pub fn road_now(&self) -> Option<Road> {
        self.roads_now()?.only().cloned()
    }

    /// Returns the slots in which items of the server have their keys, as far as is known without a new connection. Of
    /// several servers, any may get an item.
    pub(crate) fn key_slots(&self) -> KeySlots {
        let of_open = |current: &Current| current.roads.only().filter(|road| road.is_open()).map(Road::key_slots);
        if let Some(slots) = self.with_current(of_open) {
            return slots;
        }
        match self.road_now() {
            Some(road) => road.key_slots(),
            None if self.endpoint.has_several() => KeySlots::ALL,
            None => self.session.key_slots(),
        }
    }

    /// Returns the roads. Connects if necessary, until `deadline` at the latest: in boxes, because these futures are large,
    /// and every call that may have to connect has room for one.
    async fn roads(&self, deadline: Option<Instant>) -> Result<Roads> {
        if let Some(roads) = self.roads_now() {
            return Ok(roads);
        }
        if let Some(ended) = self.with_current(|current| current.roads.ended_server()) {
            let road = Box::pin(connect::connect_to_successor(&self.endpoint, &self.session, &ended, deadline)).await?;
            return Ok(self.keep(road.into()));
        }
        // The last server was in this process, and was stopped.
        let was_stopped = self.with_current(|current| current.roads.is_here().then_some(())).is_some();
        let road = match was_stopped {
            true => Box::pin(connect::connect_after_stop(&self.endpoint, &self.session, deadline)).await?,
            false => Box::pin(connect::connect(&self.endpoint, &self.session, deadline)).await?,
        };
        // A server of this process listens slightly before it is known here, and has answered only after that.
        let here = Roads::at_once(&self.endpoint, &self.session);
        Ok(self.keep(here.unwrap_or_else(|| road.into())))
    }

    /// Returns the road to the server; of several, to the one whose turn it is, or to the `home` of a writer if that can
    /// be reached. Connects if necessary, until `deadline` at the latest.
    async fn road(&self, turn: Turn, home: Option<&str>, deadline: Option<Instant>) -> Result<Road> {
        self.roads(deadline).await?.one(turn, home, deadline).await
    }

    /// Returns the transport in use. `None` before the first call has found the server.
    pub fn transport(&self) -> Option<Transport> {
        self.with_current(|current| current.roads.transport())
    }

    /// Returns the name of the road in use, for display. `None` before the first call has found the server.
    pub fn road_name(&self) -> Option<String> {
        self.with_current(|current| current.roads.name())
    }

    /// Returns a number that changes when the client begins to use another connection or server. `None` if the next
    /// call must look for the server.
    pub fn connection(&self) -> Option<u32> {
        self.with_current(|current| Some(current.number.wrapping_add(current.roads.connection()?)))
    }

    /// Returns memory that the server can read, if it is of this host and was reached.
    pub fn chunk_memory(&self) -> Option<Arc<dyn ChunkMemory>> {
        self.with_current(|current| current.roads.only()?.chunk_memory())
    }

    /// Returns the service of a server of this process. `None` if the server is elsewhere.
    pub fn local_service(&self) -> Option<Arc<Replay>> {
        self.road_now().as_ref().and_then(Road::here).cloned()
    }

    /// Whether the last call used a server of this process, so that the next one can probably be completed at once.
    #[inline]
    pub fn is_near(&self) -> bool {
        self.with_current(|current| Some(current.roads.is_here())).unwrap_or(false)
    }

    /// Calls `work` with the server of this process if all its tables are quiet: a brief call is then over at once.
    fn if_quiet<T>(&self, work: impl FnOnce(&Replay) -> Option<T>) -> Option<T> {
        self.with_current(|current| work(current.roads.only()?.here().filter(|replay| replay.is_quiet())?))
    }

    /// Whether a brief call would be over at once: its server is in this process, and its tables are quiet.
    pub fn is_quiet(&self) -> bool {
        self.if_quiet(|_| Some(())).is_some()
    }

    /// Draws a small batch from a quiet table of this process, if no wait is needed. Nothing is drawn otherwise.
    pub fn sample_at_once(&self, request: &BatchRequest) -> Option<Sampled> {
        self.if_quiet(|replay| streamed::sample_at_once(replay, request))
    }

    /// As [`Client::sample_at_once`], for callers of [`Client::begin_sample`].
    pub fn begin_at_once(&self, request: &BatchRequest) -> Option<PendingDraw> {
        self.if_quiet(|replay| streamed::begin_at_once(replay, request))
    }

    /// Returns the result of a call, with the error of [`Client::after_end`].
    async fn settled<T>(&self, result: Result<T>, deadline: Option<Instant>) -> Result<T> {
        match result {
            Err(error) => Err(self.after_end(error, deadline).await),
            done => done,
        }
    }

    /// Returns the error of a call. Where its server was stopped for good, the client looks once for another at its
    /// address: if there is one, or if the client has several servers, one of them is lost, as after a restart.
    async fn after_end(&self, error: Error, deadline: Option<Instant>) -> Error {
        if !error.is_for_good() {
            return error;
        }
        let found = match (&self.endpoint.cluster, self.endpoint.has_several()) {
            (None, true) => true,
            // Only if all shards were stopped for good, the cluster was.
            (Some(_), _) => !Box::pin(self.road(Turn::Other, None, deadline)).await.is_err_and(|end| end.is_for_good()),
            (None, false) => !Box::pin(self.roads(deadline)).await.is_err_and(|end| end.is_for_good()),
        };
        if found { error.with_successor() } else { error }
    }

    /// As [`Client::after_end`], for a draw. Draws of a cluster end only when all its shards were stopped for good.
    async fn after_end_of_draw(&self, error: Error, deadline: Option<Instant>) -> Error {
        let is_of_cluster = self.cluster().is_some();
        if is_of_cluster { error } else { self.after_end(error, deadline).await }
    }

    fn keep(&self, roads: Roads) -> Roads {
        let number = self.num_roads.fetch_add(1, Relaxed);
        let current = Current { generation: fork::generation(), number, roads: roads.clone() };
        forget_parents(self.current.swap(Some(Arc::new(current))));
        roads
    }

    /// Makes a call at one server. Connects first if there is no road.
    fn call_one<'a, C: Call + 'a>(
        &'a self,
        call: C,
        turn: Turn,
        (connect_by, deadline): (Option<Instant>, Option<Instant>),
    ) -> Started<'a, C::Answer> {
        let road = match self.road_now() {
            Some(road) if road.is_here() => return road.call(call, deadline),
            road => road,
        };
        Started::elsewhere(async move {
            let road = match road {
                Some(road) => road,
                None => self.road(turn, None, connect_by).await?,
            };
            self.settled(road.complete(call, deadline).await, deadline).await
        })
    }

    /// Makes a call with one request and one answer, such as [`Info`]. With several servers, it goes to all of them, and
    /// their answers are merged.
    ///
    /// # Errors
    /// Those that the call names, or [`Error::Unavailable`] if the server cannot be reached.
    pub fn call<'a, C: ToAll + 'a>(&'a self, call: C, deadline: Option<Instant>) -> Started<'a, C::Answer> {
        self.call_later(call, deadline, deadline)
    }

    /// As [`Client::call`], with a separate deadline for the connection.
    ///
    /// # Errors
    /// Those of [`Client::call`].
    pub fn call_later<'a, C: ToAll + 'a>(
        &'a self,
        call: C,
        connect_by: Option<Instant>,
        deadline: Option<Instant>,
    ) -> Started<'a, C::Answer> {
        if let Some(road) = self.road_now().filter(Road::is_here) {
            return road.call(call, deadline);
        }
        Started::elsewhere(async move {
            let roads = self.roads(connect_by).await?;
            let answer = roads.call(call.clone(), connect_by, deadline).await;
            match self.settled(answer, deadline).await {
                // A server other than the one meant refuses such calls whole. It may have replaced that one, and a new
                // connection finds out whether a balancer splits the client.
                Err(Error::SplitClient { .. }) if roads.only().is_some() => {
                    self.roads(connect_by).await?.call(call, connect_by, deadline).await
                }
                Err(error)
                    if C::FINDS_NEXT_SERVER
                        && error.is_transient()
                        && roads.only().is_some()
                        && deadline.is_none_or(|end| Instant::now() < end) =>
                {
                    let road = Box::pin(connect::connect(&self.endpoint, &self.session, deadline)).await?;
                    self.keep(road.into()).call(call, connect_by, deadline).await
                }
                answer => answer,
            }
        })
    }

    /// Inserts items, waits until they are in their tables, and returns their keys. An item has the same key in all tables.
    ///
    /// # Errors
    /// Errors of the tables, [`Error::Unavailable`] if the server cannot be reached, or [`Error::Unconfirmed`] if it is
    /// lost or stopped while the call waits.
    pub fn insert(&self, insert: RowInsert, deadline: Option<Instant>) -> Started<'_, ItemKeys> {
        let call = Insert { rows: insert, client: self.session.id };
        if self.endpoint.cluster.is_none() {
            return self.call_one(call, Turn::Insert, (deadline, deadline));
        }
        Started::elsewhere(async move {
            let roads = self.roads(deadline).await?;
            self.settled(roads.insert(call, deadline).await, deadline).await
        })
    }

    /// Draws a batch, which the caller acknowledges.
    ///
    /// # Errors
    /// Errors of the table, or [`Error::Unavailable`] if the server cannot be reached or is lost.
    pub fn sample<'a>(&'a self, request: &'a BatchRequest, deadline: Option<Instant>) -> Started<'a, Sampled> {
        let roads = match self.roads_now() {
            Some(roads) if roads.is_here() => return roads.sample(request, deadline),
            roads => roads,
        };
        Started::elsewhere(async move {
            let roads = match roads {
                Some(roads) => roads,
                None => self.roads(deadline).await?,
            };
            match roads.sample(request, deadline).await {
                Err(error) => Err(self.after_end_of_draw(error, deadline).await),
                sampled => sampled,
            }
        })
    }

    /// Returns the servers, if they are the shards of a cluster.
    fn cluster(&self) -> Option<Arc<Servers>> {
        self.endpoint.cluster?;
        self.roads_now()?.servers().filter(|servers| servers.cluster().is_some()).cloned()
    }

    /// Whether its servers are the shards of a cluster.
    pub fn has_cluster(&self) -> bool {
        self.endpoint.cluster.is_some()
    }

    /// Returns the counts of all draws from the shards of a cluster by this process. `None` if the client has none.
    pub fn cluster_counts(&self) -> Option<ClusterCounts> {
        self.cluster()?.cluster().map(|cluster| cluster.counts())
    }

    /// Asks all shards of a cluster to describe themselves.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the client has no cluster, or with the name of a server that is no shard of it.
    pub async fn shards(&self, deadline: Option<Instant>) -> Result<Vec<ListedShard>> {
        let servers = self.cluster().ok_or_else(|| Error::invalid("expected a client of a cluster"))?;
        cluster::listed(&servers, deadline).await
    }

    /// Adds the shards of an endpoint that lists more than the client knows. Clients beside this one get them, too.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the endpoint is a name, or if the client has no cluster.
    pub fn add_shards(&self, endpoint: &Endpoint) -> Result<()> {
        endpoint.check()?;
        let listed = endpoint.listed().filter(|_| self.has_cluster());
        let listed = listed.ok_or_else(|| Error::invalid("expected a cluster whose shards are listed"))?;
        self.session.added.store(Arc::new(listed));
        Ok(())
    }

    /// Waits until all shards of a cluster were tried once, for as long as a silent one may take.
    pub async fn try_shards(&self) {
        if let (Some(servers), Some(options)) = (self.cluster(), self.endpoint.cluster) {
            servers.all_or_none(Some(Instant::now() + options.shard_timeout)).await;
        }
    }

    /// Whether a server elsewhere may not have processed the receipts of all batches that the program has.
    pub fn is_unsettled(&self) -> bool {
        self.reached().iter().any(Road::is_unsettled)
    }

    /// Sends the receipts of the batches that the program has, and waits until the servers have processed them, until
    /// `deadline` at the latest. For a client that ends.
    pub async fn settle(&self, deadline: Instant) {
        for road in self.reached().into_iter().filter(Road::is_unsettled) {
            road.settle(deadline).await;
        }
    }

    /// Drops the connections. Those that writers use stay open until the writers end; the next call connects again.
    pub fn disconnect(&self) {
        forget_parents(self.current.swap(None));
    }

    fn reached(&self) -> Vec<Road> {
        self.with_current(|current| Some(current.roads.reached())).unwrap_or_default()
    }

    /// Begins to draw a batch. Waits at most for a connection, until `connect_by` or, if that is `None`, until
    /// `deadline`. Must be called in the context of the runtime of the process, or awaited there. With `at_once`, a
    /// batch of any size from a table of this process is copied during the call if its items are available. That is for
    /// callers that wait for the batch next.
    ///
    /// # Errors
    /// [`Error::TableNotFound`] if this process has no such table. [`Error::Unavailable`] if the server cannot be
    /// reached, or [`Error::DeadlineExceeded`] if the deadline passes first.
    pub fn begin_sample<'a>(
        &'a self,
        request: &'a BatchRequest,
        deadline: Option<Instant>,
        connect_by: Option<Instant>,
        at_once: bool,
    ) -> Started<'a, PendingDraw> {
        if let Some(servers) = self.cluster() {
            return Started::elsewhere(async move { Ok(cluster::begin_sample(servers, request.clone(), deadline)) });
        }
        self.call_one(BeginSample { request, at_once }, Turn::Draw, (connect_by.or(deadline), deadline))
    }

    /// Begins the part of a table elsewhere in a race of several tables. Waits at most for a connection, until `deadline`.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the server cannot be reached, or [`Error::Unimplemented`] if it does not know races, or
    /// is in this process.
    pub fn begin_race<'a>(&'a self, request: &'a RaceRequest, deadline: Option<Instant>) -> Started<'a, RaceCall> {
        self.call_one(request, Turn::Draw, (deadline, deadline))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.disconnect();
    }
}

/// Drops roads that are no longer used, but not connections that were made before a fork: they belong to the parent
/// process, and dropping them could wait for threads that exist only there.
fn forget_parents(old: Option<Arc<Current>>) {
    if let Some(old) = old
        && old.generation != fork::generation()
    {
        std::mem::forget(old);
    }
}
