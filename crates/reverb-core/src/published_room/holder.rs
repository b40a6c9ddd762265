//! What every member knows of the room: what it has heard, whom it follows, and which share it has.

use super::config::{LIFE, RoomConfig};
use super::messages::{Generation, MemberId, Publication, Report};
use super::tally::{Incarnation, Tally};
use super::wait::{Wait, WaitReason};
use std::sync::Arc;
use std::time::Duration;

/// The part that shards and learners share.
#[derive(Debug, Clone)]
pub(super) struct Holder {
    pub me: MemberId,
    /// What this member counts itself.
    pub own: Option<Incarnation>,
    pub config: RoomConfig,
    pub tally: Tally,
    /// The newest generation seen anywhere, also in reports of others.
    pub newest: Option<Generation>,
    started: Duration,
    believed: Option<(Arc<Publication>, Duration)>,
}

impl Holder {
    pub fn new(now: Duration, me: MemberId, config: RoomConfig) -> Self {
        Self { me, own: None, config, tally: Tally::default(), newest: None, started: now, believed: None }
    }

    /// Takes over what another member knows, but for what only this one can: its own counts, and that none of its starts
    /// is later.
    pub fn learn(&mut self, tally: &Tally) {
        let own = self.own;
        let is_own = |of: &Incarnation| own.is_some_and(|own| of.shard == own.shard && of.number >= own.number);
        self.tally.merge_if(tally, |of| !is_own(of));
    }

    /// Takes note of a publication. Returns whether it is now the one to go by.
    pub fn hear(&mut self, now: Duration, publication: &Arc<Publication>) -> bool {
        self.learn(&publication.tally);
        let order = |publication: &Publication| (publication.generation, publication.sequence);
        let is_newer = self.believed.as_ref().is_none_or(|(believed, _)| order(publication) > order(believed));
        if Some(publication.generation) < self.newest || !is_newer {
            return false;
        }
        self.newest = Some(publication.generation);
        self.believed = Some((Arc::clone(publication), now));
        true
    }

    /// The publication that this member may go by now.
    pub fn live(&self, now: Duration) -> Option<&Publication> {
        let (publication, heard) = self.believed.as_ref()?;
        (now.saturating_sub(*heard) < LIFE).then_some(publication)
    }

    /// The same, if the home knows this member.
    pub fn usable(&self, now: Duration) -> Option<&Publication> {
        self.live(now).filter(|publication| publication.listed.contains(&self.me))
    }

    /// The newest publication, dead or alive.
    pub fn believed(&self) -> Option<&Publication> {
        self.believed.as_ref().map(|(publication, _)| &**publication)
    }

    /// When this member last followed a home, or its start.
    pub fn followed(&self) -> Duration {
        self.believed.as_ref().map_or(self.started, |(_, heard)| *heard)
    }

    pub fn report(&self, now: Duration, wants: u64) -> Report {
        Report {
            from: self.me,
            tally: self.tally.clone(),
            newest: self.newest,
            has_home: self.live(now).is_some(),
            wants,
        }
    }

    /// Who gets the report: the home, or without one all shards.
    pub fn report_to(&self, now: Duration, map: &[u32]) -> Vec<u32> {
        let to = self.live(now).map_or_else(|| map.to_vec(), |live| vec![live.generation.home.shard]);
        to.into_iter().filter(|shard| MemberId::Shard(*shard) != self.me).collect()
    }

    /// The numbers of a wait, but for what is missing.
    pub fn wait(&self, now: Duration, own_use: u64) -> Wait {
        let publication = self.believed();
        let reason = match self.live(now) {
            None => WaitReason::NoHome,
            Some(live) if !live.listed.contains(&self.me) => WaitReason::NotListed,
            Some(_) => WaitReason::Room,
        };
        Wait {
            reason,
            sums: publication.map(|publication| publication.sums),
            age: publication.map(|_| now.saturating_sub(self.followed())),
            own_use,
            missing: 0,
            missing_items: 0,
            silent: publication.map(|publication| publication.silent.clone()).unwrap_or_default(),
        }
    }
}
