//! What members of the simulated world do at an event.

use super::world::{DRAW_TIMEOUT, Event, Kind, MOST_ITEMS, Message, Mutant, Role, STARTED, Time, World, at};
use rand::Rng;
use reverb_core::RateLimiterConfig;
use reverb_core::published_room::{Counts, Publication, Tally};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

impl World {
    /// The time that the rule is told: of a mutant, that of its last publication.
    fn rule_time(&self, node: usize) -> Duration {
        at(if self.setup.mutant == Mutant::NeverDies { self.nodes[node].heard } else { self.now })
    }

    pub fn insert(&mut self, node: usize) {
        let now = self.rule_time(node);
        loop {
            let incarnation = self.incarnation_of(node);
            let Some(Role::Shard { shard, backlog, waits_since, items }) = &mut self.nodes[node].role else { return };
            if *backlog == 0 || shard.inserts_allowed(now) == 0 {
                assert!(*backlog == 0 || shard.wait(now, 1).is_some());
                return;
            }
            let deletes = u64::from(*items == MOST_ITEMS);
            shard.inserted(1);
            shard.deleted(deletes);
            (*backlog, *items) = (*backlog - 1, *items + 1 - deletes);
            let wait = self.now - (*waits_since).max(self.setup.calm_from).min(self.now);
            *waits_since = self.now;
            self.truth.inserted(incarnation, deletes);
            self.truth.used(self.now, node, self.nodes[node].heard);
            self.truth.check(self.now, &self.setup);
            self.note(node, wait);
            if self.trigger(Kind::Insert, node) {
                return;
            }
        }
    }

    fn note(&mut self, node: usize, wait: Time) {
        let count = if node < self.shards() { &mut self.outcome.inserts } else { &mut self.outcome.draws };
        *count += u64::from(self.now >= STARTED);
        if self.now >= self.setup.calm_from {
            self.outcome.longest_wait = self.outcome.longest_wait.max(wait);
        }
    }

    pub fn draw(&mut self, node: usize) {
        let now = self.rule_time(node);
        let (batch, shards) = (self.setup.config.batch, self.shards());
        let Some(Role::Learner { learner, draw, missing, asks_from, silent, .. }) = &mut self.nodes[node].role else {
            return;
        };
        if !missing.is_empty() || self.now < *asks_from {
            return;
        }
        let reached: Vec<usize> = (0..shards).filter(|shard| !silent.contains(shard)).collect();
        if reached.is_empty() || !learner.take(now, batch) {
            return;
        }
        *draw += 1;
        let wait = self.now - (*asks_from).max(self.setup.calm_from).min(self.now);
        for _ in 0..batch {
            *missing.entry(reached[self.random.random_range(0..reached.len())]).or_default() += 1;
        }
        let is_alone = self.setup.mutant == Mutant::SamplesTravelAlone;
        let tally = if is_alone { Tally::default() } else { learner.tally().clone() };
        let (draw, choices) = (*draw, missing.clone());
        self.truth.in_flight.extend(choices.iter().map(|(shard, count)| ((node, *shard), *count)));
        self.truth.used(self.now, node, self.nodes[node].heard);
        self.truth.check(self.now, &self.setup);
        self.note(node, wait);
        for (shard, count) in choices {
            self.send(node, shard, Message::Choice { draw, count, tally: tally.clone() });
        }
        self.schedule(self.now + DRAW_TIMEOUT, node, Event::Timeout(draw));
        self.trigger(Kind::Take, node);
    }

    pub fn time_out(&mut self, node: usize, timed: u64) {
        let Some(Role::Learner { learner, draw, missing, silent, .. }) = &mut self.nodes[node].role else { return };
        if *draw != timed || missing.is_empty() {
            return;
        }
        for (shard, count) in std::mem::take(missing) {
            silent.insert(shard);
            learner.lost(count);
            self.truth.in_flight.remove(&(node, shard));
        }
        self.end_draw(node);
    }

    fn end_draw(&mut self, node: usize) {
        let Some(Role::Learner { asks_from, .. }) = &mut self.nodes[node].role else { return };
        *asks_from = self.now + self.setup.think;
        self.schedule(self.now + self.setup.think, node, Event::Wish);
    }

    pub fn receive(&mut self, node: usize, from: usize, message: Message) {
        let kind = match &message {
            Message::Publication(_) => Some(Kind::Publication),
            Message::Report(_) => Some(Kind::Report),
            Message::Choice { .. } => Some(Kind::Choice),
            Message::Counted { .. } => Some(Kind::Counted),
            Message::Ping | Message::Pong => None,
        };
        let (before, after) = if self.random.random() { (kind, None) } else { (None, kind) };
        if before.is_some_and(|kind| self.trigger(kind, node)) {
            return;
        }
        match message {
            Message::Publication(publication) => self.hear(node, &publication),
            Message::Report(report) => {
                if let Some(Role::Shard { shard, .. }) = &mut self.nodes[node].role {
                    shard.hear_report(at(self.now), &report);
                }
            }
            Message::Choice { draw, count, tally } => self.choose(node, from, draw, count, &tally),
            Message::Ping => self.send(node, from, Message::Pong),
            Message::Pong => {
                if let Some(Role::Learner { silent, .. }) = &mut self.nodes[node].role {
                    silent.remove(&from);
                }
                self.draw(node);
            }
            Message::Counted { draw: counted_draw, count, counted } => {
                if let Some(Role::Learner { learner, draw, missing, .. }) = &mut self.nodes[node].role
                    && *draw == counted_draw
                    && missing.contains_key(&from)
                {
                    missing.remove(&from);
                    learner.counted(count, &counted);
                    if missing.is_empty() {
                        self.end_draw(node);
                    }
                }
            }
        }
        after.map(|kind| self.trigger(kind, node));
    }

    fn hear(&mut self, node: usize, publication: &Arc<Publication>) {
        let publication = self.mutated(node, publication);
        let now = at(self.now);
        self.nodes[node].heard = self.now;
        match &mut self.nodes[node].role {
            Some(Role::Shard { shard, .. }) => {
                shard.hear(now, &publication);
                self.insert(node);
            }
            Some(Role::Learner { learner, missing, asleep, .. }) => {
                learner.hear(now, &publication);
                if missing.is_empty() {
                    *asleep = 0;
                    let (report, to) = learner.report(now);
                    self.report(node, report, to);
                }
                self.draw(node);
            }
            None => {}
        }
    }

    fn mutated(&self, node: usize, publication: &Arc<Publication>) -> Arc<Publication> {
        let mut changed = Publication::clone(publication);
        match (self.setup.mutant, &self.nodes[node].role) {
            (Mutant::WholeRoom, _) => (changed.holders.shards, changed.holders.learners) = (1, 1),
            (Mutant::ForgetsOwnUse, Some(Role::Shard { shard, .. })) => changed.tally.merge(shard.tally()),
            (Mutant::CountsGoBack, _) => {
                let newest: BTreeMap<u32, Counts> =
                    changed.tally.incarnations().map(|(incarnation, counts)| (incarnation.shard, counts)).collect();
                let RateLimiterConfig { samples_per_insert, min_diff, max_diff, .. } = self.setup.config.limiter;
                let diff = |counts: &Counts| counts.inserts as f64 * samples_per_insert - counts.samples as f64;
                let diff: f64 = newest.values().map(diff).sum();
                changed.insert_room = (max_diff - diff).clamp(0.0, self.setup.config.window());
                changed.sample_room = (diff - min_diff).clamp(0.0, self.setup.config.window());
            }
            _ => return Arc::clone(publication),
        }
        Arc::new(changed)
    }

    fn choose(&mut self, node: usize, from: usize, draw: u64, count: u64, tally: &Tally) {
        // A late choice is refused: nobody counts on it any more.
        let is_wanted = matches!(&self.nodes[from].role,
            Some(Role::Learner { draw: current, missing, .. }) if *current == draw && missing.contains_key(&node));
        let incarnation = self.incarnation_of(node);
        let Some(Role::Shard { shard, .. }) = &mut self.nodes[node].role else { return };
        if !is_wanted {
            return;
        }
        let counted = shard.sampled(count, tally);
        self.truth.sampled(incarnation, count);
        self.truth.in_flight.remove(&(from, node));
        self.send(node, from, Message::Counted { draw, count, counted });
    }
}
