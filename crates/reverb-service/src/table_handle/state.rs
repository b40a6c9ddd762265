//! What the lock of a table guards, and the steps in which the heads of both queues are served in turns.

use super::counts::StartCounts;
use super::inserts_by_client::InsertsByClient;
use super::journal::{self, Commit, Journal};
use super::requests::{Ended, OPERATIONS_PER_LOCK, OPERATIONS_PER_STEP, Queues, STEPS_PER_TURN, SampleWork};
use super::room::{Gate, Room};
use reverb_core::published_room::Tally;
use reverb_core::{Confirmation, LimiterKind, Result, Table};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Minimum size in bytes of freed data that is worth returning to the system.
pub const WORTH_A_TRIM: u64 = 16 << 20;

/// The data that the lock of a table guards.
#[derive(Debug)]
pub struct TableState {
    pub table: Table,
    /// Keeps the effects of the table, if it is journaled.
    pub journal: Option<Arc<dyn Journal>>,
    pub queues: Queues,
    /// The limiter of the whole cluster, once a client of it has used the table.
    pub room: Option<Box<Room>>,
    /// What the table counts for the limiter of the whole cluster.
    pub counts: StartCounts,
    pub inserts_by_client: InsertsByClient,
    pub next_ticket: u64,
    /// The ticket of the draw that was interrupted last, so that the next one can continue; 0 to begin with the first.
    pub interrupted: u64,
    /// Number of threads that have let go of the lock between two turns and will serve the queues again.
    pub servers: usize,
    pub closed: bool,
    pub made: Instant,
    pub insert_clock: WaitClock,
    pub sample_clock: WaitClock,
    /// Maximum size of the table in bytes since it last shrank considerably.
    pub peak_bytes: u64,
    /// Whether the table has shrunk considerably and maintenance was not told yet.
    pub shrunk: bool,
}

/// Measures the total time during which requests wait.
#[derive(Debug, Default)]
pub struct WaitClock {
    since: Option<Instant>,
    total: Duration,
}

impl WaitClock {
    #[inline(always)]
    fn set(&mut self, waits: bool) {
        if self.since.is_some() != waits {
            self.switch();
        }
    }

    #[cold]
    fn switch(&mut self) {
        match self.since.take() {
            None => self.since = Some(Instant::now()),
            Some(since) => self.total += since.elapsed(),
        }
    }

    pub fn total_seconds(&self) -> f64 {
        (self.total + self.since.map_or(Duration::ZERO, |since| since.elapsed())).as_secs_f64()
    }
}

impl TableState {
    pub fn new(table: Table) -> Self {
        Self {
            counts: StartCounts::new(&table, Tally::default(), 0),
            table,
            journal: None,
            queues: Queues::default(),
            room: None,
            inserts_by_client: InsertsByClient::default(),
            next_ticket: 1,
            interrupted: 0,
            servers: 0,
            closed: false,
            made: Instant::now(),
            insert_clock: WaitClock::default(),
            sample_clock: WaitClock::default(),
            peak_bytes: 0,
            shrunk: false,
        }
    }

    /// Returns what the turn that ends has to commit. Called under the lock.
    #[inline]
    pub fn commit(&mut self) -> Commit {
        let journal = self.journal.as_ref()?;
        let confirmation = self.table.take_confirmation();
        (confirmation > Confirmation::Nothing).then(|| (journal.clone(), confirmation))
    }

    /// Whether inserts of tasks are in the table before they are answered.
    pub fn waits_for_disk(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.waits_for_disk())
    }

    /// Checks that a change which has to be confirmed can be. The end of the table has an error of its own.
    ///
    /// # Errors
    /// Those of [`Journal::check`].
    #[inline]
    pub fn check_journal(&self) -> Result<()> {
        match &self.journal {
            Some(journal) if !self.closed => journal.check(),
            _ => Ok(()),
        }
    }

    /// What the table of this shard, if it is of one, knows of the counts of all shards of its cluster.
    pub fn tally(&mut self, shard: Option<u32>) -> Tally {
        match (&mut self.room, shard) {
            (Some(room), _) => room.tally(self.counts.count(&self.table)),
            (None, Some(shard)) => self.counts.tally(shard, &self.table),
            (None, None) => self.counts.known.clone(),
        }
    }

    /// Says how many inserts may go now.
    #[inline]
    pub fn gate(&mut self) -> Gate {
        match &mut self.room {
            None => Gate::LOCAL,
            Some(room) => room.gate(&self.table, self.counts.count(&self.table)),
        }
    }

    /// Makes the room of this shard, for shards with these ids.
    ///
    /// # Errors
    /// Those of [`Room::new`].
    pub fn make_room(&mut self, id: u32, map: BTreeSet<u32>) -> Result<()> {
        self.room = Some(Box::new(Room::new(&self.table, id, map, &mut self.counts)?));
        Ok(())
    }

    /// Makes the room anew, or drops it, if the options of the table have changed in what concerns it.
    pub fn settle_room(&mut self) {
        if self.room.as_ref().is_some_and(|room| !room.is_of(&self.table)) {
            let known = self.tally(None);
            self.start_again(self.counts.again(&self.table, known));
        }
    }

    /// Starts to count again. Makes a room that there was anew, without clients: they attach
    /// themselves again. Drops it if the limiter keeps no ratio any more, or one with bounds that are too narrow.
    pub fn start_again(&mut self, counts: StartCounts) {
        self.counts = counts;
        let room = self.room.take();
        if let Some(room) = room.filter(|_| self.table.limiter_view().kind() == LimiterKind::Ratio) {
            let _narrow = self.make_room(room.incarnation.shard, room.map);
        }
    }

    /// Lets the clocks run while requests wait.
    #[inline]
    pub fn set_clocks(&mut self) {
        self.insert_clock.set(!self.queues.inserts.is_empty());
        self.sample_clock.set(!self.queues.samples.is_empty());
    }

    /// Checks whether the table has dropped more than half of its data, and enough to return memory to the system.
    pub fn has_shrunk(&mut self) -> bool {
        let bytes = self.table.bytes();
        self.peak_bytes = self.peak_bytes.max(bytes);
        let given_up = self.peak_bytes - bytes;
        if given_up > WORTH_A_TRIM && given_up > self.peak_bytes / 2 {
            self.peak_bytes = bytes;
            self.shrunk = true;
        }
        self.shrunk
    }

    /// Makes as many steps as one turn has. Returns false if no further progress is possible.
    #[inline]
    pub fn take_turn(&mut self, now: u64, ended: &mut Ended) -> bool {
        let has_more = (0..STEPS_PER_TURN).all(|_| self.step(now, ended));
        if has_more && self.queues.turns.are_several() {
            self.interrupt_large_insert();
        }
        has_more
    }

    /// Lets other clients insert before a large insert goes on that did not have to wait.
    #[cold]
    fn interrupt_large_insert(&mut self) {
        let Queues { inserts, turns, .. } = &mut self.queues;
        let head = turns.current().and_then(|ticket| inserts.get_mut(ticket));
        if let Some(head) = head.filter(|head| !head.waited && head.work.total > OPERATIONS_PER_LOCK) {
            turns.pass_from(head.work.turn);
        }
    }

    /// Makes one step: one or more inserts of the insert whose turn it is, and draws of a waiting draw. Returns false if
    /// no progress is possible.
    fn step(&mut self, now: u64, ended: &mut Ended) -> bool {
        let inserted = self.step_insert(now, ended);
        let drawn = self.step_sample(now, ended);
        inserted || drawn || self.finish_short(ended)
    }

    fn step_insert(&mut self, now: u64, ended: &mut Ended) -> bool {
        if self.queues.inserts.is_empty() {
            return false;
        }
        let gate = self.gate();
        let Queues { inserts, samples, turns } = &mut self.queues;
        let head = match turns.current() {
            None => inserts.front_mut(),
            Some(ticket) => inserts.get_mut(ticket),
        };
        let Some(head) = head else { return false };
        // An insert that did not have to wait goes on to its end, or, if it is large, to that of this turn of the table.
        // Others insert one item each time.
        let takes_turns = head.waited && turns.are_several();
        // Without waiting draws, inserts do not have to take turns with them.
        let at_most = if samples.is_empty() && !takes_turns { OPERATIONS_PER_STEP } else { 1 };
        let work = &mut head.work;
        let before = work.items.len();
        let next = &work.items.as_slice()[..before.min(at_most)];
        self.table.read_ahead(next);
        if self.table.is_full() {
            ended.removed.reserve(next.len());
        }
        let by = work.by.as_ref().map(|(ledger, sequence)| (&**ledger, *sequence));
        let is_open = gate.is_open(&self.table);
        // One that is still in its call was checked a moment ago.
        let refusal = match &self.journal {
            Some(journal) if is_open && head.waiter.is_some() => journal.check().err().map(Box::new),
            _ => None,
        };
        if is_open && refusal.is_none() {
            let mut room = at_most;
            // Not with `next`: its `Option` makes the compiler copy an item in pieces, and each read of a field that lies
            // in two of them waits for both.
            let _ = work.items.try_for_each(|item| {
                journal::insert(&mut self.table, item, by, now, &mut ended.removed);
                room -= 1;
                (room > 0 && gate.is_open(&self.table)).then_some(())
            });
        }
        let (left, ticket, turn) = (work.items.len(), head.ticket, work.turn);
        self.inserts_by_client.add(work.counter, before - left);
        let has_ended = left == 0 || refusal.is_some();
        if refusal.is_some() {
            ended.failure = refusal;
        }
        if has_ended {
            turns.leave(turn, ticket);
            ended.inserts.extend(inserts.remove(ticket));
        }
        // Also an insert that has ended passes the turn, because its client may have others.
        if has_ended || takes_turns && left < before {
            turns.pass_from(turn);
        }
        has_ended || left < before
    }

    fn step_sample(&mut self, now: u64, ended: &mut Ended) -> bool {
        let Some(request) = self.queues.samples.after_mut(self.interrupted) else { return false };
        let (ticket, waited, work) = (request.ticket, request.waited, &mut request.work);
        let all = work.wanted(&self.table);
        let wanted = all.min(work.drawn.len() + OPERATIONS_PER_STEP);
        let progress = self.table.sample_up_to(wanted, waited, now, &mut work.drawn);
        if work.drawn.len() >= all {
            self.finish_sample(ticket, ended);
            return true;
        }
        // Large draws take turns with the draws behind them where no draw affects another.
        let is_alone = self.queues.samples.len() == 1;
        self.interrupted = if is_alone || self.table.config().counts_samples() { 0 } else { ticket };
        progress
    }

    /// Answers the first waiting draw with fewer samples than wanted, if it has enough. Called if no other progress is
    /// possible.
    fn finish_short(&mut self, ended: &mut Ended) -> bool {
        let enough = self.queues.samples.front().filter(|head| {
            let SampleWork { at_least, drawn, .. } = &head.work;
            !drawn.is_empty() && drawn.len() >= *at_least
        });
        let Some(ticket) = enough.map(|head| head.ticket) else { return false };
        self.finish_sample(ticket, ended);
        true
    }

    #[inline]
    fn finish_sample(&mut self, ticket: u64, ended: &mut Ended) {
        ended.samples.push(self.queues.samples.remove(ticket).expect("the request is in its queue"));
    }
}
