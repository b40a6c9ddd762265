//! What really happened, counted beside the rule, and the bounds that it has to keep.

use super::world::{MILLIS, Setup, Time};
use reverb_core::published_room::{Generation, Incarnation, Publication, RoomConfig, Tally};
use std::collections::{BTreeMap, VecDeque};

/// Rooms of publications this old may still be in use, or in use by events that no publication contains.
const RECENT: Time = 800 * MILLIS;
/// For this long after a cut has healed, the bound is that of the cut.
const GRACE: Time = 1000 * MILLIS;

#[derive(Debug, Clone, Copy, Default)]
struct Events {
    restored: u64,
    inserts: u64,
    deletes: u64,
    samples: u64,
}

/// Counts of the model.
#[derive(Default)]
pub struct Truth {
    incarnations: BTreeMap<Incarnation, Events>,
    /// Runs that have ended, with what anybody alive still knows of them.
    ended: BTreeMap<Incarnation, Events>,
    /// Samples that learners have taken and no shard has counted.
    /// By learner and shard.
    pub in_flight: BTreeMap<(usize, usize), u64>,
    rooms: VecDeque<(Time, Rooms)>,
    newest: Option<(Generation, Time)>,
    pub homes_at_once: usize,
    pub cut_until: Time,
    diffs: (f64, f64),
    pub worst: f64,
    pub worst_in_cut: f64,
    /// Since when each shard, and each learner, has been able to go on whatever the others do at once.
    pub insert_possible: Option<Time>,
    pub sample_possible: Option<Time>,
    pub violations: Vec<String>,
    pub checks: u64,
    pub struck: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Rooms {
    insert: f64,
    sample: f64,
    refill: u64,
}

impl Truth {
    pub fn started(&mut self, incarnation: Incarnation, restored: u64) {
        self.incarnations.insert(incarnation, Events { restored, ..Events::default() });
    }

    pub fn inserted(&mut self, incarnation: Incarnation, deletes: u64) {
        let events = self.incarnations.get_mut(&incarnation).unwrap();
        (events.inserts, events.deletes) = (events.inserts + 1, events.deletes + deletes);
    }

    pub fn sampled(&mut self, incarnation: Incarnation, count: u64) {
        self.incarnations.get_mut(&incarnation).unwrap().samples += count;
    }

    /// Somebody has died. Events that no living member knows are gone with the shards where they happened.
    pub fn died(&mut self, incarnation: Option<Incarnation>, known_to: &[&Tally]) {
        if let Some(events) = incarnation.and_then(|incarnation| self.incarnations.get(&incarnation)) {
            self.ended.insert(incarnation.unwrap(), *events);
        }
        for (incarnation, events) in &mut self.ended {
            let known = known_to.iter().map(|tally| tally.of(*incarnation));
            let (mut inserts, mut samples) = (0, 0);
            for counts in known {
                (inserts, samples) = (inserts.max(counts.inserts), samples.max(counts.samples));
            }
            self.struck += (events.inserts.saturating_sub(inserts) + events.samples.saturating_sub(samples)) as f64;
            (events.inserts, events.samples) = (events.inserts.min(inserts), events.samples.min(samples));
            self.incarnations.insert(*incarnation, *events);
        }
        self.diffs = (f64::MAX, -f64::MAX);
    }

    pub fn published(&mut self, now: Time, publication: &Publication, homes: &[Generation]) {
        let generation = publication.generation;
        self.homes_at_once = self.homes_at_once.max(homes.len());
        let newest = homes.iter().max().copied().unwrap();
        if self.newest.is_none_or(|(before, _)| before != newest) {
            self.newest = Some((newest, now));
        }
        let (newest, since) = self.newest.unwrap();
        // Until all have heard of a newer home, they may follow the one before it.
        if generation == newest || now < since + 150 * MILLIS {
            let (insert, sample) = (publication.insert_room, publication.sample_room);
            self.rooms.push_back((now, Rooms { insert, sample, refill: publication.refill_room }));
        }
        while self.rooms.front().is_some_and(|(time, _)| time + RECENT < now) {
            self.rooms.pop_front();
        }
    }

    /// A member has used room. It has to have heard a home within the life of a publication.
    pub fn used(&mut self, now: Time, node: usize, heard: Time) {
        if now - heard > 100 * MILLIS {
            let silence = (now - heard) / MILLIS;
            self.violations.push(format!("at {} ms: {node} goes on after {silence} ms of silence", now / MILLIS));
        }
    }

    fn inserts(&self) -> u64 {
        self.incarnations.values().map(|events| events.inserts).sum()
    }

    fn items(&self) -> u64 {
        let newest = |incarnation: Incarnation| {
            self.incarnations
                .range(Incarnation { number: incarnation.number + 1, ..incarnation }..)
                .next()
                .map(|(next, _)| next.shard)
        };
        let current =
            self.incarnations.iter().filter(|(incarnation, _)| newest(**incarnation) != Some(incarnation.shard));
        current.map(|(_, events)| (events.restored + events.inserts).saturating_sub(events.deletes)).sum()
    }

    /// Whatever has just happened may have raised the difference only within the upper bound, and lowered it only
    /// within the lower one.
    pub fn check(&mut self, now: Time, setup: &Setup) {
        let limiter = &setup.config.limiter;
        let window = setup.config.window();
        let samples: u64 = self.incarnations.values().map(|events| events.samples).sum();
        let high = self.inserts() as f64 * limiter.samples_per_insert - samples as f64;
        let low = high - self.in_flight.values().sum::<u64>() as f64;
        let (was_high, was_low) = std::mem::replace(&mut self.diffs, (high, low));
        self.checks += 1;
        let RoomConfig { shards, learners, batch, .. } = setup.config;
        let is_filled = self.items() >= limiter.min_size_to_sample as u64;
        let insert = !is_filled || high + shards as f64 * limiter.samples_per_insert <= limiter.max_diff;
        let sample = is_filled && low - (learners * batch) as f64 >= limiter.min_diff;
        self.insert_possible = insert.then(|| self.insert_possible.unwrap_or(now));
        self.sample_possible = sample.then(|| self.sample_possible.unwrap_or(now));
        let is_cut = now < self.cut_until + GRACE && self.cut_until > 0;
        let recent = self.rooms.iter().fold(Rooms::default(), |all, (_, rooms)| Rooms {
            insert: all.insert.max(rooms.insert),
            sample: all.sample.max(rooms.sample),
            refill: all.refill.max(rooms.refill),
        });
        let sides = self.homes_at_once.max(1) as f64;
        let in_cut = (sides - 1.0) * window + (2.0 * sides - 1.0) * window;
        let over = if high > was_high { high - limiter.max_diff } else { -1.0 };
        let under = if low < was_low { limiter.min_diff - low } else { -1.0 };
        let may_refill = self.items() <= limiter.min_size_to_sample as u64 + recent.refill + setup.rates.len() as u64;
        for (error, room) in [(if may_refill { -1.0 } else { over }, recent.insert), (under, recent.sample)] {
            if error <= 0.0 {
                continue;
            }
            let worst = if is_cut { &mut self.worst_in_cut } else { &mut self.worst };
            *worst = worst.max(error / window);
            let bound = if is_cut { in_cut } else { room.min(window) };
            if error > bound {
                self.violations.push(format!(
                    "at {} ms: {error} beyond [{}, {}], allowed {bound}, cut: {is_cut}",
                    now / MILLIS,
                    limiter.min_diff,
                    limiter.max_diff
                ));
            }
        }
    }
}
