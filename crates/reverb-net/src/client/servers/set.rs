//! Chooses among the servers, and reaches them. Attempts run as tasks, so that calls to other servers do not wait for them.

use super::members::{Members, Wanted};
use crate::client::address::{Address, Endpoint, Several};
use crate::client::connect::{CONNECT_TIME, attempt, unreached_text};
use crate::client::road::Road;
use crate::replay_v1::client::Session;
use crate::transport::back_off::BackOff;
use crate::transport::dial::ATTEMPT_TIME;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use reverb_core::{Error, Result, fork};
use reverb_service::{Transport, warn};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
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
    set: ArcSwap<Set>,
}

/// The servers as one process sees them. A forked child makes its own.
#[derive(Debug)]
struct Set {
    generation: u32,
    address: Address,
    session: Arc<Session>,
    members: Mutex<Members>,
    /// The number of roads that were chosen for each kind.
    turns: [AtomicUsize; 4],
    /// Notified after an attempt to reach a server has ended.
    changed: watch::Sender<()>,
}

/// The servers that a call to all of them finds.
pub struct Reached {
    /// The roads to the servers, with their addresses.
    pub roads: Vec<(Arc<str>, Road)>,
    /// The servers that cannot be reached, with the reasons.
    pub down: Vec<(Arc<str>, Error)>,
}

impl Servers {
    /// Makes the servers of an address. `None` if the address names one server.
    pub fn of(address: &Address, session: &Arc<Session>) -> Option<Box<Self>> {
        address.several()?;
        Some(Box::new(Self { set: ArcSwap::from_pointee(Set::new(address.clone(), session.clone())) }))
    }

    fn set(&self) -> Arc<Set> {
        let set = self.set.load_full();
        if set.generation == fork::generation() {
            return set;
        }
        // The connections belong to the parent process. Dropping them could wait for threads that exist only there.
        let own = Arc::new(Set::new(set.address.clone(), set.session.clone()));
        std::mem::forget(self.set.compare_and_swap(&set, own));
        std::mem::forget(set);
        self.set.load_full()
    }

    /// Returns the road to the server whose turn it is. Servers that are down are skipped. A writer that has a `home`
    /// keeps that server as long as it can be reached.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if no server can be reached, or [`Error::Unreached`] if the deadline passes first.
    pub async fn road(&self, turn: Turn, home: Option<&str>, deadline: Option<Instant>) -> Result<Road> {
        let set = self.set();
        let wanted = home.map_or(Wanted::Any, Wanted::Home);
        set.reach(wanted, deadline, |members| {
            let roads = members.roads();
            if let Some((_, road)) = home.and_then(|home| roads.iter().find(|(peer, _)| &**peer == home)) {
                return Some(road.clone());
            }
            let turn = set.turns[turn as usize].fetch_add(1, Relaxed);
            roads.get(turn.checked_rem(roads.len())?).map(|(_, road)| road.clone())
        })
        .await
    }

    /// Returns the roads to all servers, and the servers that are down.
    ///
    /// # Errors
    /// Those of [`Servers::road`].
    pub async fn all(&self, deadline: Option<Instant>) -> Result<Reached> {
        let reached = |members: &mut Members| {
            let roads = members.roads();
            (!roads.is_empty()).then(|| Reached { roads, down: members.down() })
        };
        self.set().reach(Wanted::All, deadline, reached).await
    }

    /// Returns the number of servers, those that are down included.
    pub fn len(&self) -> usize {
        self.set().members.lock().len()
    }

    /// Returns a number that changes when one of the servers was reached again. `None` if no server is connected.
    pub fn connection(&self) -> Option<u32> {
        self.set().members.lock().connection()
    }

    /// Whether there were connections, and all are lost.
    pub fn are_lost(&self) -> bool {
        let set = self.set();
        let members = set.members.lock();
        members.have_answered() && members.connection().is_none()
    }

    /// Returns the transport. `None` before a server was reached.
    pub fn transport(&self) -> Option<Transport> {
        self.set().members.lock().have_answered().then_some(Transport::Tcp)
    }

    /// Returns the name of the roads, for display. `None` before a server was reached.
    pub fn road_name(&self) -> Option<String> {
        self.set().members.lock().road_name()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        let set = self.set.load_full();
        if set.generation != fork::generation() {
            // See `Servers::set`.
            std::mem::forget(set);
        }
    }
}

impl Set {
    fn new(address: Address, session: Arc<Session>) -> Self {
        let members = match address.several() {
            Some(Several::List(entries)) => Members::listed(entries),
            _ => Members::of_name(),
        };
        // Clients that begin at the same time begin with different servers.
        let turns = std::array::from_fn(|_| AtomicUsize::new(rand::random_range(0..1 << 16)));
        let changed = watch::Sender::new(());
        Self { generation: fork::generation(), address, session, members: Mutex::new(members), turns, changed }
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
        let limit = deadline.unwrap_or(give_up).clamp(begun + BackOff::SHORTEST, give_up);
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            let now = Instant::now();
            let is_late = now >= limit;
            let (found, answers_by, wake) = {
                let mut members = self.members.lock();
                self.begin_attempts(&mut members, now);
                let is_known = members.is_known(wanted);
                let answers_by = begun + members.patience();
                let may_choose = is_known || is_late || now >= answers_by;
                let found = if may_choose { choose(&mut members) } else { None };
                let found = match found {
                    Some(found) => Ok(Some((found, members.take_notices(self.address.text())))),
                    None => match members.refusal() {
                        Some(error) if is_known => Err(error),
                        _ if is_late => Err(self.unreached(&members, deadline.is_some_and(|end| now >= end), begun)),
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
        members.note_lost(now);
        if let Some(Several::Name(host, port)) = self.address.several()
            && members.take_look_up(now)
        {
            let (set, host) = (self.clone(), host.to_owned());
            tokio::spawn(async move {
                let found = look_up(&host, port).await;
                set.members.lock().settle_look_up(found, Instant::now());
                set.changed.send_replace(());
            });
        }
        for (peer, host, port) in members.take_due(now) {
            let set = self.clone();
            tokio::spawn(async move {
                let endpoint = Endpoint::Tcp { host: &host, port, or_shorter: false };
                let late = |_| Err(Error::Unavailable("the server does not answer".into()));
                let result = tokio::time::timeout(CONNECT_TIME, attempt(&peer, endpoint, &set.session))
                    .await
                    .unwrap_or_else(late);
                set.members.lock().settle(set.address.text(), &peer, result, Instant::now());
                set.changed.send_replace(());
            });
        }
    }

    fn unreached(&self, members: &Members, is_late: bool, begun: Instant) -> Error {
        let text = unreached_text(&self.address, &Error::Unavailable(members.reasons()), begun.elapsed());
        if is_late { Error::Unreached(text) } else { Error::Unavailable(text) }
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
