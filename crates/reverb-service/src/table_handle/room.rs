//! A table's part in the rate limiter of a cluster over all its shards: `published_room` of the core, with the counts and
//! the lock of a table, and the clients that carry its messages.
//!
//! Shards do not know each other's addresses. So the clients that use the table carry what one shard says to another: the
//! two that have been attached the longest, whatever the number of clients. While no client is attached, nothing is sent,
//! and inserts stand still.

use super::counts::StartCounts;
use reverb_core::published_room::{
    Counted, Counts, Incarnation, LIFE, MemberId, PUBLISH_EVERY, Publication, Report, RoomConfig, Shard, Tally,
};
use reverb_core::{Error, LimiterKind, RateLimiterConfig, Result, Table};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Number of clients that carry the messages of a shard to the others: a second one for when the first is lost.
const CARRIERS: usize = 2;
/// Time after which a publication is sent again although it says nothing new: soon enough for it to live on. A member that
/// has nothing new to say reports when it hears one.
pub const REPEAT: Duration = Duration::from_millis(80);
const _: () = assert!(REPEAT.as_millis() + PUBLISH_EVERY.as_millis() < LIFE.as_millis());
/// Number of messages that wait for a client. Further ones are lost, which the others make up for.
const QUEUE: usize = 256;

/// What members of a room tell each other.
#[derive(Debug, Clone, PartialEq)]
pub enum RoomMessage {
    /// The home publishes.
    Published(Arc<Publication>),
    /// A member reports.
    Reported(Report),
    /// A shard has counted so many samples of the client that it sends this to.
    Counted(u64, Counted),
}

/// A message that a shard gives to a client.
#[derive(Debug, Clone, PartialEq)]
pub struct RoomDelivery {
    /// The shards that the client carries it to. If there are none, it is for the client itself.
    pub to: Vec<u32>,
    /// The message.
    pub message: RoomMessage,
}

/// What a client gets from a room. It ends when the client has to attach itself again.
pub type RoomDeliveries = mpsc::Receiver<RoomDelivery>;

/// The total number of inserts up to which inserts may go.
#[derive(Debug, Clone, Copy)]
pub struct Gate(Option<u64>);

impl Gate {
    /// The table's own limiter decides.
    pub const LOCAL: Self = Self(None);

    /// Whether an insert may go.
    #[inline]
    pub fn is_open(self, table: &Table) -> bool {
        match self.0 {
            None => table.can_insert(1),
            Some(total) => table.totals().0 < total,
        }
    }
}

/// The state of a table that is one of several.
#[derive(Debug)]
pub struct Room {
    /// The bounds.
    pub limiter: RateLimiterConfig,
    shard: Shard,
    /// The id of the shard, and the number of its start.
    pub incarnation: Incarnation,
    made: Instant,
    /// The ids of all shards that a client has named.
    pub map: BTreeSet<u32>,
    /// The clients, the oldest first.
    members: Vec<Attached>,
    /// Whether a task calls [`Room::tick`].
    is_driven: bool,
    last_publication: Option<(Arc<Publication>, Instant)>,
    last_report: Option<(Report, Instant)>,
}

#[derive(Debug)]
struct Attached {
    /// Its number among all clients that this process has attached.
    id: u64,
    learner: u64,
    /// Number of samples that it waits for.
    wants: u64,
    deliveries: mpsc::Sender<RoomDelivery>,
}

impl Room {
    /// Makes the room of a start of a table, whose first it is.
    ///
    /// # Errors
    /// Those of [`Shard::new`].
    pub fn new(table: &Table, id: u32, map: BTreeSet<u32>, counts: &mut StartCounts) -> Result<Self> {
        let limiter = table.config().rate_limiter.clone();
        let config = RoomConfig { limiter: limiter.clone(), shards: map.len() as u64, learners: 1, batch: 1 };
        let incarnation = Incarnation { shard: id, number: counts.number };
        let ids: Vec<_> = map.iter().copied().collect();
        let counted = counts.count(table);
        let shard = Shard::new(Duration::ZERO, config, incarnation, &ids, counts.known.clone(), counted.restored)?;
        let mut room = Self {
            limiter,
            shard,
            incarnation,
            made: Instant::now(),
            map,
            members: Vec::new(),
            is_driven: false,
            last_publication: None,
            last_report: None,
        };
        room.count(counted);
        Ok(room)
    }

    /// Whether this is still the room of a table with these options.
    pub fn is_of(&self, table: &Table) -> bool {
        self.limiter == table.config().rate_limiter && table.limiter_view().kind() == LimiterKind::Ratio
    }

    fn now(&self) -> Duration {
        self.made.elapsed()
    }

    /// Takes over what its start has counted.
    fn count(&mut self, Counts { inserts, deletes, samples, .. }: Counts) {
        let before = self.shard.counts();
        self.shard.inserted(inserts - before.inserts);
        self.shard.deleted(deletes - before.deletes);
        if samples > before.samples {
            self.shard.sampled(samples - before.samples, &Tally::default());
        }
    }

    /// Says how many inserts may go now.
    pub fn gate(&mut self, table: &Table, counts: Counts) -> Gate {
        self.count(counts);
        Gate(Some(table.totals().0.saturating_add(self.shard.inserts_allowed(self.now()))))
    }

    /// Says what an insert of `items` items waits for, as the end of a sentence.
    pub fn insert_waits_for(&self, items: u64) -> String {
        let wait = self.shard.wait(self.now(), items).map(|wait| wait.of_insert(items));
        let wait = wait.unwrap_or_else(|| "it is about to go".into());
        match self.members.is_empty() {
            true => format!("no client of the cluster that uses the table is connected to this shard; {wait}"),
            false => wait,
        }
    }

    /// What is known of the counts of all shards.
    pub fn tally(&mut self, counts: Counts) -> Tally {
        self.count(counts);
        self.shard.tally().clone()
    }

    /// Attaches a client. Returns what it gets, and whether a task has to call [`Room::tick`] from now on.
    pub fn attach(&mut self, id: u64, learner: u64) -> (RoomDeliveries, bool) {
        let (deliveries, receiver) = mpsc::channel(QUEUE);
        self.members.push(Attached { id, learner, wants: 0, deliveries });
        (receiver, !std::mem::replace(&mut self.is_driven, true))
    }

    /// Lets a client go.
    pub fn leave(&mut self, id: u64) {
        self.members.retain(|member| member.id != id);
    }

    /// Takes over ids of shards.
    ///
    /// # Errors
    /// Those of [`RoomConfig::validate`] for so many shards.
    pub fn name_shards(&mut self, ids: &[u32]) -> Result<()> {
        if ids.iter().all(|id| self.map.contains(id)) {
            return Ok(());
        }
        let map: BTreeSet<_> = self.map.iter().chain(ids).copied().collect();
        let limiter = self.limiter.clone();
        RoomConfig { limiter, shards: map.len() as u64, learners: 1, batch: 1 }.validate()?;
        self.shard.set_map(&map.iter().copied().collect::<Vec<_>>());
        self.map = map;
        Ok(())
    }

    /// Publishes and reports, as is due every [`PUBLISH_EVERY`]. Returns whether a client is attached; otherwise the last
    /// tick was made.
    pub fn tick(&mut self, counts: Counts) -> bool {
        self.members.retain(|member| !member.deliveries.is_closed());
        self.count(counts);
        let now = self.now();
        if let Some((publication, recipients)) = self.shard.publish(now) {
            self.send_publication(&publication, recipients);
        }
        self.report(2 * REPEAT);
        self.is_driven = !self.members.is_empty();
        self.is_driven
    }

    fn send_publication(&mut self, publication: &Arc<Publication>, recipients: Vec<MemberId>) {
        let is_news = |(last, sent): &(Arc<Publication>, Instant)| {
            // A publication with the same counts has the same sums and rooms.
            let same = |of: &Publication| (of.generation, of.holders);
            same(last) != same(publication)
                || last.tally != publication.tally
                || last.listed != publication.listed
                || last.silent != publication.silent
                || sent.elapsed() >= REPEAT
        };
        let is_news = self.last_publication.as_ref().is_none_or(is_news);
        if is_news {
            self.last_publication = Some((publication.clone(), Instant::now()));
        }
        let message = RoomMessage::Published(publication.clone());
        let mut shards = Vec::new();
        for recipient in recipients {
            match recipient {
                MemberId::Shard(id) => shards.push(id),
                MemberId::Learner(learner) => {
                    let member = self.members.iter().find(|member| member.learner == learner);
                    // One that waits is a recipient because this may end its wait.
                    if let Some(member) = member.filter(|member| is_news || member.wants > 0) {
                        let _full = member.deliveries.try_send(RoomDelivery::to_client(message.clone()));
                    }
                }
            }
        }
        if is_news && !shards.is_empty() {
            self.carry(&shards, &message);
        }
    }

    /// Reports what is new, and what is not after this time.
    fn report(&mut self, repeat: Duration) {
        let (report, to) = self.shard.report(self.now());
        let is_due = |(last, sent): &(Report, Instant)| *last != report || sent.elapsed() >= repeat;
        if !to.is_empty() && self.last_report.as_ref().is_none_or(is_due) {
            self.carry(&to, &RoomMessage::Reported(report.clone()));
            self.last_report = Some((report, Instant::now()));
        }
    }

    fn carry(&self, to: &[u32], message: &RoomMessage) {
        for carrier in self.members.iter().take(CARRIERS) {
            let _full = carrier.deliveries.try_send(RoomDelivery { to: to.to_vec(), message: message.clone() });
        }
    }

    /// Takes note of a message that a client has sent or carried.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the client may not send it, [`Error::ResourceExhausted`] if it tells of too many starts
    /// of shards.
    pub fn hear(&mut self, member: u64, message: &RoomMessage) -> Result<()> {
        let now = self.now();
        let Some(member) = self.members.iter_mut().find(|attached| attached.id == member) else { return Ok(()) };
        match message {
            RoomMessage::Published(publication) => {
                self.shard.check(&publication.tally, Some(publication.generation))?;
                if self.shard.hear(now, publication) {
                    // All shards answer at the same time then, which costs a carrier less.
                    self.report(REPEAT / 2);
                }
            }
            RoomMessage::Reported(report) => {
                match report.from {
                    MemberId::Learner(learner) if learner == member.learner => member.wants = report.wants,
                    // Another client knows of it already.
                    MemberId::Shard(shard) if !self.map.contains(&shard) => return Ok(()),
                    MemberId::Shard(shard) if shard != self.incarnation.shard => {}
                    from => {
                        return Err(Error::invalid(format!(
                            "expected a report of the client or of another shard, got one of {from:?}"
                        )));
                    }
                }
                self.shard.check(&report.tally, report.newest)?;
                self.shard.hear_report(now, report);
            }
            RoomMessage::Counted(..) => {
                return Err(Error::invalid("expected a publication or a report, got what a shard tells a client"));
            }
        }
        Ok(())
    }

    /// Takes note of what a learner knows.
    ///
    /// # Errors
    /// As [`Room::hear`].
    pub fn hear_tally(&mut self, tally: &Tally) -> Result<()> {
        self.shard.check(tally, None)?;
        self.shard.sampled(0, tally);
        Ok(())
    }

    /// Tells a learner that samples of it were counted.
    pub fn tell_counted(&mut self, counts: Counts, learner: u64, count: u64) {
        let Some(place) = self.members.iter().position(|member| member.learner == learner) else { return };
        self.count(counts);
        let counted = self.shard.sampled(0, &Tally::default());
        let delivery = RoomDelivery::to_client(RoomMessage::Counted(count, counted));
        if self.members[place].deliveries.try_send(delivery).is_err() {
            // It has to know that it has missed this.
            self.members.remove(place);
        }
    }
}

impl RoomDelivery {
    fn to_client(message: RoomMessage) -> Self {
        Self { to: Vec::new(), message }
    }
}
