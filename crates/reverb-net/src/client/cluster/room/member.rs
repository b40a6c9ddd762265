//! What a client knows of the limiter of one table, and whom it is attached to.

use super::super::first::First;
use crate::replay_v1::proto::{self as replay, SumsRequest};
use crate::replay_v1::wire::room_message_to_wire;
use crate::transport::address::Endpoint;
use parking_lot::Mutex;
use reverb_core::published_room::{Learner, RoomConfig, Tally};
use reverb_core::{Error, RateLimiterConfig, Result, fork, random_key};
use reverb_service::{REPEAT, RoomMessage};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, mpsc};

// limit (Connections and calls): time without an insert, a draw, a wait or an open writer after which a client of a cluster
// leaves the limiter of a table | {} | its next call waits for about half a second
/// Time after the last call after which a client leaves a room.
pub const UNUSED_AFTER: Duration = Duration::from_secs(60);
/// Time after which a choice that no shard has confirmed is not expected to be counted any more.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(10);
/// Time for which a home may count learners that have gone.
const COUNT_SETTLES: Duration = Duration::from_secs(1);

/// The limiter of one table, as this client takes part in it.
#[derive(Debug)]
pub struct RoomMember {
    /// The name of the table.
    pub table: String,
    /// The number of the client as a learner.
    pub learner: u64,
    /// A shard of the cluster. Servers of others are passed over.
    pub first: Arc<First>,
    made: Instant,
    generation: u32,
    /// Whether a call has waited for the first answers of all shards.
    pub has_begun: AtomicBool,
    state: Mutex<State>,
    /// Notified when something has changed that somebody may wait for.
    changed: Notify,
    /// Notified when a report is due before its time.
    pub report_due: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The bounds, and the part of this client, once a shard has told the bounds.
    member: Option<(RateLimiterConfig, Learner)>,
    /// Number of learners by the last publication.
    learners: u64,
    shards: BTreeSet<u32>,
    /// The shards that this client is attached to.
    links: BTreeMap<u32, mpsc::Sender<SumsRequest>>,
    endpoints: Vec<Endpoint>,
    /// How far the client has got with each address.
    reached: HashMap<String, Reached>,
    /// Samples that were chosen, with their shards, until these confirm them.
    chosen: Vec<Chosen>,
    uses: usize,
    last_use: Option<Instant>,
    last_draw: Option<Instant>,
    last_report: Option<Instant>,
}

/// A shard, the number of samples that were chosen there, and when.
type Chosen = (u32, u64, Instant);

/// How far a client has got with a shard.
#[derive(Debug, Clone, PartialEq)]
pub enum Reached {
    /// It is connected.
    Connected,
    /// The shard has answered, or has ended the stream since.
    Answered,
    /// The last attempt has failed.
    Failed(Error),
}

/// Notes that a call uses a room, until it is dropped.
#[derive(Debug)]
pub struct RoomUse(Arc<RoomMember>);

impl RoomUse {
    pub(super) fn new(room: Arc<RoomMember>) -> Self {
        room.change(|state| {
            state.uses += 1;
            state.last_use = Some(Instant::now());
        });
        Self(room)
    }

    pub(super) fn room(&self) -> &RoomMember {
        &self.0
    }
}

impl Drop for RoomUse {
    fn drop(&mut self) {
        // A writer's copy in a forked child drops this, and the lock may be held there for ever.
        if self.0.generation != fork::generation() {
            return;
        }
        let mut state = self.0.state.lock();
        state.uses -= 1;
        state.last_use = Some(Instant::now());
    }
}

impl State {
    fn config(&self, limiter: &RateLimiterConfig, batch: u64) -> RoomConfig {
        let (shards, learners) = (self.shards.len().max(1) as u64, self.learners.max(1));
        RoomConfig { limiter: limiter.clone(), shards, learners, batch }
    }

    fn map(&self) -> Vec<u32> {
        self.shards.iter().copied().collect()
    }

    fn is_used(&self) -> bool {
        self.uses > 0 || self.last_use.is_some_and(|last| last.elapsed() < UNUSED_AFTER)
    }

    fn forget_chosen(&mut self, is_lost: impl Fn(&Chosen) -> bool) {
        let Some((_, learner)) = &mut self.member else { return };
        self.chosen.retain(|chosen| {
            let is_lost = is_lost(chosen);
            if is_lost {
                learner.lost(chosen.1);
            }
            !is_lost
        });
    }
}

/// Removes one choice of so many samples at a shard. Returns their number, or 0 if there is none.
fn remove_chosen(chosen: &mut Vec<Chosen>, shard: u32, count: u64) -> u64 {
    let place = chosen.iter().position(|known| (known.0, known.1) == (shard, count));
    place.map_or(0, |place| chosen.remove(place).1)
}

impl RoomMember {
    pub fn new(table: &str, first: Arc<First>) -> Self {
        Self {
            table: table.to_owned(),
            learner: random_key(),
            first,
            made: Instant::now(),
            generation: fork::generation(),
            has_begun: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Notify::new(),
            report_due: Notify::new(),
        }
    }

    fn now(&self) -> Duration {
        self.made.elapsed()
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.state.lock());
        self.changed.notify_waiters();
        changed
    }

    /// Waits until something has changed after `look` has found nothing.
    async fn until<T>(&self, look: impl Fn(&mut State) -> Option<T>) -> T {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let found = look(&mut self.state.lock());
            if let Some(found) = found {
                return found;
            }
            changed.await;
        }
    }

    /// Sets the endpoints of all shards.
    pub fn set_endpoints(&self, endpoints: Vec<Endpoint>) {
        let is_new = {
            let mut state = self.state.lock();
            let texts = |endpoints: &[Endpoint]| -> Vec<String> {
                endpoints.iter().map(|endpoint| endpoint.address.text().to_owned()).collect()
            };
            let new = texts(&endpoints);
            let is_new = texts(&state.endpoints) != new;
            if is_new {
                state.reached.retain(|address, _| new.contains(address));
                state.endpoints = endpoints;
            }
            is_new
        };
        if is_new {
            self.changed.notify_waiters();
        }
    }

    /// Waits until the endpoints are others than those at `known`, and returns all.
    pub async fn endpoints_beside(&self, known: &BTreeSet<String>) -> Vec<Endpoint> {
        self.until(|state| {
            let texts: BTreeSet<_> =
                state.endpoints.iter().map(|endpoint| endpoint.address.text().to_owned()).collect();
            (texts != *known).then(|| state.endpoints.clone())
        })
        .await
    }

    /// Waits until a call uses the room.
    pub async fn used(&self) {
        self.until(|state| state.is_used().then_some(())).await;
    }

    /// Waits until no call has used the room for long.
    pub async fn unused(&self) {
        while self.state.lock().is_used() {
            tokio::time::sleep(UNUSED_AFTER / 10).await;
        }
    }

    /// Notes how far the client has got with an address, and the id of the shard there.
    pub fn note(&self, address: &str, shard: Option<u32>, reached: Reached) {
        self.change(|state| {
            if state.endpoints.iter().any(|endpoint| endpoint.address.text() == address) {
                state.reached.insert(address.to_owned(), reached);
            }
            if shard.is_some_and(|shard| state.shards.insert(shard)) {
                let map = state.map();
                state.member.iter_mut().for_each(|(_, learner)| learner.set_map(&map));
                for link in state.links.values() {
                    let _full = link.try_send(SumsRequest { shards: map.clone(), ..SumsRequest::default() });
                }
            }
        });
    }

    /// Waits until each address was reached, or an attempt has failed, with `is_answered` until each has answered.
    pub async fn all_reached(&self, is_answered: bool) {
        self.until(|state| {
            let is_known = |endpoint: &Endpoint| match state.reached.get(endpoint.address.text()) {
                None => false,
                Some(Reached::Connected) => !is_answered,
                Some(Reached::Answered | Reached::Failed(_)) => true,
            };
            (!state.endpoints.is_empty() && state.endpoints.iter().all(is_known)).then_some(())
        })
        .await;
    }

    /// The error with which a shard refuses the limiter.
    pub fn refusal(&self) -> Option<Error> {
        let state = self.state.lock();
        let mut errors = state.reached.values().filter_map(|reached| match reached {
            Reached::Failed(error @ Error::InvalidArgument(_)) => Some(error.clone()),
            _ => None,
        });
        errors.next()
    }

    /// Whether a shard keeps the ratio together with others.
    pub fn keeps_ratio(&self) -> bool {
        self.state.lock().member.is_some()
    }

    /// The first message of a stream.
    pub fn first_request(&self) -> SumsRequest {
        let shards = self.state.lock().map();
        SumsRequest { table: self.table.clone(), learner: self.learner, shards, ..SumsRequest::default() }
    }

    /// Notes that the client is attached to a shard, which has told the bounds.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the bounds are too narrow for so many shards.
    pub fn attached(&self, shard: u32, limiter: RateLimiterConfig, link: mpsc::Sender<SumsRequest>) -> Result<()> {
        self.change(|state| {
            if state.member.as_ref().is_none_or(|(known, _)| *known != limiter) {
                let learner = Learner::new(self.now(), state.config(&limiter, 1), self.learner, &state.map())?;
                state.member = Some((limiter, learner));
                state.chosen.clear();
            }
            // Shards that were found since its first request.
            let _full = link.try_send(SumsRequest { shards: state.map(), ..SumsRequest::default() });
            state.links.insert(shard, link);
            Ok(())
        })?;
        self.report_due.notify_one();
        Ok(())
    }

    /// Notes that a shard keeps no ratio.
    pub fn has_no_ratio(&self) {
        self.change(|state| {
            if state.links.is_empty() {
                state.member = None;
                state.chosen.clear();
            }
        });
    }

    /// Notes that the stream to a shard has ended.
    pub fn detached(&self, shard: u32) {
        self.change(|state| {
            state.links.remove(&shard);
            state.forget_chosen(|(of, ..)| *of == shard);
        });
    }

    /// Sends a message to shards that the client is attached to.
    pub fn send(&self, to: &[u32], message: &replay::RoomMessage) {
        let state = self.state.lock();
        for link in to.iter().filter_map(|shard| state.links.get(shard)) {
            // A shard that does not read loses messages.
            let _full = link.try_send(SumsRequest { message: Some(message.clone()), ..SumsRequest::default() });
        }
    }

    /// Takes note of a message for this client.
    pub fn hear(&self, from: u32, message: &RoomMessage) {
        let now = self.now();
        let is_due = self.change(|state| {
            let Some((_, learner)) = &mut state.member else { return false };
            match message {
                RoomMessage::Published(publication) => {
                    learner.hear(now, publication);
                    state.learners = publication.holders.learners;
                }
                RoomMessage::Counted(count, counted) => {
                    let count = remove_chosen(&mut state.chosen, from, *count);
                    learner.counted(count, counted);
                }
                RoomMessage::Reported(_) => {}
            }
            let is_due = state.last_report.is_none_or(|last| last.elapsed() >= REPEAT / 2);
            is_due || learner.report(now).0.wants > 0
        });
        if is_due {
            self.report_due.notify_one();
        }
    }

    /// The report of this moment and the shards that get it. `None` if this client has not drawn for long.
    pub fn report(&self) -> Option<(Vec<u32>, replay::RoomMessage)> {
        let mut state = self.state.lock();
        state.last_draw.filter(|_| state.is_used())?;
        let (report, to) = state.member.as_ref().map(|(_, learner)| learner.report(self.now()))?;
        state.last_report = Some(Instant::now());
        Some((to, room_message_to_wire(&RoomMessage::Reported(report))))
    }

    /// Takes up to `at_most` samples, at least `at_least`. `None` if so many may not go now: the client then waits for them.
    pub fn take(&self, at_least: u64, at_most: u64) -> Option<u64> {
        let now = self.now();
        let taken = {
            let mut state = self.state.lock();
            state.forget_chosen(|(.., at)| at.elapsed() > CONFIRMED_WITHIN);
            state.last_draw = Some(Instant::now());
            let Some((_, learner)) = &mut state.member else { return Some(at_most) };
            let count = learner.samples_allowed(now).clamp(at_least, at_most);
            learner.take(now, count).then_some(count)
        };
        if taken.is_none() {
            self.report_due.notify_one();
        }
        taken
    }

    /// Checks that the bounds are wide enough for a batch; after a wait, also for all learners.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] with the figures.
    pub fn check(&self, batch: u64, waited: Duration) -> Result<()> {
        let state = self.state.lock();
        let Some((limiter, _)) = &state.member else { return Ok(()) };
        let config = state.config(limiter, batch);
        let learners = if waited < COUNT_SETTLES { 1 } else { config.learners };
        RoomConfig { learners, ..config }.validate().map_err(|error| match error {
            Error::InvalidArgument(text) => Error::invalid(format!("table `{}` of a cluster: {text}", self.table)),
            error => error,
        })
    }

    /// Completes when something has changed after the future was enabled.
    pub fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Says what a draw waits for, as the end of a sentence.
    pub fn waits_for(&self, count: u64) -> String {
        let state = self.state.lock();
        let wait = state.member.as_ref().and_then(|(_, learner)| learner.wait(self.now(), count));
        wait.map_or_else(|| "it is about to go".into(), |wait| wait.of_sample(count))
    }

    /// Notes that samples were chosen at a shard.
    pub fn choose(&self, shard: u32, count: u64) {
        self.state.lock().chosen.push((shard, count, Instant::now()));
    }

    /// Gives samples up that were chosen at a shard which has refused the choice, and so has not counted them.
    pub fn lose(&self, shard: u32, count: u64) {
        self.change(|state| {
            let count = remove_chosen(&mut state.chosen, shard, count);
            state.member.iter_mut().for_each(|(_, learner)| learner.lost(count));
        });
    }

    /// Gives samples up that were taken and not chosen anywhere.
    pub fn give_up(&self, count: u64) {
        self.change(|state| state.member.iter_mut().for_each(|(_, learner)| learner.lost(count)));
    }

    /// What the client knows.
    pub fn tally(&self) -> Tally {
        self.state.lock().member.as_ref().map_or_else(Tally::default, |(_, learner)| learner.tally().clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reverb_core::published_room::{Generation, Holders, Incarnation, MemberId, Publication, Sums};

    fn limiter() -> RateLimiterConfig {
        RateLimiterConfig { samples_per_insert: 1.0, min_size_to_sample: 1, min_diff: -20.0, max_diff: 20.0 }
    }

    fn room(addresses: &[&str]) -> RoomMember {
        let room = RoomMember::new("table", Arc::default());
        room.set_endpoints(addresses.iter().map(|address| Endpoint::from(*address)).collect());
        room
    }

    #[test]
    fn a_shard_that_is_found_while_a_stream_opens_is_named_on_it() {
        let room = room(&["ipv4:127.0.0.1:1", "ipv4:127.0.0.1:2"]);
        room.note("ipv4:127.0.0.1:1", Some(0), Reached::Connected);
        assert_eq!(room.first_request().shards, [0]);
        room.note("ipv4:127.0.0.1:2", Some(1), Reached::Connected);
        let (link, mut requests) = mpsc::channel(8);
        room.attached(0, limiter(), link).unwrap();
        assert_eq!(requests.try_recv().unwrap().shards, [0, 1]);
    }

    #[test]
    fn a_refusal_goes_with_the_address_of_its_shard() {
        let addresses = ["ipv4:127.0.0.1:1", "ipv4:127.0.0.1:2"];
        let room = room(&addresses);
        let refuse = || room.note(addresses[1], Some(1), Reached::Failed(Error::invalid("too narrow")));
        refuse();
        assert_eq!(room.refusal(), Some(Error::invalid("too narrow")));
        room.set_endpoints(vec![Endpoint::from(addresses[0])]);
        assert_eq!(room.refusal(), None);
        // Its task may end a moment later.
        refuse();
        assert_eq!(room.refusal(), None);
    }

    #[test]
    fn samples_of_a_choice_that_was_not_counted_may_be_taken_again_at_once() {
        let room = room(&["ipv4:127.0.0.1:1"]);
        let (link, _requests) = mpsc::channel(8);
        room.attached(0, limiter(), link).unwrap();
        let publication = Publication {
            generation: Generation { number: 1, home: Incarnation { shard: 0, number: 1 } },
            sequence: 1,
            tally: Tally::default(),
            sums: Sums { inserts: 1, samples: 0, items: 1 },
            insert_room: 20.0,
            sample_room: 20.0,
            refill_room: 0,
            holders: Holders { shards: 1, learners: 1 },
            listed: [MemberId::Learner(room.learner)].into(),
            silent: Vec::new(),
        };
        room.hear(0, &RoomMessage::Published(Arc::new(publication)));
        assert_eq!(room.take(20, 20), Some(20));
        room.choose(0, 12);
        room.choose(0, 8);
        room.lose(0, 8);
        assert_eq!(room.take(1, 20), Some(8));
        room.lose(0, 8);
        assert_eq!(room.take(1, 20), None, "the choice of 12 is not lost");
    }
}
