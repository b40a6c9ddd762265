//! Shards, learners, and messages between them that are late, lost and out of order.

use super::truth::Truth;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use reverb_core::published_room::{
    Counted, Generation, Incarnation, Learner, MemberId, Publication, Report, RoomConfig, Shard, Tally,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

/// Microseconds.
pub type Time = u64;
pub const MILLIS: Time = 1000;
const TICK: Time = 10 * MILLIS;
/// All have joined.
pub const STARTED: Time = 1000 * MILLIS;
pub const DRAW_TIMEOUT: Time = 300 * MILLIS;
/// A shard removes its oldest items above this number.
pub const MOST_ITEMS: u64 = 400;

/// What one run is made of.
#[derive(Clone)]
pub struct Setup {
    pub seed: u64,
    pub config: RoomConfig,
    /// Inserts per second that the writers of each shard ask for.
    pub rates: Vec<f64>,
    pub think: Time,
    pub most_delay: Time,
    /// By how much reports are later than other messages.
    pub slow_reports: Time,
    /// Writers and learners ask in turns of this length; 0 if both ask all the time.
    pub bursts: Time,
    pub loss: f64,
    pub faults: Vec<(When, Fault)>,
    pub end: Time,
    /// From here on, every waiter has to go on.
    pub calm_from: Time,
    pub mutant: Mutant,
}

/// What a rule may have wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    None,
    WholeRoom,
    ForgetsOwnUse,
    NeverDies,
    CountsGoBack,
    SamplesTravelAlone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Publish,
    Publication,
    Report,
    Insert,
    Take,
    Choice,
    Counted,
}

#[derive(Clone, Copy, Debug)]
pub enum When {
    At(Time),
    /// Once an event of this kind happens at the node after that time; at the home for `None`.
    On(Kind, Option<usize>, Time),
}

#[derive(Clone, Debug)]
pub enum Fault {
    /// Kills the node where the event happens, for so long.
    KillThis(Time),
    Restart(usize),
    Pause(usize, Time),
    Cut(Vec<(usize, usize)>, Time),
    /// Only what the limiter says is lost; choices pass.
    CutReports(Vec<(usize, usize)>, Time),
}

#[derive(Clone)]
pub enum Message {
    Publication(Arc<Publication>),
    Report(Report),
    Choice { draw: u64, count: u64, tally: Tally },
    Counted { draw: u64, count: u64, counted: Counted },
    Ping,
    Pong,
}

#[derive(Clone)]
pub enum Event {
    Tick,
    Arrival,
    Wish,
    Timeout(u64),
    Message(usize, Message),
    Fault(Fault),
    Resume,
}

pub struct Node {
    pub role: Option<Role>,
    pub starts: u64,
    pub paused: Option<Vec<(u64, Event)>>,
    pub heard: Time,
    /// What a restart begins with: of a checkpoint, some time ago.
    pub checkpoint: (Tally, u64),
}

pub enum Role {
    Shard {
        shard: Shard,
        backlog: u64,
        waits_since: Time,
        items: u64,
    },
    Learner {
        learner: Learner,
        draw: u64,
        missing: BTreeMap<usize, u64>,
        /// When it asks for the next batch, or has asked for it.
        asks_from: Time,
        asleep: u64,
        silent: BTreeSet<usize>,
    },
}

pub struct Scheduled(Time, u64, usize, u64, Event);

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// What one run has shown.
#[derive(Default)]
pub struct Outcome {
    pub violations: Vec<String>,
    /// The longest wait that ended in the calm at the end, counted from its begin.
    pub longest_wait: Time,
    /// Who waits at the end although its turn has been possible for long, and why.
    pub stuck: Vec<String>,
    /// Of the time after the first second.
    pub inserts: u64,
    pub draws: u64,
    pub worst: f64,
    pub worst_in_cut: f64,
    pub homes_at_once: usize,
    pub events: u64,
    pub checks: u64,
    pub struck: f64,
}

pub struct World {
    pub setup: Setup,
    pub map: Vec<u32>,
    pub nodes: Vec<Node>,
    pub events: BinaryHeap<Reverse<Scheduled>>,
    pub next: u64,
    pub now: Time,
    pub random: SmallRng,
    /// Until when, and whether of reports and publications only.
    pub cuts: BTreeMap<(usize, usize), (Time, bool)>,
    pub triggers: Vec<(Kind, Option<usize>, Time, Fault)>,
    pub truth: Truth,
    pub outcome: Outcome,
}

pub fn at(time: Time) -> Duration {
    Duration::from_micros(time)
}

impl World {
    pub fn new(setup: Setup) -> Self {
        let shards = setup.rates.len();
        let nodes = shards + setup.config.learners as usize;
        let mut world = Self {
            map: (0..shards as u32).collect(),
            nodes: Vec::new(),
            events: BinaryHeap::new(),
            next: 0,
            now: 0,
            random: SmallRng::seed_from_u64(setup.seed),
            cuts: BTreeMap::new(),
            triggers: Vec::new(),
            truth: Truth::default(),
            outcome: Outcome::default(),
            setup,
        };
        for node in 0..nodes {
            let checkpoint = (Tally::default(), 0);
            world.nodes.push(Node { role: None, starts: 0, paused: None, heard: 0, checkpoint });
            world.start(node);
        }
        for (when, fault) in world.setup.faults.clone() {
            match when {
                When::At(time) => world.schedule(time, usize::MAX, Event::Fault(fault)),
                When::On(kind, node, time) => world.triggers.push((kind, node, time, fault)),
            }
        }
        world
    }

    pub fn run(mut self) -> Outcome {
        while let Some(Reverse(Scheduled(time, _, node, starts, event))) = self.events.pop() {
            if time > self.setup.end {
                break;
            }
            self.now = time;
            self.outcome.events += 1;
            match event {
                Event::Fault(fault) => self.fault(fault, None),
                event if self.nodes[node].starts != starts => drop(event),
                Event::Resume => {
                    for (starts, event) in self.nodes[node].paused.take().into_iter().flatten() {
                        self.push(time, node, starts, event);
                    }
                }
                event => match &mut self.nodes[node].paused {
                    Some(queue) => queue.push((starts, event)),
                    None => self.handle(node, event),
                },
            }
            self.truth.check(self.now, &self.setup);
        }
        self.finish()
    }

    pub fn finish(mut self) -> Outcome {
        for (index, node) in self.nodes.iter().enumerate() {
            let (since, possible) = match &node.role {
                Some(Role::Shard { backlog: 1.., waits_since, .. }) => (*waits_since, self.truth.insert_possible),
                Some(Role::Learner { missing, asks_from, .. }) if missing.is_empty() => {
                    (*asks_from, self.truth.sample_possible)
                }
                _ => continue,
            };
            let since = possible.unwrap_or(Time::MAX).max(since).max(self.setup.calm_from);
            if self.setup.end.saturating_sub(since) > 500 * MILLIS {
                let (now, batch) = (at(self.setup.end), self.setup.config.batch);
                let stuck = match &node.role {
                    Some(Role::Shard { shard, .. }) => format!("shard {index}: {:?}", shard.wait(now, 1)),
                    Some(Role::Learner { learner, silent, .. }) => {
                        format!("learner {index}: {:?}, silent {silent:?}", learner.wait(now, batch))
                    }
                    None => format!("{index} is dead"),
                };
                self.outcome.stuck.push(stuck);
            }
        }
        let truth = self.truth;
        Outcome {
            violations: truth.violations,
            worst: truth.worst,
            worst_in_cut: truth.worst_in_cut,
            homes_at_once: truth.homes_at_once,
            checks: truth.checks,
            struck: truth.struck,
            ..self.outcome
        }
    }

    pub fn schedule(&mut self, time: Time, node: usize, event: Event) {
        let starts = self.nodes.get(node).map_or(0, |node| node.starts);
        self.push(time, node, starts, event);
    }

    pub fn push(&mut self, time: Time, node: usize, starts: u64, event: Event) {
        self.next += 1;
        self.events.push(Reverse(Scheduled(time, self.next, node, starts, event)));
    }

    pub fn shards(&self) -> usize {
        self.setup.rates.len()
    }

    pub fn incarnation_of(&self, node: usize) -> Incarnation {
        Incarnation { shard: node as u32, number: self.nodes[node].starts }
    }

    pub fn start(&mut self, node: usize) {
        self.nodes[node].starts += 1;
        self.nodes[node].paused = None;
        let config = self.setup.config.clone();
        let role = if node < self.shards() {
            let (incarnation, (tally, items)) = (self.incarnation_of(node), self.nodes[node].checkpoint.clone());
            self.truth.started(incarnation, items);
            let shard = Shard::new(at(self.now), config, incarnation, &self.map, tally, items).unwrap();
            Role::Shard { shard, backlog: 0, waits_since: self.now, items }
        } else {
            let id = (node as u64) << 32 | self.nodes[node].starts;
            let learner = Learner::new(at(self.now), config, id, &self.map).unwrap();
            let (missing, silent) = (BTreeMap::new(), BTreeSet::new());
            Role::Learner { learner, draw: 0, missing, asks_from: self.now, asleep: 0, silent }
        };
        self.nodes[node].role = Some(role);
        let phase = self.random.random_range(0..TICK);
        self.schedule(self.now + phase, node, Event::Tick);
        self.schedule(self.now + phase, node, if node < self.shards() { Event::Arrival } else { Event::Wish });
    }

    pub fn fault(&mut self, fault: Fault, this: Option<usize>) {
        match fault {
            Fault::KillThis(time) => {
                let node = this.unwrap();
                self.kill(node);
                self.schedule(self.now + time, usize::MAX, Event::Fault(Fault::Restart(node)));
            }
            Fault::Restart(node) if self.nodes[node].role.is_none() => self.start(node),
            Fault::Restart(_) => {}
            Fault::Pause(node, time) => {
                self.nodes[node].paused.get_or_insert_default();
                self.truth.cut_until = self.truth.cut_until.max(self.now + time);
                self.schedule(self.now + time, node, Event::Resume);
            }
            Fault::Cut(ref links, time) | Fault::CutReports(ref links, time) => {
                self.truth.cut_until = self.truth.cut_until.max(self.now + time);
                for link in links {
                    self.cuts.insert(*link, (self.now + time, matches!(fault, Fault::CutReports(..))));
                }
            }
        }
    }

    pub fn kill(&mut self, node: usize) {
        let incarnation = self.incarnation_of(node);
        let Some(role) = self.nodes[node].role.take() else { return };
        self.nodes[node].starts += 1;
        if let Role::Learner { .. } = role {
            self.truth.in_flight.retain(|(learner, _), _| *learner != node);
        }
        let mut known: Vec<&Tally> = Vec::new();
        for other in &self.nodes {
            known.push(&other.checkpoint.0);
            match &other.role {
                Some(Role::Shard { shard, .. }) => known.push(shard.tally()),
                Some(Role::Learner { learner, .. }) => known.push(learner.tally()),
                None => {}
            }
        }
        for Reverse(Scheduled(_, _, to, starts, event)) in &self.events {
            let Event::Message(_, message) = event else { continue };
            if self.nodes[*to].starts != *starts {
                continue;
            }
            match message {
                Message::Publication(publication) => known.push(&publication.tally),
                Message::Report(report) => known.push(&report.tally),
                Message::Counted { counted, .. } => known.push(&counted.tally),
                Message::Choice { tally, .. } => known.push(tally),
                Message::Ping | Message::Pong => {}
            }
        }
        self.truth.died((node < self.shards()).then_some(incarnation), &known);
    }

    pub fn send(&mut self, from: usize, to: usize, message: Message) {
        let is_report = matches!(message, Message::Publication(_) | Message::Report(_));
        let is_cut = self.cuts.get(&(from, to)).is_some_and(|(until, only)| self.now < *until && (is_report || !only));
        if is_cut || is_report && self.random.random_bool(self.setup.loss) {
            return;
        }
        // Mostly quick, at times slow.
        let slow = self.random.random::<f64>().powi(4);
        let late = if matches!(message, Message::Report(_)) { self.setup.slow_reports } else { 0 };
        let delay = 50 + late + (slow * self.setup.most_delay as f64) as Time;
        self.schedule(self.now + delay, to, Event::Message(from, message));
    }

    /// Lets a fault happen at an event. Returns whether it has ended the node.
    pub fn trigger(&mut self, kind: Kind, node: usize) -> bool {
        let is_home = matches!(&self.nodes[node].role, Some(Role::Shard { shard, .. }) if shard.home().is_some());
        let fits = |(wanted, who, from, _): &(Kind, Option<usize>, Time, Fault)| {
            *wanted == kind && *from <= self.now && who.map_or(is_home, |who| who == node)
        };
        let Some(index) = self.triggers.iter().position(fits) else { return false };
        let (_, _, _, fault) = self.triggers.swap_remove(index);
        self.fault(fault, Some(node));
        self.nodes[node].role.is_none()
    }

    pub fn handle(&mut self, node: usize, event: Event) {
        match event {
            Event::Tick => self.tick(node),
            Event::Arrival => {
                let rate = self.setup.rates[node];
                let pause = -self.random.random::<f64>().max(1e-12).ln() / rate * 1e6;
                self.schedule(self.now + pause as Time + 1, node, Event::Arrival);
                let asks = self.turn().is_none_or(|(is_learners, _)| !is_learners);
                if let Some(Role::Shard { backlog, waits_since, .. }) = &mut self.nodes[node].role
                    && asks
                {
                    if *backlog == 0 {
                        *waits_since = self.now;
                    }
                    // As many writers, each of which waits for its insert.
                    *backlog = (*backlog + 1).min(64);
                }
                self.insert(node);
            }
            Event::Wish => self.wish(node),
            Event::Timeout(draw) => self.time_out(node, draw),
            Event::Message(from, message) => self.receive(node, from, message),
            Event::Fault(_) | Event::Resume => unreachable!(),
        }
    }

    /// Whether it is the learners' turn to ask, and when the turn ends.
    pub fn turn(&self) -> Option<(bool, Time)> {
        let turn = self.now.checked_div(self.setup.bursts)?;
        Some((turn % 2 == 1, (turn + 1) * self.setup.bursts))
    }

    pub fn wish(&mut self, node: usize) {
        match (self.turn(), &mut self.nodes[node].role) {
            (Some((false, end)), Some(Role::Learner { asks_from, .. })) => {
                *asks_from = end;
                self.schedule(end, node, Event::Wish);
            }
            _ => self.draw(node),
        }
    }

    pub fn tick(&mut self, node: usize) {
        self.schedule(self.now + TICK, node, Event::Tick);
        let now = at(self.now);
        let (report, to) = match self.nodes[node].role.as_mut().unwrap() {
            Role::Shard { shard, items, .. } => {
                // Of some time ago, as checkpoints are.
                if self.random.random_bool(0.02) {
                    self.nodes[node].checkpoint = (shard.tally().clone(), *items);
                }
                self.publish(node);
                let Some(Role::Shard { shard, .. }) = &self.nodes[node].role else { return };
                shard.report(now)
            }
            Role::Learner { learner, missing, asleep, silent, .. } => {
                *asleep += 1;
                let pings: Vec<usize> = silent.iter().copied().collect();
                let is_due = !missing.is_empty() || asleep.is_multiple_of(10);
                let (report, to) = learner.report(now);
                if self.random.random_bool(0.1) {
                    pings.into_iter().for_each(|shard| self.send(node, shard, Message::Ping));
                }
                (report, if is_due { to } else { Vec::new() })
            }
        };
        self.report(node, report, to);
    }

    pub fn report(&mut self, node: usize, report: Report, to: Vec<u32>) {
        for shard in to {
            self.send(node, shard as usize, Message::Report(report.clone()));
        }
    }

    pub fn publish(&mut self, node: usize) {
        let Some(Role::Shard { shard, .. }) = &mut self.nodes[node].role else { return };
        let Some((publication, recipients)) = shard.publish(at(self.now)) else { return };
        let home = |node: &Node| match &node.role {
            Some(Role::Shard { shard, .. }) => shard.home(),
            _ => None,
        };
        let homes: Vec<Generation> = self.nodes.iter().filter_map(home).collect();
        self.truth.published(self.now, &publication, &homes);
        let half = self.random.random_range(0..=recipients.len());
        for (index, member) in recipients.into_iter().enumerate() {
            if index == half && self.trigger(Kind::Publish, node) {
                return;
            }
            let to = match member {
                MemberId::Shard(shard) => shard as usize,
                MemberId::Learner(id) => (id >> 32) as usize,
            };
            self.send(node, to, Message::Publication(Arc::clone(&publication)));
        }
        self.nodes[node].heard = self.now;
        self.insert(node);
    }
}
