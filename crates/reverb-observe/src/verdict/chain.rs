//! Who can end the waits of a server: tables wait for clients, and clients for tables.
//!
//! A table where inserts wait needs somebody who draws, and one where draws wait somebody who inserts. That is a client
//! which has done so at this table. Who did so elsewhere has another part, and one that has not done so anywhere yet may
//! still begin. A client that waits elsewhere itself can do so only when that wait ends. What only a loader or a wait for a
//! newer version waits for does not keep its program from going on.

use super::state::{ClientState, LeftClient, STILL, ServerState, TableState, WaitState};
use reverb_service::{Departure, Operation, WaitKind};
use std::collections::BTreeSet;
use std::time::Duration;

/// A table has paused if it has been still for as long as this while requests wait.
const PAUSE: Duration = Duration::from_secs(2);

/// The waits of a server, and who can end them.
#[derive(Debug)]
pub struct Waits<'a> {
    pub state: &'a ServerState,
    /// What each client does.
    parts: Vec<Part>,
    /// The pause of each table that stands still.
    pub paused: Vec<Option<Pause>>,
}

/// A table that stands still while requests wait.
#[derive(Debug, Clone)]
pub struct Pause {
    /// Time without an insert or a sample while requests wait.
    pub lasted: Duration,
    /// What the table needs.
    pub needs: Need,
    /// The clients that can do what the table needs, whether they wait themselves or not.
    pub helpers: Vec<usize>,
    /// The clients whose requests wait. If programs do, without those that only have loaders here.
    pub waiters: Vec<usize>,
    /// Whether a program waits here itself.
    pub stops_programs: bool,
    /// Whether somebody can do what the table needs, now or after a wait that will end.
    pub is_live: bool,
}

/// What a table that stands still needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Somebody who inserts.
    Inserts,
    /// Somebody who draws.
    Samples,
    /// A larger error buffer: its limiter holds back inserts and samples at once.
    Buffer,
}

/// Why nobody will end the wait of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// Nobody who is connected can do what this table needs.
    Nobody(usize),
    /// The limiter of this table holds back both sides.
    Buffer(usize),
    /// Clients wait for each other at these tables.
    Circle(Vec<usize>),
}

impl Cause {
    /// The tables where the wait begins.
    pub fn tables(&self) -> &[usize] {
        match self {
            Self::Nobody(table) | Self::Buffer(table) => std::slice::from_ref(table),
            Self::Circle(tables) => tables,
        }
    }
}

/// The tables at which a client has inserted and drawn, or waits to do so.
#[derive(Debug, Clone)]
struct Part {
    inserts: BTreeSet<usize>,
    draws: BTreeSet<usize>,
}

impl Need {
    /// Of two sets of tables, those of what the table needs, and then the others. `None` if nobody can do that.
    fn of<'a>(self, inserts: &'a BTreeSet<usize>, draws: &'a BTreeSet<usize>) -> Option<[&'a BTreeSet<usize>; 2]> {
        match self {
            Self::Inserts => Some([inserts, draws]),
            Self::Samples => Some([draws, inserts]),
            Self::Buffer => None,
        }
    }

    /// Whether anybody has done at a table what it needs since the start.
    pub fn was_met(self, table: &TableState) -> bool {
        if self == Self::Samples { table.was_sampled } else { table.was_inserted }
    }
}

impl<'a> Waits<'a> {
    /// Finds out who can end the waits.
    pub fn new(state: &'a ServerState) -> Self {
        let paused = state.tables.iter().map(pause).collect();
        let mut waits = Self { state, parts: parts(state), paused };
        waits.find_helpers(Self::does);
        waits.find_helpers(Self::may_begin);
        waits.find_live();
        waits.find_helpers(Self::is_kept_away);
        waits
    }

    /// Finds the clients that can do what the tables need for which nobody is known yet.
    fn find_helpers(&mut self, can_help: fn(&Self, usize, usize, Need) -> bool) {
        for table in 0..self.paused.len() {
            let Some(pause) = self.pause(table).filter(|pause| pause.helpers.is_empty()) else { continue };
            let needs = pause.needs;
            let helpers = (0..self.parts.len()).filter(|&client| can_help(self, client, table, needs)).collect();
            if let Some(pause) = &mut self.paused[table] {
                pause.helpers = helpers;
            }
        }
    }

    /// Whether a client does what a table needs: it has done so there.
    ///
    /// One that waits at the table itself may go on in another thread, which nobody sees from here. So it can help itself
    /// if it has done both there, as a program of actors and a learner does; and one that does both in one thread is given
    /// the same time.
    fn does(&self, client: usize, table: usize, needs: Need) -> bool {
        self.part(client, needs).is_some_and(|[what_it_needs, _]| what_it_needs.contains(&table))
    }

    /// Whether a client may still begin to do what a table needs that nobody connected has done there.
    ///
    /// It has done so nowhere, has another part neither here nor in what went on since the pause began, and does not wait
    /// itself: it compiles, or plays its first episode. It has not been connected for longer than the table may pause, and
    /// came after whoever did so before.
    fn may_begin(&self, client: usize, table: usize, needs: Need) -> bool {
        let Some([what_it_needs, other]) = self.part(client, needs) else { return false };
        let (state, table_state) = (&self.state.clients[client], &self.state.tables[table]);
        let lasted = self.pause(table).map_or(Duration::ZERO, |pause| pause.lasted);
        let is_busy = state.still + STILL >= lasted;
        let came_later = |left: &LeftClient| state.connected <= left.ago;
        what_it_needs.is_empty()
            && !other.contains(&table)
            && !state.only_looks
            && is_busy
            && state.connected < table_state.stall_after
            && self.waits_elsewhere(client, table).next().is_none()
            && self.left(table).all(came_later)
    }

    /// Whether a client may never have come to a table that nobody has served so far, because it waits elsewhere for what
    /// will not come: it does elsewhere what the table needs.
    fn is_kept_away(&self, client: usize, table: usize, needs: Need) -> bool {
        let does_elsewhere = self.part(client, needs).is_some_and(|[what_it_needs, _]| !what_it_needs.is_empty());
        let mut waits = self.waits_elsewhere(client, table).peekable();
        does_elsewhere
            && !needs.was_met(&self.state.tables[table])
            && waits.peek().is_some()
            && waits.all(|other| self.pause(other).is_some_and(|pause| !pause.is_live))
    }

    /// The tables at which a client does what is needed, and those at which it does the other thing.
    fn part(&self, client: usize, needs: Need) -> Option<[&BTreeSet<usize>; 2]> {
        let Part { inserts, draws } = &self.parts[client];
        needs.of(inserts, draws)
    }

    pub fn pause(&self, table: usize) -> Option<&Pause> {
        self.paused[table].as_ref()
    }

    /// Marks the tables whose waits will end: somebody who can end it is free, or waits for a table that is marked.
    fn find_live(&mut self) {
        loop {
            let is_new = |&table: &usize| {
                let Some(pause) = self.pause(table).filter(|pause| !pause.is_live) else { return false };
                pause.helpers.iter().any(|&client| {
                    let mut waits = self.waits_elsewhere(client, table).peekable();
                    waits.peek().is_none() || waits.any(|other| self.pause(other).is_some_and(|pause| pause.is_live))
                })
            };
            let found: Vec<usize> = (0..self.paused.len()).filter(is_new).collect();
            if found.is_empty() {
                return;
            }
            for table in found {
                if let Some(pause) = &mut self.paused[table] {
                    pause.is_live = true;
                }
            }
        }
    }

    /// The paused tables but this one where a client waits itself. A program with several threads may go on in another
    /// one, so its waits at the table itself do not count.
    pub fn waits_elsewhere(&self, client: usize, table: usize) -> impl Iterator<Item = usize> + '_ {
        let waits_here = move |other: &usize| {
            let pause = self.pause(*other);
            *other != table && pause.is_some_and(|pause| pause.stops_programs && pause.waiters.contains(&client))
        };
        (0..self.paused.len()).filter(waits_here)
    }

    /// The clients to whom the wait of a table is left: those that wait for nothing, or else those that wait nowhere else,
    /// or else all that could end it.
    pub fn free_helpers(&self, table: usize) -> Vec<usize> {
        let Some(pause) = self.pause(table) else { return Vec::new() };
        let waits_elsewhere = |client: &&usize| self.waits_elsewhere(**client, table).next().is_some();
        let free: Vec<usize> = pause.helpers.iter().filter(|client| !waits_elsewhere(client)).copied().collect();
        let idle: Vec<usize> = free.iter().filter(|client| !pause.waiters.contains(client)).copied().collect();
        [idle, free].into_iter().find(|some| !some.is_empty()).unwrap_or_else(|| pause.helpers.clone())
    }

    /// Whether a table needs somebody who draws.
    pub fn needs_samples(&self, table: usize) -> bool {
        self.pause(table).is_some_and(|pause| pause.needs == Need::Samples)
    }

    /// The table from whose wait that of another follows, if somebody can end both.
    pub fn origin(&self, table: usize) -> usize {
        let mut seen = BTreeSet::from([table]);
        let mut origin = table;
        while self.is_downstream(origin) {
            let helpers = self.pause(origin).map_or(&[][..], |pause| &pause.helpers);
            let mut next = helpers.iter().flat_map(|&client| self.waits_elsewhere(client, origin));
            let Some(next) = next.find(|&next| self.pause(next).is_some_and(|pause| pause.is_live)) else { break };
            if !seen.insert(next) {
                break;
            }
            origin = next;
        }
        origin
    }

    /// Whether all clients that could end the wait of a table wait elsewhere.
    fn is_downstream(&self, table: usize) -> bool {
        let helpers = self.pause(table).map_or(&[][..], |pause| &pause.helpers);
        !helpers.is_empty() && helpers.iter().all(|&client| self.waits_elsewhere(client, table).next().is_some())
    }

    /// Why nobody will end the wait of a table. `None` if somebody can.
    pub fn cause(&self, table: usize) -> Option<Cause> {
        let mut path = Vec::new();
        let mut next = table;
        loop {
            let pause = self.pause(next).filter(|pause| !pause.is_live)?;
            if pause.needs == Need::Buffer {
                return Some(Cause::Buffer(next));
            }
            // A table that is not live has no helper that is free.
            let Some(helper) = pause.helpers.first() else { return Some(Cause::Nobody(next)) };
            if let Some(start) = path.iter().position(|&seen| seen == next) {
                let mut circle = path.split_off(start);
                let first = circle.iter().enumerate().min_by_key(|(_, table)| **table).map_or(0, |(place, _)| place);
                circle.rotate_left(first);
                return Some(Cause::Circle(circle));
            }
            path.push(next);
            next = self.waits_elsewhere(*helper, next).next()?;
        }
    }

    /// Time for which a cause has held.
    pub fn held(&self, cause: &Cause) -> Duration {
        let pauses = cause.tables().iter().filter_map(|&table| Some(self.pause(table)?.lasted));
        let left = match cause {
            Cause::Nobody(table) => self.left(*table).map(|client| client.ago).min(),
            _ => None,
        };
        pauses.chain(left).min().unwrap_or_default()
    }

    /// Whether a cause stalls the server, once it has held long enough. A loader that nobody serves is no reason, unless
    /// whoever served it was lost: programs may end before the loaders of others do.
    pub fn stalls(&self, cause: &Cause) -> bool {
        let stops_programs = |&table: &usize| self.pause(table).is_some_and(|pause| pause.stops_programs);
        match cause {
            Cause::Nobody(table) => {
                stops_programs(table) || self.left(*table).any(|client| client.how != Departure::Closed)
            }
            _ => cause.tables().iter().any(stops_programs),
        }
    }

    /// The clients that have left and did what a table needs there.
    pub fn left(&self, table: usize) -> impl Iterator<Item = &'a LeftClient> + '_ {
        let needs = self.pause(table).map_or(Need::Buffer, |pause| pause.needs);
        let did = move |client: &&LeftClient| {
            needs.of(&client.inserted, &client.drawn).is_some_and(|[what_it_needs, _]| what_it_needs.contains(&table))
        };
        self.state.left.iter().filter(did)
    }

    /// The tables whose waits follow from those of `first`, nearest first, in steps. Each step lacks what the clients of
    /// the one before it would do.
    pub fn followers(&self, first: usize) -> Vec<Vec<usize>> {
        let mut seen = BTreeSet::from([first]);
        let mut steps = vec![vec![first]];
        loop {
            let last = &steps[steps.len() - 1];
            let waiters: BTreeSet<usize> =
                last.iter().filter_map(|&table| self.pause(table)).flat_map(|pause| pause.waiters.clone()).collect();
            let follows = |table: &usize| {
                let is_helped = |pause: &Pause| pause.helpers.iter().any(|client| waiters.contains(client));
                !seen.contains(table) && self.is_downstream(*table) && self.pause(*table).is_some_and(is_helped)
            };
            let step: Vec<usize> = (0..self.paused.len()).filter(follows).collect();
            if step.is_empty() {
                return steps;
            }
            seen.extend(&step);
            steps.push(step);
        }
    }
}

/// How a table stands still. Who can help is not known yet.
fn pause(table: &TableState) -> Option<Pause> {
    let counted = |wait: &&WaitState| wait.kind != WaitKind::Newer;
    let longest = table.waits.iter().filter(counted).map(|wait| wait.waited).max()?;
    let lasted = longest.min(table.still);
    if lasted < PAUSE {
        return None;
    }
    let waits_for = |operation| table.waits.iter().filter(counted).any(|wait: &WaitState| wait.operation == operation);
    let needs = match (waits_for(Operation::Insert), waits_for(Operation::Sample)) {
        _ if table.both_wait => Need::Buffer,
        (true, _) => Need::Samples,
        (false, _) => Need::Inserts,
    };
    let stops_programs = table.waits.iter().any(|wait| wait.kind == WaitKind::Call);
    let kind = if stops_programs { WaitKind::Call } else { WaitKind::Ahead };
    let waiters: BTreeSet<usize> =
        table.waits.iter().filter(|wait| wait.kind == kind).map(|wait| wait.client).collect();
    let (waiters, helpers) = (waiters.into_iter().collect(), Vec::new());
    Some(Pause { lasted, needs, helpers, waiters, stops_programs, is_live: false })
}

/// What each client does.
fn parts(state: &ServerState) -> Vec<Part> {
    let part = |client: &ClientState| Part { inserts: client.inserted.clone(), draws: client.drawn.clone() };
    let mut parts: Vec<Part> = state.clients.iter().map(part).collect();
    for (table, waits) in state.tables.iter().map(|table| &table.waits).enumerate() {
        for wait in waits {
            let part = &mut parts[wait.client];
            match wait.operation {
                Operation::Insert => part.inserts.insert(table),
                Operation::Sample => part.draws.insert(table),
            };
        }
    }
    parts
}
