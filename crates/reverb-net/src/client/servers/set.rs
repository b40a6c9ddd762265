//! Chooses among the servers, and reaches them. Attempts run as tasks, so that calls to other servers do not wait for them.

use super::at_server::{at_server, is_lost};
use super::members::{Members, Wanted};
use super::owners::Owners;
use super::placer::Placer;
use super::told;
use crate::client::cluster::{Cluster, RoomUse, check_shards, own, present};
use crate::client::connect::{CONNECT_TIME, LEAST_ATTEMPT_TIME, attempt, unreached};
use crate::client::pending_draw::Sampled;
use crate::client::road::{PeerRoads, Road};
use crate::client::streamed::{Insert, Sample};
use crate::replay_v1::client::Session;
use crate::transport::address::{Endpoint, Several};
use crate::transport::dial::ATTEMPT_TIME;
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use reverb_core::{Error, ItemKeys, KeySlots, Result};
use reverb_service::local::BatchRequest;
use reverb_service::{Transport, warn};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;
use tokio::sync::watch;

/// What a road is chosen for. Each kind takes the servers in its own turn, so that no kind always gets the same server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// A call that inserts.
    Insert,
    /// A draw.
    Draw,
    /// The stream of a writer.
    Write,
    /// Any other call. Clients of several servers make these calls at all of them.
    Other,
}

/// The servers of a list, or of a name with several addresses.
#[derive(Debug)]
pub struct Servers {
    endpoint: Endpoint,
    session: Arc<Session>,
    /// What is known of the cluster that the servers are. `None` if they are used as they are.
    cluster: Option<Arc<Cluster>>,
    members: Mutex<Members>,
    /// Chooses the shards of a cluster that get items.
    placement: Placer,
    /// The number of roads that were chosen for each kind.
    turns: [AtomicUsize; 4],
    /// Whether [`Servers::first_draw`] was answered.
    has_drawn: AtomicBool,
    /// Notified after an attempt to reach a server has ended.
    changed: watch::Sender<()>,
}

impl Servers {
    /// Makes the servers of an endpoint. Nothing is contacted yet.
    pub fn new(endpoint: Endpoint, session: Arc<Session>) -> Self {
        let members = endpoint.listed().map_or_else(Members::of_name, Members::listed);
        // Clients that begin at the same time begin with different servers.
        let turns = std::array::from_fn(|_| AtomicUsize::new(rand::random_range(0..1 << 16)));
        let cluster = endpoint.cluster.map(|options| Arc::new(Cluster::new(options)));
        let placement = Placer::new(SmallRng::from_os_rng());
        let (members, changed) = (Mutex::new(members), watch::Sender::new(()));
        Self { endpoint, session, cluster, members, placement, turns, has_drawn: AtomicBool::new(false), changed }
    }

    /// Returns the address of all servers, as it was given.
    pub fn address(&self) -> &str {
        self.endpoint.address.text()
    }

    /// Returns the road to the server whose turn it is; of a cluster, that of new items to the emptier of two random
    /// shards. Servers that are down are skipped. A writer that has a `home` keeps that server as long as it can be
    /// reached.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if no server can be reached, or [`Error::Unreached`] if the deadline passes first.
    pub async fn road(self: &Arc<Self>, turn: Turn, home: Option<&str>, deadline: Option<Instant>) -> Result<Road> {
        let wanted = home.map_or(Wanted::Any, Wanted::Home);
        let all = self.reach(wanted, deadline, Members::all).await?;
        let mut roads: Vec<_> = match &self.cluster {
            Some(cluster) => present(cluster, all)?,
            None => all.into_iter().filter_map(|(peer, road)| Some((peer, road.ok()?))).collect(),
        };
        if let Some((_, road)) = home.and_then(|home| roads.iter().find(|(peer, _)| &**peer == home)) {
            return Ok(road.clone());
        }
        let chosen = match turn {
            Turn::Insert | Turn::Write if self.cluster.is_some() => {
                self.placement.choose(roads.len(), |place| roads[place].1.load())
            }
            turn => self.turns[turn as usize].fetch_add(1, Relaxed) % roads.len(),
        };
        Ok(roads.swap_remove(chosen).1)
    }

    /// Returns the roads to all servers, in the order of the list. Instead of a road, a server that is down has the reason.
    ///
    /// # Errors
    /// Those of [`Servers::road`]. [`Error::InvalidArgument`] with the name of a server that is no shard of the same cluster.
    pub async fn all(self: &Arc<Self>, deadline: Option<Instant>) -> Result<PeerRoads> {
        let all = self.reach(Wanted::All, deadline, Members::all).await?;
        if self.cluster.is_some() {
            check_shards(&all)?;
        }
        Ok(all)
    }

    /// Returns the roads to all servers as they are now, as [`Servers::all`] does. Waits only for the first attempts to
    /// reach them.
    ///
    /// # Errors
    /// Those of [`Servers::road`].
    pub async fn known(self: &Arc<Self>, deadline: Option<Instant>) -> Result<PeerRoads> {
        self.reach(Wanted::Any, deadline, Members::all).await
    }

    /// As [`Servers::all`]. If no server can be reached, all have their reasons.
    pub async fn all_or_none(self: &Arc<Self>, deadline: Option<Instant>) -> PeerRoads {
        let all = self.all(deadline).await;
        all.unwrap_or_else(|_| self.members.lock().now())
    }

    /// Returns what is known of the cluster that the servers are. `None` if they are used as they are.
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.cluster.as_ref()
    }

    /// Warns that a server is lost and that the others serve meanwhile, unless that was reported recently.
    pub fn tell_loss(&self, peer: &str, error: &Error) {
        let address = self.address();
        if told::is_news(address, peer) {
            warn(&format!("the server at {peer} is missing ({error}); the other servers of {address} serve meanwhile"));
        }
    }

    /// As [`Servers::all`], with what is known of the keys of each server.
    ///
    /// # Errors
    /// Those of [`Servers::road`]. [`Error::InvalidArgument`] with the name of a server that is no shard of the same cluster.
    pub async fn shards(self: &Arc<Self>, deadline: Option<Instant>) -> Result<(PeerRoads, Owners)> {
        let (all, owners) =
            self.reach(Wanted::All, deadline, |members| Some((members.all()?, members.owners()))).await?;
        check_shards(&all)?;
        Ok((all, owners))
    }

    /// Waits until a server is reached, or until `until`, or until all servers were stopped for good.
    pub async fn returned(self: &Arc<Self>, peer: &str, until: Instant) -> Option<Road> {
        self.found(Some(until), || self.members.lock().road_to(peer)).await
    }

    /// As [`Servers::returned`], for the shard of a cluster that owns these slots, wherever it is by now.
    pub async fn returned_shard(self: &Arc<Self>, slots: KeySlots, until: Instant) -> Option<Road> {
        self.found(Some(until), || self.present().into_iter().find(|road| road.key_slots() == slots)).await
    }

    /// Waits until a server is reached after there were so many connections ([`Servers::connection`]), or until all
    /// servers were stopped for good.
    pub async fn reached_since(self: &Arc<Self>, connections: Option<u32>) {
        self.found(None, || self.connection().filter(|&now| Some(now) != connections)).await;
    }

    /// Waits until `find` finds something, or until `until`, or until all servers were stopped for good.
    async fn found<T>(self: &Arc<Self>, until: Option<Instant>, find: impl Fn() -> Option<T>) -> Option<T> {
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            let now = Instant::now();
            let (is_over, wake) = {
                let mut members = self.members.lock();
                self.begin_attempts(&mut members, now);
                (members.have_no_successor(), members.next_attempt(now))
            };
            let found = find();
            if found.is_some() || is_over || until.is_some_and(|until| now >= until) {
                return found;
            }
            let due = async {
                match [until, wake].into_iter().flatten().min() {
                    Some(due) => tokio::time::sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = changed.changed() => {}
                () = due => {}
            }
        }
    }

    /// Whether all servers have said that they were stopped for good.
    pub fn are_over(&self) -> bool {
        self.members.lock().are_over()
    }

    /// Counts keys whose shard is missing.
    pub fn pass_over(&self, keys: u64) {
        self.session.keys_passed_over.fetch_add(keys, Relaxed);
    }

    /// Returns the error of a cluster whose shards were all stopped for good.
    pub fn over(&self) -> Error {
        Error::ServerStopped(format!("all shards of the cluster at {} were stopped for good", self.address()))
    }

    /// Returns a road for whoever is the first to ask after draws from several servers that are no cluster.
    pub fn first_draw(&self) -> Option<Road> {
        if self.cluster.is_some() || self.has_drawn.load(Relaxed) {
            return None;
        }
        let road = self.reached().into_iter().nth(1)?;
        (!self.has_drawn.swap(true, Relaxed)).then_some(road)
    }

    /// Begins the attempts to reach lost servers that are due. Must be called in the context of a runtime.
    pub fn try_lost(self: &Arc<Self>) {
        self.begin_attempts(&mut self.members.lock(), Instant::now());
    }

    /// Chooses a shard for new items among those that take part now, without the one that owns the slots `but`.
    pub fn emptier(&self, but: Option<KeySlots>) -> Option<Road> {
        let mut roads = self.present();
        roads.retain(|road| road.is_open() && Some(road.key_slots()) != but);
        if roads.is_empty() {
            return None;
        }
        let chosen = self.placement.choose(roads.len(), |place| roads[place].load());
        Some(roads.swap_remove(chosen))
    }

    /// Returns the roads to the shards of a cluster that take part now.
    fn present(&self) -> Vec<Road> {
        let Some(cluster) = &self.cluster else { return Vec::new() };
        let all = self.members.lock().now();
        own(cluster, all)
    }

    /// Whether a text was not told recently. The caller then tells it.
    pub fn is_news(&self, text: &str) -> bool {
        told::is_news(self.address(), text)
    }

    /// Returns the roads to the servers that are connected now.
    pub fn reached(&self) -> Vec<Road> {
        let all = self.members.lock().all().unwrap_or_default();
        all.into_iter().filter_map(|(_, road)| road.ok()).collect()
    }

    /// Inserts items at one of the servers. If that turns out to be lost before it has got them, they go to another.
    ///
    /// # Errors
    /// Those of [`Servers::road`] and of the insert. The cause of an [`Error::Unconfirmed`] names the server.
    pub async fn insert(self: &Arc<Self>, call: Insert, deadline: Option<Instant>) -> Result<ItemKeys> {
        let mut servers_left = self.members.lock().len();
        loop {
            let road = self.road(Turn::Insert, None, deadline).await?;
            let mut rooms = Vec::new();
            for (table, _) in &call.rows.tables {
                rooms.extend(self.room_of(table, vec![road.clone()], deadline).await?);
            }
            let peer = road.peer().map(str::to_owned).unwrap_or_default();
            match road.complete(call.clone(), deadline).await {
                // What was sent would be unconfirmed.
                Err(error) if servers_left > 1 && is_lost(&error) && !matches!(error, Error::Unconfirmed(_)) => {
                    servers_left -= 1;
                }
                Err(Error::Unconfirmed(cause)) => return Err(Error::Unconfirmed(Box::new(at_server(*cause, &peer)))),
                inserted => return inserted,
            }
        }
    }

    /// Begins to use the limiter of a table, if the shards of a cluster keep a ratio together. One of the roads is asked, if
    /// that is not known yet. Inserts and draws call this first, and keep the result while they wait.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the bounds are too narrow for so many shards.
    pub async fn room_of(&self, table: &str, roads: Vec<Road>, deadline: Option<Instant>) -> Result<Option<RoomUse>> {
        let Some(cluster) = self.cluster() else { return Ok(None) };
        let endpoints = || self.members.lock().endpoints();
        cluster.rooms.of(table, roads, endpoints, cluster.options.shard_timeout, deadline).await
    }

    /// Draws a batch from the server whose turn it is, or from another one if that is lost.
    ///
    /// # Errors
    /// Those of [`Servers::road`] and of the draw, which name the server that was asked.
    pub async fn sample(self: &Arc<Self>, request: &BatchRequest, deadline: Option<Instant>) -> Result<Sampled> {
        let mut servers_left = self.members.lock().len();
        loop {
            let road = self.road(Turn::Draw, None, deadline).await?;
            match Self::sample_on(road, request, deadline).await {
                Err(error) if servers_left > 1 && is_lost(&error) => servers_left -= 1,
                sampled => return sampled,
            }
        }
    }

    /// Draws a batch from one of the servers, which errors name.
    ///
    /// # Errors
    /// Those of the draw.
    pub async fn sample_on(road: Road, request: &BatchRequest, deadline: Option<Instant>) -> Result<Sampled> {
        let peer = road.peer().map(str::to_owned).unwrap_or_default();
        road.call(Sample(request), deadline).await.map_err(|error| at_server(error, &peer))
    }

    /// Returns a number that changes when one of the servers was reached again. `None` if no server is connected.
    pub fn connection(&self) -> Option<u32> {
        self.members.lock().connection()
    }

    /// Whether there were connections, and all are lost.
    pub fn are_lost(&self) -> bool {
        let members = self.members.lock();
        members.have_answered() && members.connection().is_none()
    }

    /// Returns the transport. `None` before a server was reached.
    pub fn transport(&self) -> Option<Transport> {
        self.members.lock().have_answered().then_some(Transport::Tcp)
    }

    /// Returns the name of the roads, for display. `None` before a server was reached.
    pub fn road_name(&self) -> Option<String> {
        self.members.lock().road_name()
    }

    /// Tries to reach servers until `choose` finds what it wants among those that are wanted.
    async fn reach<T>(
        self: &Arc<Self>,
        wanted: Wanted<'_>,
        deadline: Option<Instant>,
        mut choose: impl FnMut(&mut Members) -> Option<T>,
    ) -> Result<T> {
        let begun = Instant::now();
        let give_up = begun + CONNECT_TIME;
        let limit = deadline.unwrap_or(give_up).clamp(begun + LEAST_ATTEMPT_TIME, give_up);
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            let now = Instant::now();
            let is_end = deadline.is_some_and(|end| now >= end);
            let (found, answers_by, wake) = {
                let mut members = self.members.lock();
                self.begin_attempts(&mut members, now);
                let is_known = members.is_known(wanted);
                // After the deadline, attempts under way have their time. Others do not begin.
                let is_late = now >= limit || (is_end && members.is_known(Wanted::All));
                let answers_by = begun + members.patience();
                let may_choose = is_known || is_late || now >= answers_by;
                let found = if may_choose { choose(&mut members) } else { None };
                let found = match found {
                    Some(found) => Ok(Some((found, members.take_notices(self.endpoint.address.text())))),
                    None if self.cluster.is_some() && members.have_no_successor() => Err(self.over()),
                    None => match members.refusal() {
                        Some(error) if is_known => Err(error),
                        _ if is_late => Err(unreached(&self.endpoint, &members.reasons(), begun.elapsed(), is_end)),
                        _ => Ok(None),
                    },
                };
                (found, answers_by, members.next_attempt(now))
            };
            if let Some((found, notices)) = found? {
                notices.iter().for_each(|notice| warn(notice));
                return Ok(found);
            }
            let answers_by = Some(answers_by).filter(|&by| by > now);
            let wake = [Some(limit), wake, answers_by].into_iter().flatten().min().unwrap_or(limit);
            tokio::select! {
                _ = changed.changed() => {}
                () = tokio::time::sleep_until(wake.into()) => {}
            }
        }
    }

    /// Begins the attempts that are due. Must be called in the context of a runtime.
    fn begin_attempts(self: &Arc<Self>, members: &mut Members, now: Instant) {
        members.add(&self.session.added.load(), now);
        members.note_lost(now);
        if let Some(Several::Name(host, port)) = self.endpoint.address.several()
            && members.take_look_up(now)
        {
            let (set, host) = (self.clone(), host.to_owned());
            tokio::spawn(async move {
                let found = look_up(&host, port).await.map(|found| {
                    let member = |address: SocketAddr| set.endpoint.member(&address.ip().to_string(), address.port());
                    found.into_iter().map(member).collect()
                });
                let gone = set.members.lock().settle_look_up(found, Instant::now());
                gone.into_iter().for_each(|shard| set.session.connections().priorities.forget(shard));
                set.changed.send_replace(());
            });
        }
        for endpoint in members.take_due(now) {
            let set = self.clone();
            tokio::spawn(async move {
                let late = |_| Err(Error::Unavailable("the server does not answer".into()));
                let result =
                    tokio::time::timeout(CONNECT_TIME, attempt(&endpoint, &set.session)).await.unwrap_or_else(late);
                let (address, peer) = (set.endpoint.address.text(), endpoint.address.text());
                set.members.lock().settle(address, peer, result, Instant::now());
                set.changed.send_replace(());
            });
        }
    }
}

/// Returns all addresses of a name.
async fn look_up(host: &str, port: u16) -> Result<Vec<SocketAddr>> {
    let unknown = || Error::Unavailable(format!("{host}: unknown host"));
    let found = tokio::time::timeout(ATTEMPT_TIME, tokio::net::lookup_host((host, port))).await;
    let found = found.map_err(|_| Error::Unavailable(format!("{host}: the look-up of the host takes too long")))?;
    let found: Vec<_> = found.map_err(|_| unknown())?.collect();
    if found.is_empty() { Err(unknown()) } else { Ok(found) }
}
