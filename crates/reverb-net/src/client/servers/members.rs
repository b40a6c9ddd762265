//! The state of each server: connected, down, or the same as another.

use super::owners::{Keys, Owners};
use super::told;
use crate::client::road::Road;
use crate::transport::address::Endpoint;
use crate::transport::back_off::BackOff;
use reverb_core::{Error, Result};
use reverb_service::Transport;
use std::sync::Arc;
use std::time::{Duration, Instant};

// limit (Connections and calls): pause between attempts to reach a server of several that is down, and between look-ups
// of a name | {back_off.rs:PAUSES.0} to {back_off.rs:PAUSES.1}; {} |
/// Time between two look-ups of a name while some of its servers are down.
const LOOK_UP_PAUSE: Duration = Duration::from_secs(2);

// limit (Connections and calls): time for which a call waits for a server of several that is down while others serve |
// {} for the first attempt to reach it, then {REPEATED_TIME} | it is skipped; calls to all servers name it in an
// `UnavailableError`
/// Maximum time for which a call waits for the first attempt to reach a server, and for further ones.
const FIRST_TIME: Duration = Duration::from_secs(5);
const REPEATED_TIME: Duration = Duration::from_millis(500);

/// The servers whose state a call must know before it chooses among them.
#[derive(Debug, Clone, Copy)]
pub enum Wanted<'a> {
    /// Any server, after each was tried once.
    Any,
    /// The server with this address. If it is down, any other.
    Home(&'a str),
    /// All servers.
    All,
}

/// A server.
#[derive(Debug)]
pub struct Member {
    /// The address, for display and as the identity of the server in the list.
    peer: Arc<str>,
    endpoint: Endpoint,
    road: Option<Road>,
    /// Whether another member is a road to the same server, so that this one is not used.
    is_same: bool,
    /// Whether the server was reached at least once.
    has_answered: bool,
    /// The shard of a cluster that the server was when it was reached last.
    shard: Option<u32>,
    /// Whether that shard was reached at another address since. Nobody looks for it here before it is lost there.
    has_moved: bool,
    /// The keys of its items, since it was reached.
    keys: Option<Keys>,
    /// Whether the server has said that it was stopped for good, and no other was reached at its address since.
    is_over: bool,
    is_trying: bool,
    /// The reason why the last attempt failed.
    error: Option<Error>,
    next_attempt: Instant,
    back_off: BackOff,
    /// Whether the loss of the server was reported, by this client or by another.
    is_told: bool,
}

/// The addresses of a name.
#[derive(Debug, Default)]
struct LookUp {
    is_running: bool,
    ended: Option<Instant>,
    error: Option<Error>,
}

/// All servers of a client.
#[derive(Debug)]
pub struct Members {
    list: Vec<Member>,
    /// `None` if the servers are listed.
    look_up: Option<LookUp>,
    /// The number of connections so far.
    connections: u32,
    /// Whether a server was chosen before, so that no further call waits for the first attempts to reach the others.
    has_begun: bool,
}

impl Member {
    fn new(endpoint: Endpoint) -> Self {
        Self {
            peer: endpoint.address.text().into(),
            endpoint,
            road: None,
            is_same: false,
            has_answered: false,
            shard: None,
            has_moved: false,
            keys: None,
            is_over: false,
            is_trying: false,
            error: None,
            next_attempt: Instant::now(),
            back_off: BackOff::default(),
            is_told: false,
        }
    }

    /// Whether the member is a server that cannot be reached now.
    fn is_down(&self) -> bool {
        self.road.is_none() && !self.is_same
    }

    /// Whether the next attempt to reach the server is to be made in its time.
    fn is_sought(&self) -> bool {
        self.is_down() && !self.has_moved && !self.is_trying
    }

    /// Returns what is known of the keys of its items, also after the server was lost.
    fn keys(&self) -> Option<Keys> {
        self.road.as_ref().map(|road| Keys::new(road.key_slots(), road.has_foreign_keys())).or(self.keys)
    }

    /// Whether the server has said that it was stopped for good.
    fn has_said_over(&self) -> bool {
        self.is_over || self.road.as_ref().is_some_and(Road::is_over)
    }

    fn is_ipv6(&self) -> bool {
        self.endpoint.address.is_ipv6()
    }
}

impl Members {
    /// Makes the servers of a list.
    pub fn listed(endpoints: Vec<Endpoint>) -> Self {
        Self { list: endpoints.into_iter().map(Member::new).collect(), look_up: None, connections: 0, has_begun: false }
    }

    /// Makes the servers of a name that was not looked up yet.
    pub fn of_name() -> Self {
        Self { list: Vec::new(), look_up: Some(LookUp::default()), connections: 0, has_begun: false }
    }

    /// Adds servers to a list, which are to be tried now. Those that are there already stay.
    pub fn add(&mut self, endpoints: &[Endpoint], now: Instant) {
        for endpoint in endpoints {
            if !self.list.iter().any(|known| known.endpoint == *endpoint) {
                self.list.push(Member { next_attempt: now, ..Member::new(endpoint.clone()) });
            }
        }
    }

    /// Removes lost connections, so that their servers are tried again.
    pub fn note_lost(&mut self, now: Instant) {
        let (mut is_lost, mut lost_shards) = (false, Vec::new());
        for member in &mut self.list {
            if member.road.as_ref().is_some_and(|road| !road.is_open()) {
                is_lost = true;
                member.is_over = member.has_said_over();
                member.keys = member.keys();
                let lost = Error::Unavailable("the connection was lost".into());
                (member.road, member.error) = (None, Some(lost));
                (member.next_attempt, member.back_off) = (now, BackOff::default());
                lost_shards.extend(member.shard.filter(|_| !member.is_over));
            }
        }
        for member in self.list.iter_mut().filter(|member| member.shard.is_some_and(|id| lost_shards.contains(&id))) {
            member.has_moved = false;
        }
        if is_lost {
            // Another member may be the road to the lost server now.
            self.list.iter_mut().for_each(|member| member.is_same = false);
        }
    }

    /// Returns the servers to be tried now. Marks them as being tried.
    pub fn take_due(&mut self, now: Instant) -> Vec<Endpoint> {
        let is_due = |member: &&mut Member| member.is_sought() && member.next_attempt <= now;
        let due = self.list.iter_mut().filter(is_due).map(|member| {
            member.is_trying = true;
            member.endpoint.clone()
        });
        due.collect()
    }

    /// Whether the name is to be looked up now. Marks it as being looked up.
    pub fn take_look_up(&mut self, now: Instant) -> bool {
        let is_complete =
            !self.list.is_empty() && !self.list.iter().any(|member| self.counts(member) && member.is_down());
        let Some(look_up) = &mut self.look_up else { return false };
        let is_due = look_up.ended.is_none_or(|ended| !is_complete && now >= ended + LOOK_UP_PAUSE);
        let begins = is_due && !look_up.is_running;
        look_up.is_running |= begins;
        begins
    }

    /// Notes the result of an attempt to reach a member of the servers at `address`.
    pub fn settle(&mut self, address: &str, peer: &str, result: Result<Road>, now: Instant) {
        let has = |id: &[u8], member: &Member| member.road.as_ref().and_then(Road::server_id) == Some(id);
        let is_same = |road: &Road| {
            let id = road.server_id().filter(|id| !id.is_empty());
            id.is_some_and(|id| self.list.iter().any(|member| has(id, member)))
        };
        let is_same = result.as_ref().is_ok_and(is_same);
        // The name may have got other addresses meanwhile.
        let Some(member) = self.list.iter_mut().find(|member| &*member.peer == peer) else { return };
        member.is_trying = false;
        match result {
            Ok(road) => {
                told::forget(address, peer);
                (member.has_answered, member.is_same, member.is_told) = (true, is_same, false);
                (member.error, member.back_off, member.is_over) = (None, BackOff::default(), false);
                (member.shard, member.has_moved) = (road.shard().map(|shard| shard.id), false);
                let shard = member.shard;
                if !is_same {
                    member.road = Some(road);
                    self.connections += 1;
                }
                let has_left = |other: &&mut Member| shard.is_some() && other.shard == shard && other.is_down();
                self.list.iter_mut().filter(has_left).for_each(|other| other.has_moved = true);
            }
            Err(error) => {
                member.error = Some(error);
                member.next_attempt = now + member.back_off.pause();
            }
        }
    }

    /// Notes the addresses of the name. Connected servers stay. Returns the shards that are gone.
    pub fn settle_look_up(&mut self, found: Result<Vec<Endpoint>>, now: Instant) -> Vec<u32> {
        let before: Vec<_> = self.list.iter().filter_map(|member| member.shard).collect();
        let error = match found {
            Ok(found) => {
                self.list.retain(|member| member.road.is_some() || found.contains(&member.endpoint));
                self.add(&found, now);
                None
            }
            Err(error) => Some(error),
        };
        self.look_up = Some(LookUp { is_running: false, ended: Some(now), error });
        let is_gone = |shard: &u32| !self.list.iter().any(|member| member.shard == Some(*shard));
        before.into_iter().filter(is_gone).collect()
    }

    /// Whether enough attempts have ended to choose among the servers.
    pub fn is_known(&self, wanted: Wanted<'_>) -> bool {
        if self.look_up.as_ref().is_some_and(|look_up| look_up.ended.is_none()) {
            return false;
        }
        let is_tried = |member: &Member| self.has_begun || !member.is_down() || member.error.is_some();
        let is_ended = |member: &Member| is_tried(member) && !member.is_trying;
        match wanted {
            Wanted::Any => self.list.iter().all(is_tried),
            Wanted::Home(home) => {
                self.list.iter().all(|member| if &*member.peer == home { is_ended(member) } else { is_tried(member) })
            }
            Wanted::All => self.list.iter().all(is_ended),
        }
    }

    /// Returns the time for which a call waits for attempts while other servers serve.
    pub fn patience(&self) -> Duration {
        let fails_again = |member: &Member| !member.is_trying || member.back_off != BackOff::default();
        if self.list.iter().all(fails_again) { REPEATED_TIME } else { FIRST_TIME }
    }

    /// Returns the next time at which an attempt is due.
    pub fn next_attempt(&self, now: Instant) -> Option<Instant> {
        let waiting = self.list.iter().filter(|member| member.is_sought());
        let look_up = self.look_up.as_ref().filter(|look_up| !look_up.is_running).and_then(|look_up| look_up.ended);
        let look_up = look_up.map(|ended| ended + LOOK_UP_PAUSE).filter(|&due| due > now);
        waiting.map(|member| member.next_attempt).chain(look_up).min()
    }

    /// Returns the roads to all servers; of those that are down, the reasons. `None` if no server is connected.
    pub fn all(&mut self) -> Option<Vec<(Arc<str>, Result<Road>)>> {
        let all = self.now();
        let is_reached = all.iter().any(|(_, road)| road.is_ok());
        self.has_begun |= is_reached;
        is_reached.then_some(all)
    }

    /// As [`Members::all`], also if no server is connected.
    pub fn now(&self) -> Vec<(Arc<str>, Result<Road>)> {
        self.counted().map(|(member, road)| (member.peer.clone(), road)).collect()
    }

    /// Returns the endpoints of all servers.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        let counted = self.list.iter().filter(|member| !member.is_same && self.counts(member));
        counted.map(|member| member.endpoint.clone()).collect()
    }

    /// Returns what is known of the keys that each server has, for the servers of [`Members::all`].
    pub fn owners(&self) -> Owners {
        Owners::new(self.counted().map(|(member, _)| member.keys()))
    }

    /// Returns the road to a server, if it is connected.
    pub fn road_to(&self, peer: &str) -> Option<Road> {
        self.list.iter().find(|member| &*member.peer == peer)?.road.clone()
    }

    /// Whether all servers have said that they were stopped for good.
    pub fn are_over(&self) -> bool {
        let is_gone = |member: &Member| member.is_same || member.has_moved || member.has_said_over();
        !self.list.is_empty() && self.list.iter().all(is_gone)
    }

    /// Whether no other servers were found at the addresses of servers that were all stopped for good.
    pub fn have_no_successor(&self) -> bool {
        self.are_over() && self.list.iter().all(|member| member.road.is_none() && !member.is_trying)
    }

    /// The servers, each with its road, or with the reason why it is down.
    fn counted(&self) -> impl Iterator<Item = (&Member, Result<Road>)> {
        self.list.iter().filter_map(|member| match &member.road {
            Some(road) => Some((member, Ok(road.clone()))),
            None => Some((member, Err(self.down(member)?))),
        })
    }

    /// Returns the reason why a server is down. `None` if it is not, or does not count.
    fn down(&self, member: &Member) -> Option<Error> {
        let unknown = || Error::Unavailable("the server does not answer".into());
        (member.is_down() && self.counts(member)).then(|| member.error.clone().unwrap_or_else(unknown))
    }

    /// Whether a member is a server, and not where a shard was before. Of a name, the addresses of a family that never answered do not count if those of
    /// the other family did: many hosts have addresses of a family that their network or their servers do not use.
    fn counts(&self, member: &Member) -> bool {
        let is_reached = |other: &Member| other.has_answered && other.is_ipv6() == member.is_ipv6();
        let is_server = self.look_up.is_none() || !self.have_answered() || self.list.iter().any(is_reached);
        is_server && !member.has_moved
    }

    /// Whether a server was ever reached.
    pub fn have_answered(&self) -> bool {
        self.list.iter().any(|member| member.has_answered)
    }

    /// Returns the error of servers that do not speak a protocol of ours, or whose names are not valid. `None` if a
    /// further attempt might succeed.
    pub fn refusal(&self) -> Option<Error> {
        let is_final =
            |member: &Member| member.is_down() && member.error.as_ref().is_some_and(|error| !error.is_transient());
        let all = !self.list.is_empty() && self.list.iter().all(is_final);
        self.list.first().filter(|_| all)?.error.clone()
    }

    /// Says why no server can be reached.
    pub fn reasons(&self) -> String {
        let looked_up = self.look_up.as_ref().and_then(|look_up| look_up.error.as_ref()).map(Error::to_string);
        let down: Vec<_> = self.list.iter().filter_map(|member| Some((&member.peer, self.down(member)?))).collect();
        let texts = match &*down {
            [(_, error)] => vec![error.to_string()],
            _ => down.iter().map(|(peer, error)| format!("{peer}: {error}")).collect(),
        };
        let texts: Vec<_> = looked_up.into_iter().chain(texts).collect();
        if texts.is_empty() { "the server does not answer".into() } else { texts.join("; ") }
    }

    /// Returns a notice for each server that is down and was not reported yet.
    pub fn take_notices(&mut self, address: &str) -> Vec<String> {
        let mut notices = Vec::new();
        for index in 0..self.list.len() {
            let is_new = self.list[index].is_down() && !self.list[index].is_told && self.counts(&self.list[index]);
            let member = &mut self.list[index];
            if let Some(error) = member.error.as_ref().filter(|_| is_new && !member.is_trying) {
                if told::is_news(address, &member.peer) {
                    notices.push(format!(
                        "the server at {} cannot be reached ({error}); the other servers of {address} serve meanwhile",
                        member.peer
                    ));
                }
                member.is_told = true;
            }
        }
        notices
    }

    /// Returns the number of servers. Addresses of the same server count once.
    pub fn len(&self) -> usize {
        self.list.iter().filter(|member| !member.is_same && self.counts(member)).count()
    }

    /// Returns the number of connections so far. `None` if no connection is open.
    pub fn connection(&self) -> Option<u32> {
        let is_open = |member: &Member| member.road.as_ref().is_some_and(Road::is_open);
        self.list.iter().any(is_open).then_some(self.connections)
    }

    /// Returns the name of the roads, for display. `None` before a server was reached.
    pub fn road_name(&self) -> Option<String> {
        if !self.have_answered() {
            return None;
        }
        let open: Vec<&Road> =
            self.list.iter().filter_map(|member| member.road.as_ref()).filter(|road| road.is_open()).collect();
        let (all, reached) = (self.len(), open.len());
        if let ([road], 1) = (&*open, all) {
            return Some(road.name());
        }
        let number = if reached == all { format!("{all} servers") } else { format!("{reached} of {all} servers") };
        let has_unix = open.iter().any(|road| road.transport() == Transport::Unix);
        let has_tcp = !has_unix || open.iter().any(|road| road.transport() == Transport::Tcp);
        let transports = [(has_unix, Transport::Unix), (has_tcp, Transport::Tcp)];
        let transports: Vec<_> = transports.iter().filter(|(has, _)| *has).map(|(_, of)| of.name()).collect();
        let transports = transports.join(", ");
        Some(match open.iter().filter(|road| road.is_of_dm_reverb()).count() {
            0 => format!("{transports} ({number})"),
            some if some == reached => format!("{transports} ({number}, dm-reverb)"),
            some => format!("{transports} ({number}, {some} of dm-reverb)"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_gone_if_its_name_has_none_of_its_addresses_any_more() {
        let at = |addresses: &[&str]| addresses.iter().map(|&address| Endpoint::from(address)).collect::<Vec<_>>();
        let mut members = Members::of_name();
        let now = Instant::now();
        assert!(members.settle_look_up(Ok(at(&["a:1", "b:1", "c:1", "d:1"])), now).is_empty());
        // The fourth was never reached.
        for (member, shard) in members.list.iter_mut().zip([3, 7, 200]) {
            member.shard = Some(shard);
        }
        assert!(members.settle_look_up(Err(Error::Unavailable("the name".into())), now).is_empty());
        assert_eq!(members.settle_look_up(Ok(at(&["a:1", "e:1"])), now), [7, 200]);
        members.list[1].shard = Some(3);
        assert!(members.settle_look_up(Ok(at(&["e:1"])), now).is_empty(), "it has another address");
    }
}
