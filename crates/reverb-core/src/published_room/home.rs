//! The home: adds up what all have counted, and says how much room is left to how many.

use super::config::{HEARTBEAT, RoomConfig, SETTLE, SILENT_AFTER, TAKEOVER_AFTER};
use super::messages::{Generation, Holders, MemberId, Publication, Report};
use super::tally::Tally;
use std::collections::BTreeMap;
use std::time::Duration;

/// The state that a shard has while it is the home.
#[derive(Debug, Clone)]
pub(super) struct Home {
    pub generation: Generation,
    since: Duration,
    sequence: u64,
    members: BTreeMap<MemberId, Membership>,
}

#[derive(Debug, Clone, Copy)]
struct Membership {
    joined: Duration,
    heard: Duration,
    wants: u64,
}

impl Home {
    pub fn new(now: Duration, generation: Generation) -> Self {
        Self { generation, since: now, sequence: 0, members: BTreeMap::new() }
    }

    /// Notes that a member was heard.
    pub fn hear(&mut self, now: Duration, from: MemberId, wants: u64) {
        let member = self.members.entry(from).or_insert(Membership { joined: now, heard: now, wants });
        (member.heard, member.wants) = (now, wants);
    }

    /// Whether this report shows a generation that others prefer although they have no home.
    pub fn is_outdated_by(&self, report: &Report) -> bool {
        !report.has_home && report.newest.is_some_and(|newest| newest > self.generation)
    }

    /// Whether a report is from a member that follows this home, or would.
    pub fn is_followed_by(&self, report: &Report) -> bool {
        !report.has_home || report.newest == Some(self.generation)
    }

    /// Whether the home has heard nobody but itself for too long: it may be cut off from all who hear it.
    pub fn is_deaf(&self, now: Duration) -> bool {
        let own = MemberId::Shard(self.generation.home.shard);
        let heard = self.members.iter().filter(|(member, _)| **member != own).map(|(_, known)| known.heard).max();
        now.saturating_sub(heard.unwrap_or(self.since)) >= TAKEOVER_AFTER
    }

    /// Makes the next publication.
    pub fn publish(&mut self, now: Duration, config: &RoomConfig, tally: &Tally, map: &[u32]) -> Publication {
        let own = MemberId::Shard(self.generation.home.shard);
        self.hear(now, own, 0);
        // A member is counted from `SETTLE` before to `SETTLE` after it is listed, so that all publications that live
        // at one time are divided by at least the number of those that use them.
        self.members.retain(|_, member| now.saturating_sub(member.heard) < SILENT_AFTER + SETTLE);
        let is_heard = |member: &Membership| now.saturating_sub(member.heard) < SILENT_AFTER;
        let listed = self
            .members
            .iter()
            .filter(|(_, member)| is_heard(member) && now.saturating_sub(member.joined) >= SETTLE)
            .map(|(id, _)| *id)
            .collect();
        let shards = self.members.keys().filter(|id| matches!(id, MemberId::Shard(_))).count() as u64;
        let holders = Holders { shards, learners: self.members.len() as u64 - shards };
        let silent = |shard: &u32| !self.members.get(&MemberId::Shard(*shard)).is_some_and(is_heard);
        let silent = map.iter().copied().filter(silent).collect();
        let sums = tally.sums(map);
        let limiter = &config.limiter;
        let diff = sums.inserts as f64 * limiter.samples_per_insert - sums.samples as f64;
        let window = config.window();
        self.sequence += 1;
        Publication {
            generation: self.generation,
            sequence: self.sequence,
            tally: tally.clone(),
            sums,
            // No more than the window, or an error of one side could widen the room of the other without end.
            insert_room: (limiter.max_diff - diff).clamp(0.0, window),
            sample_room: (diff - limiter.min_diff).clamp(0.0, window),
            refill_room: config.min_items().saturating_sub(sums.items),
            holders,
            listed,
            silent,
        }
    }

    /// Who gets the publication: all shards, and each learner that does not wait, or whose wait it may end. A learner
    /// that goes on waiting gets one in [`HEARTBEAT`].
    pub fn recipients(&self, publication: &Publication, config: &RoomConfig, map: &[u32]) -> Vec<MemberId> {
        let own = self.generation.home.shard;
        let shards = map.iter().filter(|shard| **shard != own).map(|shard| MemberId::Shard(*shard));
        let share = publication.sample_room / publication.holders.learners.max(1) as f64;
        let open = publication.sums.items >= config.min_items();
        let beats = publication.sequence.is_multiple_of(HEARTBEAT);
        let is_due = move |member: &Membership| member.wants == 0 || beats || (open && member.wants as f64 <= share);
        let learners =
            self.members.iter().filter(move |(id, member)| matches!(id, MemberId::Learner(_)) && is_due(member));
        shards.chain(learners.map(|(id, _)| *id)).collect()
    }
}
