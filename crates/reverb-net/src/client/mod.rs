//! Clients. They offer the same calls over every road to a server.

mod address;
mod connect;
pub mod health;
mod pending_draw;
mod persistent;
mod road;
mod servers;
mod started;
pub mod writer;

pub use crate::replay_v1::client::BenchHold;
pub use crate::writing::DEFAULT_PENDING_BYTES;
pub use pending_draw::PendingDraw;
pub use road::Road;
pub use servers::Turn;
pub use started::{Rest, Started, WaitsFor};

use crate::replay_v1::client::Session;
use crate::writing::PendingLimit;
use address::Address;
use arc_swap::{ArcSwap, ArcSwapOption};
use reverb_core::{Error, Result, TableChanges, fork};
use reverb_service::local::{BatchRequest, RowInsert};
use reverb_service::peek::Peeked;
use reverb_service::{Batch, TableHandle, TableStatus, Transport, registry};
use servers::{Servers, at_server};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Instant;

#[derive(Debug)]
struct Current {
    generation: u32,
    /// Counts the roads that the client has had.
    number: u32,
    road: Road,
}

/// A client of one server, or of several. It connects when it is first used. It connects again after the server was
/// lost, or after the process forked.
///
/// If the server is in this process, the calling thread does as much of a call as is possible without a wait. The
/// caller awaits the rest, if there is any.
#[derive(Debug)]
pub struct Client {
    address: Address,
    /// What its connections have in common with those of the clients beside it.
    session: Arc<Session>,
    current: ArcSwapOption<Current>,
    roads: AtomicU32,
    /// The servers of an address that names several. `current` is then never set.
    servers: Option<Box<Servers>>,
    /// The limit on the unconfirmed items of all writers.
    pending: ArcSwap<PendingLimit>,
}

impl Client {
    /// Makes a client of the server at `address`, without contacting the server.
    pub fn new(address: &str) -> Self {
        Self::with_limit(address, DEFAULT_PENDING_BYTES)
    }

    /// As [`Client::new`]. All writers of the client together hold about `max_pending_bytes` of unconfirmed items.
    pub fn with_limit(address: &str, max_pending_bytes: usize) -> Self {
        Self::of_session(address, Arc::default(), max_pending_bytes)
    }

    fn of_session(address: &str, session: Arc<Session>, max_pending_bytes: usize) -> Self {
        let address = Address::parse(address);
        Self {
            servers: Servers::of(&address, &session),
            address,
            session,
            current: ArcSwapOption::empty(),
            roads: AtomicU32::new(0),
            pending: ArcSwap::from_pointee(PendingLimit::new(max_pending_bytes)),
        }
    }

    /// Makes another client of the same server, with a connection of its own. For a balancer and for the server, both
    /// are one client. As in [`Client::with_limit`], its writers together hold about `max_pending_bytes`.
    #[must_use]
    pub fn beside(&self, max_pending_bytes: usize) -> Self {
        Self::of_session(self.address(), self.session.clone(), max_pending_bytes)
    }

    /// Returns the address of the server, as it was given.
    pub fn address(&self) -> &str {
        self.address.text()
    }

    /// Returns the limit on the unconfirmed items of all writers.
    fn pending(&self) -> Arc<PendingLimit> {
        let pending = self.pending.load_full();
        let Some(own) = pending.after_fork() else { return pending };
        // The limit belongs to the parent process. Of several threads, one replaces it.
        self.pending.compare_and_swap(&pending, Arc::new(own));
        self.pending.load_full()
    }

    /// Returns a road that needs no new connection: the one in use, or the road to a server of this process.
    pub fn road_now(&self) -> Option<Road> {
        if let Some(current) = &*self.current.load()
            && current.generation == fork::generation()
            && current.road.is_open()
        {
            return Some(current.road.clone());
        }
        let (hosts, port) = self.address.loopback()?;
        let road = Road::SameProcess(registry::find(hosts, port)?);
        self.keep(road.clone());
        Some(road)
    }

    /// Returns the road to the server; of several, to the one whose turn it is. Connects if necessary, until `deadline`
    /// at the latest.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the server cannot be reached, or [`Error::DeadlineExceeded`] if the deadline passes
    /// first.
    pub async fn road(&self, turn: Turn, deadline: Option<Instant>) -> Result<Road> {
        self.road_from(turn, None, deadline).await
    }

    /// As [`Client::road`], for a writer. Of several servers, it keeps its `home` if that can be reached.
    async fn writer_road(&self, home: Option<&str>, deadline: Option<Instant>) -> Result<Road> {
        self.road_from(Turn::Write, home, deadline).await
    }

    async fn road_from(&self, turn: Turn, home: Option<&str>, deadline: Option<Instant>) -> Result<Road> {
        if let Some(road) = self.road_now() {
            return Ok(road);
        }
        if let Some(servers) = &self.servers {
            return servers.road(turn, home, deadline).await;
        }
        let road = match self.was_stopped_here() {
            true => connect::connect_after_stop(&self.address, &self.session, deadline).await?,
            false => connect::connect(&self.address, &self.session, deadline).await?,
        };
        self.keep(road.clone());
        Ok(road)
    }

    /// Returns the transport in use. `None` before the first call has found the server.
    pub fn transport(&self) -> Option<Transport> {
        if let Some(servers) = &self.servers {
            return servers.transport();
        }
        let current = self.current.load();
        let current = current.as_deref().filter(|current| current.generation == fork::generation())?;
        Some(current.road.transport())
    }

    /// Returns the name of the road in use, for display. `None` before the first call has found the server.
    pub fn road_name(&self) -> Option<String> {
        if let Some(servers) = &self.servers {
            return servers.road_name();
        }
        let current = self.current.load();
        let current = current.as_deref().filter(|current| current.generation == fork::generation())?;
        Some(current.road.name())
    }

    /// Returns a number that changes when the client begins to use another connection or server. `None` if the next
    /// call must look for the server.
    pub fn connection(&self) -> Option<u32> {
        let current = self.current.load();
        let is_open = |current: &&Current| current.generation == fork::generation() && current.road.is_open();
        let number = current.as_deref().filter(is_open).map(|current| current.number);
        number.or_else(|| self.servers.as_ref()?.connection())
    }

    /// Returns a table of a server of this process. `None` if the server is elsewhere.
    ///
    /// # Errors
    /// [`Error::TableNotFound`] if there is no such table.
    pub fn local_table(&self, name: &str) -> Result<Option<TableHandle>> {
        match self.road_now() {
            Some(Road::SameProcess(replay)) => replay.table(name).cloned().map(Some),
            _ => Ok(None),
        }
    }

    /// Whether the last call used a server of this process, so that the next one can probably be completed at once.
    #[inline]
    pub fn is_near(&self) -> bool {
        self.current.load().as_deref().is_some_and(|current| matches!(current.road, Road::SameProcess(_)))
    }

    fn keep(&self, road: Road) {
        let number = self.roads.fetch_add(1, Relaxed);
        let old = self.current.swap(Some(Arc::new(Current { generation: fork::generation(), number, road })));
        // A connection that was made before a fork belongs to the parent process. Dropping it could wait for threads
        // that exist only there.
        if let Some(old) = old
            && old.generation != fork::generation()
        {
            std::mem::forget(old);
        }
    }

    /// Whether the last server of the client was in this process, and was stopped.
    fn was_stopped_here(&self) -> bool {
        self.current.load().as_ref().is_some_and(|current| {
            current.generation == fork::generation()
                && matches!(&current.road, Road::SameProcess(replay) if replay.is_closed())
        })
    }

    /// Makes a call over the current road. Connects first if there is none.
    fn on_road<'a, T: Send + 'a>(
        &'a self,
        turn: Turn,
        connect_by: Option<Instant>,
        call: impl FnOnce(Road) -> Started<'a, T> + Send + 'a,
    ) -> Started<'a, T> {
        match self.road_now() {
            Some(road) => call(road),
            None => Started::elsewhere(async move { call(self.road(turn, connect_by).await?).await }),
        }
    }

    /// Draws a batch after a server was found. Of several servers, another one is asked if the first is lost.
    async fn sample_elsewhere(&self, request: &BatchRequest, deadline: Option<Instant>) -> Result<Batch> {
        let mut servers_left = self.servers.as_ref().map_or(1, |servers| servers.len());
        loop {
            let road = self.road(Turn::Draw, deadline).await?;
            match self.sample_on(road, request, deadline).await {
                Err(Error::Unavailable(_) | Error::Cancelled(_) | Error::SplitClient { .. }) if servers_left > 1 => {
                    servers_left -= 1
                }
                sampled => return sampled,
            }
        }
    }

    /// Draws a batch over a road. Of several servers, an error names the one that was asked.
    async fn sample_on(&self, road: Road, request: &BatchRequest, deadline: Option<Instant>) -> Result<Batch> {
        if self.servers.is_none() {
            return road.sample(request, deadline).await;
        }
        let peer = road.peer().map(str::to_owned).unwrap_or_default();
        road.sample(request, deadline).await.map_err(|error| at_server(error, &peer))
    }

    /// As [`Client::on_road`], for calls that a server other than the one meant refuses whole. The call is made again,
    /// once: the server may have been replaced, and a new connection finds out whether a balancer splits the client.
    fn on_road_again<'a, T: Send + 'a>(
        &'a self,
        connect_by: Option<Instant>,
        call: impl FnOnce(Road) -> Started<'a, T> + Clone + Send + 'a,
    ) -> Started<'a, T> {
        match self.on_road(Turn::Other, connect_by, call.clone()) {
            Started::Waiting(WaitsFor::Connection, answer) => Started::elsewhere(async move {
                match answer.await {
                    Err(Error::SplitClient { .. }) => call(self.road(Turn::Other, connect_by).await?).await,
                    answer => answer,
                }
            }),
            done => done,
        }
    }

    /// Inserts items, and waits until they are in their tables.
    ///
    /// # Errors
    /// Errors of the tables, [`Error::Unavailable`] if the server cannot be reached, or [`Error::Unconfirmed`] if it is
    /// lost or stopped while the call waits.
    pub fn insert(&self, insert: RowInsert, deadline: Option<Instant>) -> Started<'_, ()> {
        self.on_road(Turn::Insert, deadline, move |road| road.insert(insert, deadline))
    }

    /// Draws a batch.
    ///
    /// # Errors
    /// Errors of the table, or [`Error::Unavailable`] if the server cannot be reached or is lost.
    pub fn sample<'a>(&'a self, request: &'a BatchRequest, deadline: Option<Instant>) -> Started<'a, Batch> {
        match self.road_now() {
            Some(road) => road.sample(request, deadline),
            None => Started::elsewhere(self.sample_elsewhere(request, deadline)),
        }
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
        self.on_road(Turn::Draw, connect_by.or(deadline), move |road| road.begin_sample(request, deadline, at_once))
    }

    /// Deletes items, then sets priorities, at all servers. Unknown keys are ignored. Returns how many deletes and
    /// updates found their item; `None` if the server is older and does not count them.
    ///
    /// # Errors
    /// [`Error::TableNotFound`] if there is no such table, or [`Error::InvalidPriority`] if a priority is not valid.
    /// Nothing is changed then.
    pub fn mutate<'a>(
        &'a self,
        table: &'a str,
        updates: &'a [(u64, f64)],
        deletes: &'a [u64],
        deadline: Option<Instant>,
    ) -> Started<'a, Option<u64>> {
        if let Some(servers) = &self.servers {
            return Started::elsewhere(servers.mutate(table, updates, deletes, deadline));
        }
        self.on_road_again(deadline, move |road| road.mutate(table, updates, deletes, deadline))
    }

    /// Removes all items of a table and sets its counters to zero, at all servers.
    ///
    /// # Errors
    /// [`Error::TableNotFound`] if there is no such table.
    pub fn reset<'a>(&'a self, table: &'a str, deadline: Option<Instant>) -> Started<'a, ()> {
        if let Some(servers) = &self.servers {
            return Started::elsewhere(servers.reset(table, deadline));
        }
        self.on_road_again(deadline, move |road| road.reset(table, deadline))
    }

    /// Changes options of a table, at all servers. Waiting requests are looked at again at once, and items that no longer
    /// fit leave before the call returns.
    ///
    /// # Errors
    /// [`Error::TableNotFound`] if there is no such table, or [`Error::InvalidArgument`] if an option is not valid.
    /// Nothing is changed then. [`Error::Unimplemented`] if the server is one of dm-reverb, or older than this call.
    pub fn configure<'a>(
        &'a self,
        table: &'a str,
        changes: &'a TableChanges,
        deadline: Option<Instant>,
    ) -> Started<'a, ()> {
        if let Some(servers) = &self.servers {
            return Started::elsewhere(servers.configure(table, changes, deadline));
        }
        self.on_road_again(deadline, move |road| road.configure(table, changes, deadline))
    }

    /// Returns the status of all tables of the server. Those of several servers are merged.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the server cannot be reached.
    pub fn info(&self, deadline: Option<Instant>) -> Started<'_, Vec<TableStatus>> {
        self.info_later(deadline, deadline)
    }

    /// As [`Client::info`], with a separate deadline for the connection.
    ///
    /// # Errors
    /// Those of [`Client::info`].
    pub fn info_later(&self, connect_by: Option<Instant>, deadline: Option<Instant>) -> Started<'_, Vec<TableStatus>> {
        if let Some(servers) = &self.servers {
            return Started::elsewhere(servers.info(connect_by, deadline));
        }
        self.on_road_again(connect_by, move |road| match road.info(deadline) {
            Started::Waiting(_, answer) => Started::elsewhere(async move {
                match answer.await {
                    // The server of an older connection may have been stopped and replaced by another.
                    Err(Error::Cancelled(_) | Error::Unavailable(_))
                        if deadline.is_none_or(|end| Instant::now() < end) =>
                    {
                        let road = connect::connect(&self.address, &self.session, deadline).await?;
                        self.keep(road.clone());
                        road.info(deadline).await
                    }
                    answer => answer,
                }
            }),
            done => done,
        })
    }

    /// Saves all tables of the server. Returns the path of the checkpoint on the machine of the server; of several
    /// servers, one path a line.
    ///
    /// # Errors
    /// The error of the save, or [`Error::Unavailable`] if the server cannot be reached.
    pub fn checkpoint(&self, deadline: Option<Instant>) -> Started<'_, String> {
        if let Some(servers) = &self.servers {
            return Started::elsewhere(servers.checkpoint(deadline));
        }
        self.on_road_again(deadline, move |road| road.checkpoint(deadline))
    }

    /// Returns up to `count` items of a table without drawing or counting them: the newest ones, or the oldest ones.
    ///
    /// # Errors
    /// [`Error::TableNotFound`] if there is no such table.
    pub fn peek<'a>(
        &'a self,
        table: &'a str,
        count: u32,
        newest: bool,
        deadline: Option<Instant>,
    ) -> Started<'a, Vec<Peeked>> {
        if let Some(servers) = &self.servers {
            return Started::elsewhere(servers.peek(table, count, newest, deadline));
        }
        self.on_road_again(deadline, move |road| road.peek(table, count, newest, deadline))
    }

    /// Makes an empty table of the server to measure with, which exists until the result is dropped. Draws and inserts
    /// over connections find it by its name.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the client has several servers, or one of this process.
    /// [`Error::Unimplemented`] if the server is of an earlier version, or one of dm-reverb.
    /// [`Error::ResourceExhausted`] if others measure too.
    pub async fn bench_table(&self, deadline: Option<Instant>) -> Result<BenchHold> {
        if self.servers.is_some() {
            return Err(Error::invalid(format!(
                "only one server can be measured at a time, and `{}` names several; use one of their addresses",
                self.address()
            )));
        }
        self.road(Turn::Other, deadline).await?.bench_table(deadline).await
    }

    /// Describes the server as JSON, for display: see [`reverb_observe::documents::ObservedDocument`].
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the client has several servers. [`Error::Unimplemented`] if the server is of an
    /// earlier version, or one of dm-reverb.
    pub fn observe(&self, deadline: Option<Instant>) -> Started<'_, Vec<u8>> {
        if self.servers.is_some() {
            return Started::Done(Err(Error::invalid(format!(
                "only one server can be observed at a time, and `{}` names several; use one of their addresses",
                self.address()
            ))));
        }
        self.on_road_again(deadline, move |road| road.observe(deadline))
    }
}
