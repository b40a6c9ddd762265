//! A learner: it samples by its share.

use super::config::RoomConfig;
use super::holder::Holder;
use super::messages::{Counted, MemberId, Publication, Report};
use super::tally::{Incarnation, Tally};
use super::wait::{Wait, WaitReason};
use crate::Result;
use std::sync::Arc;
use std::time::Duration;

/// One learner.
///
/// A draw takes its samples from the share first ([`Learner::take`]), then draws, then tells each shard how many of the
/// samples were chosen there, and passes the answers to [`Learner::counted`]. A learner that does not wait reports
/// every [`PUBLISH_EVERY`](super::config::PUBLISH_EVERY). One that waits reports after each publication that it gets,
/// and after 100 ms without one; nothing else needs to wake it.
#[derive(Debug, Clone)]
pub struct Learner {
    map: Vec<u32>,
    holder: Holder,
    /// Number of samples that were taken and that no shard has confirmed.
    in_flight: u64,
    /// Samples that a shard has confirmed, with its count of samples after them, until a publication contains them.
    confirmed: Vec<(Incarnation, u64, u64)>,
    wants: u64,
}

impl Learner {
    /// Creates a learner that has sampled nothing. `map` has the ids of all shards.
    ///
    /// # Errors
    /// Those of [`RoomConfig::validate`].
    pub fn new(now: Duration, config: RoomConfig, id: u64, map: &[u32]) -> Result<Self> {
        config.validate()?;
        let holder = Holder::new(now, MemberId::Learner(id), config);
        Ok(Self { map: map.to_vec(), holder, in_flight: 0, confirmed: Vec::new(), wants: 0 })
    }

    /// Changes the ids of all shards.
    pub fn set_map(&mut self, map: &[u32]) {
        self.map = map.to_vec();
    }

    /// What this learner knows; goes to each shard with the samples chosen there.
    pub fn tally(&self) -> &Tally {
        &self.holder.tally
    }

    /// Number of samples that may go now.
    pub fn samples_allowed(&self, now: Duration) -> u64 {
        let config = &self.holder.config;
        let Some(publication) = self.holder.usable(now) else { return 0 };
        if publication.sums.items < config.min_items() {
            return 0;
        }
        if config.limiter.min_diff <= -f64::MAX {
            return u64::MAX;
        }
        let share = (publication.sample_room / publication.holders.learners.max(1) as f64).floor() as u64;
        share.saturating_sub(self.own_use())
    }

    /// Takes samples from the share, if that many may go now. Otherwise the learner waits for them from now on.
    #[must_use]
    pub fn take(&mut self, now: Duration, count: u64) -> bool {
        let may_go = self.samples_allowed(now) >= count;
        self.wants = if may_go { 0 } else { count };
        self.in_flight += if may_go { count } else { 0 };
        may_go
    }

    /// A shard has counted `count` of the taken samples.
    pub fn counted(&mut self, count: u64, counted: &Counted) {
        self.holder.tally.merge(&counted.tally);
        self.in_flight = self.in_flight.saturating_sub(count);
        self.confirmed.push((counted.incarnation, counted.tally.of(counted.incarnation).samples, count));
        self.drop_published();
    }

    /// Of the taken samples, `count` will be counted nowhere, as far as this learner can know: the draw failed, or the
    /// shard is missing. The learner must hear that shard before it draws there again.
    pub fn lost(&mut self, count: u64) {
        self.in_flight = self.in_flight.saturating_sub(count);
    }

    /// Takes note of a publication. Returns whether it may end a wait.
    pub fn hear(&mut self, now: Duration, publication: &Arc<Publication>) -> bool {
        let is_believed = self.holder.hear(now, publication);
        self.drop_published();
        is_believed
    }

    /// The report of this moment and the shards that get it.
    pub fn report(&self, now: Duration) -> (Report, Vec<u32>) {
        (self.holder.report(now, self.wants), self.holder.report_to(now, &self.map))
    }

    /// What a draw of `count` samples waits for. `None` if it may go.
    pub fn wait(&self, now: Duration, count: u64) -> Option<Wait> {
        if self.samples_allowed(now) >= count {
            return None;
        }
        let mut wait = self.holder.wait(now, self.own_use());
        if let (WaitReason::Room, Some(publication)) = (wait.reason, self.holder.believed()) {
            let limiter = &self.holder.config.limiter;
            wait.missing_items = self.holder.config.min_items().saturating_sub(publication.sums.items);
            if limiter.min_diff > -f64::MAX {
                let wanted = (count + wait.own_use) as f64 * publication.holders.learners as f64;
                wait.missing = ((wanted - publication.sample_room) / limiter.samples_per_insert).ceil() as u64;
            }
            if wait.missing_items > 0 {
                wait.reason = WaitReason::Items;
            }
        }
        Some(wait)
    }

    fn own_use(&self) -> u64 {
        self.in_flight + self.confirmed.iter().map(|(_, _, count)| count).sum::<u64>()
    }

    fn drop_published(&mut self) {
        if let Some(publication) = self.holder.believed() {
            self.confirmed.retain(|(incarnation, samples, _)| publication.tally.of(*incarnation).samples < *samples);
        }
    }
}
