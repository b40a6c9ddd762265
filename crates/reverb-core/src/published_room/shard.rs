//! A shard: it inserts by its share, counts samples, and may be the home.

use super::config::{MAX_JUMP, RoomConfig, SILENT_AFTER, STAGGER, TAKEOVER_AFTER};
use super::holder::Holder;
use super::home::Home;
use super::messages::{Counted, Generation, MemberId, Publication, Report};
use super::tally::{Counts, Incarnation, Tally};
use super::wait::{Wait, WaitReason};
use crate::{Error, Result};
use std::sync::Arc;
use std::time::Duration;

/// One incarnation of a shard.
///
/// The caller calls [`Shard::publish`] and [`Shard::report`] every [`PUBLISH_EVERY`](super::config::PUBLISH_EVERY), and
/// asks [`Shard::inserts_allowed`] again after each call of [`Shard::hear`] and [`Shard::publish`] that returned
/// something.
#[derive(Debug, Clone)]
pub struct Shard {
    incarnation: Incarnation,
    map: Vec<u32>,
    holder: Holder,
    home: Option<Home>,
    /// When another member last reported to this one.
    asked: Option<Duration>,
}

impl Shard {
    /// Starts an incarnation. `map` has the ids of all shards; `tally` and `items` come from a checkpoint, or are
    /// empty.
    ///
    /// # Errors
    /// Those of [`RoomConfig::validate`]; [`Error::ResourceExhausted`] if the tally has too many incarnations.
    pub fn new(
        now: Duration,
        config: RoomConfig,
        incarnation: Incarnation,
        map: &[u32],
        tally: Tally,
        items: u64,
    ) -> Result<Self> {
        config.validate()?;
        let own = Counts { restored: items, ..Counts::default() };
        tally.check_room_for(&Tally::from_iter([(incarnation, own)]))?;
        let mut holder = Holder::new(now, MemberId::Shard(incarnation.shard), config);
        holder.own = Some(incarnation);
        holder.learn(&tally);
        *holder.tally.of_mut(incarnation) = own;
        let mut shard = Self { incarnation, map: Vec::new(), holder, home: None, asked: None };
        shard.set_map(map);
        Ok(shard)
    }

    /// Changes the ids of all shards. Counts of a removed shard stay in the sums; its items do not.
    pub fn set_map(&mut self, map: &[u32]) {
        self.map = map.to_vec();
        self.map.sort_unstable();
    }

    /// What this shard knows; a checkpoint has to keep it.
    pub fn tally(&self) -> &Tally {
        &self.holder.tally
    }

    /// What this incarnation has counted.
    pub fn counts(&self) -> Counts {
        self.holder.tally.of(self.incarnation)
    }

    /// The generation in which this shard is the home.
    pub fn home(&self) -> Option<Generation> {
        self.home.as_ref().map(|home| home.generation)
    }

    /// Checks what another member says, before this shard hears it.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if no home can have got that far; [`Error::ResourceExhausted`] if the tally would have too
    /// many incarnations then.
    pub fn check(&self, tally: &Tally, generation: Option<Generation>) -> Result<()> {
        let greatest = self.holder.newest.map_or(0, |newest| newest.number).saturating_add(MAX_JUMP);
        if let Some(Generation { number, .. }) = generation.filter(|generation| generation.number > greatest) {
            return Err(Error::invalid(format!("expected the number of a generation up to {greatest}, got {number}")));
        }
        self.holder.tally.check_room_for(tally)
    }

    /// Number of inserts that may go now.
    pub fn inserts_allowed(&self, now: Duration) -> u64 {
        let limiter = &self.holder.config.limiter;
        if limiter.max_diff >= f64::MAX {
            return u64::MAX;
        }
        let Some(publication) = self.holder.usable(now) else { return 0 };
        let holders = publication.holders.shards.max(1);
        let by_ratio = (publication.insert_room / holders as f64 / limiter.samples_per_insert).floor() as u64;
        // Rounded up: where the last item before `min_size_to_sample` is missing, any shard may be the one that has it.
        by_ratio.max(publication.refill_room.div_ceil(holders)).saturating_sub(self.own_use())
    }

    /// Counts inserts. The caller has asked [`Shard::inserts_allowed`].
    pub fn inserted(&mut self, count: u64) {
        self.holder.tally.of_mut(self.incarnation).inserts += count;
    }

    /// Counts removed items.
    pub fn deleted(&mut self, count: u64) {
        self.holder.tally.of_mut(self.incarnation).deletes += count;
    }

    /// Counts samples that a learner has chosen here; `tally` is what the learner knows. The answer goes to the learner.
    pub fn sampled(&mut self, count: u64, tally: &Tally) -> Counted {
        self.holder.learn(tally);
        self.holder.tally.of_mut(self.incarnation).samples += count;
        Counted { incarnation: self.incarnation, tally: self.holder.tally.clone() }
    }

    /// Takes note of a publication of another shard. Returns whether more may go than before.
    pub fn hear(&mut self, now: Duration, publication: &Arc<Publication>) -> bool {
        if self.home().is_some_and(|own| own < publication.generation) {
            self.home = None;
        }
        self.holder.hear(now, publication)
    }

    /// Takes note of a report.
    pub fn hear_report(&mut self, now: Duration, report: &Report) {
        self.holder.learn(&report.tally);
        self.asked = Some(now);
        let is_outdated = self.home.as_ref().is_some_and(|home| home.is_outdated_by(report));
        // What is followed elsewhere is no reason to doubt the home that is followed here.
        if !report.has_home {
            self.holder.newest = self.holder.newest.max(report.newest);
        }
        if is_outdated {
            self.become_home(now);
        }
        if let Some(home) = self.home.as_mut().filter(|home| home.is_followed_by(report)) {
            home.hear(now, report.from, report.wants);
        }
    }

    /// The publication of this moment and who gets it, if this shard is the home. Becomes the home if there is none,
    /// and gives up being it if nobody is heard.
    pub fn publish(&mut self, now: Duration) -> Option<(Arc<Publication>, Vec<MemberId>)> {
        let has_others = self.map.len() > 1;
        if self.home.as_ref().is_some_and(|home| has_others && home.is_deaf(now)) {
            self.home = None;
        } else if self.home.is_none() && self.may_take_over(now) {
            self.become_home(now);
        }
        let home = self.home.as_mut()?;
        let publication = Arc::new(home.publish(now, &self.holder.config, &self.holder.tally, &self.map));
        self.holder.hear(now, &publication);
        let recipients = home.recipients(&publication, &self.holder.config, &self.map);
        Some((publication, recipients))
    }

    /// The report of this moment and the shards that get it.
    pub fn report(&self, now: Duration) -> (Report, Vec<u32>) {
        (self.holder.report(now, 0), self.holder.report_to(now, &self.map))
    }

    /// What an insert of `count` items waits for. `None` if it may go.
    pub fn wait(&self, now: Duration, count: u64) -> Option<Wait> {
        if self.inserts_allowed(now) >= count {
            return None;
        }
        let mut wait = self.holder.wait(now, self.own_use());
        if let (WaitReason::Room, Some(publication)) = (wait.reason, self.holder.believed()) {
            let wanted = (count + wait.own_use) as f64 * self.holder.config.limiter.samples_per_insert;
            let lacks = wanted * publication.holders.shards as f64 - publication.insert_room;
            wait.missing = lacks.ceil() as u64;
        }
        Some(wait)
    }

    fn own_use(&self) -> u64 {
        let published = self.holder.believed().map_or(0, |publication| publication.tally.of(self.incarnation).inserts);
        self.counts().inserts.saturating_sub(published)
    }

    /// Without a home for a time that is longer for greater ids, and asked by others, or alone by the map. Who hears
    /// nobody must not take over: all would follow one who cannot count.
    fn may_take_over(&self, now: Duration) -> bool {
        let rank = self.map.iter().filter(|shard| **shard < self.incarnation.shard).count() as u32;
        let is_asked = self.asked.is_some_and(|asked| now.saturating_sub(asked) < SILENT_AFTER);
        (is_asked || self.map.len() <= 1)
            && now.saturating_sub(self.holder.followed()) >= TAKEOVER_AFTER + STAGGER * rank
    }

    fn become_home(&mut self, now: Duration) {
        let number = self.holder.newest.map_or(0, |newest| newest.number) + 1;
        let generation = Generation { number, home: self.incarnation };
        self.home = Some(Home::new(now, generation));
        self.holder.newest = Some(generation);
    }
}
