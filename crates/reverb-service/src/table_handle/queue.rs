//! The two queues of a table: waiting inserts and waiting draws, whose heads are served in turns.

use super::operation::Operation;
use super::status::WaitClock;
use super::ticket_queue::{self, TicketQueue};
use crate::peer::Traffic;
use reverb_core::{Drawn, Error, NewItem, Result, Table, TableSnapshot, Trajectory};
use std::fmt::Debug;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// Maximum number of draws in one step, and of inserts while no draw waits.
pub const OPERATIONS_PER_STEP: usize = 512;
/// Number of steps after which other threads get a chance to take the lock.
const STEPS_PER_TURN: usize = 16;
// limit (Tables): inserts, draws, updates and deletes under one lock of a table | {} | others get in between, and may
// see a part of the call
// limit (Tables): removals of one step of `configure_table`, between which others use the table | {} |
/// Maximum number of inserts, draws and other changes under one lock.
pub const OPERATIONS_PER_LOCK: usize = 2 * OPERATIONS_PER_STEP * STEPS_PER_TURN;

/// Minimum size in bytes of freed data that is worth returning to the system.
pub const WORTH_A_TRIM: u64 = 16 << 20;

/// The data that the lock of a table guards.
#[derive(Debug)]
pub struct TableState {
    pub table: Table,
    pub inserts: Requests<InsertWork>,
    pub samples: Requests<SampleWork>,
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

/// A waiting request of one kind.
pub type Request<W> = ticket_queue::Request<W, <W as Work>::Reply>;
/// The waiting requests of one kind.
pub type Requests<W> = TicketQueue<W, <W as Work>::Reply>;

/// A request to insert items one after another.
#[derive(Debug, Default)]
pub struct InsertWork {
    pub items: std::vec::IntoIter<NewItem>,
    pub total: usize,
}

/// A request to draw a batch.
#[derive(Debug, Default)]
pub struct SampleWork {
    /// Minimum number of items in the answer, unless the deadline passes.
    pub at_least: usize,
    /// Number of items that the caller asked for.
    pub at_most: usize,
    /// Extra items to draw if the table does not count samples.
    pub ahead: usize,
    pub drawn: Vec<Drawn>,
}

impl SampleWork {
    /// Number of items for which the request waits. A change of the table's options may change it.
    fn wanted(&self, table: &Table) -> usize {
        self.at_most + if table.config().counts_samples() { 0 } else { self.ahead }
    }
}

/// The result of a call: nothing for an insert, the samples for a draw.
pub trait Reply: Sized + Send + Debug + 'static {
    /// The kind of request that this answers.
    #[doc(hidden)]
    type Work: Work<Reply = Self>;
    /// Returns the samples, which return to the table if the answer cannot be delivered.
    #[doc(hidden)]
    fn into_drawn(self) -> Vec<Drawn>;
}

impl Reply for () {
    type Work = InsertWork;

    fn into_drawn(self) -> Vec<Drawn> {
        Vec::new()
    }
}

impl Reply for Vec<Drawn> {
    type Work = SampleWork;

    fn into_drawn(self) -> Self {
        self
    }
}

/// A kind of request. Implemented by inserts and draws only.
pub trait Work: Default + Send {
    type Reply: Reply<Work = Self>;
    const OPERATION: Operation;
    fn queue(state: &mut TableState) -> &mut Requests<Self>;
    fn finished(turn: &mut Turn) -> &mut Vec<Request<Self>>;
    /// Adds the items that the request has inserted or drawn to the counts of its peer.
    fn count(&self, traffic: &Traffic);
    /// Returns the result of a request that is complete.
    fn reply(self) -> Self::Reply;
    /// Returns the result of a request whose deadline passes before it is complete.
    fn expire(self, reason: &str) -> Result<Self::Reply>;
    /// Says what the first request waits for.
    fn explain(table: &Table, name: &str) -> String;
    /// Undoes operations whose result was not delivered, [`OPERATIONS_PER_LOCK`] of them at most.
    fn undo(&mut self, table: &mut Table, removed: &mut Vec<Trajectory>);
}

impl Work for InsertWork {
    type Reply = ();
    const OPERATION: Operation = Operation::Insert;

    fn queue(state: &mut TableState) -> &mut Requests<Self> {
        &mut state.inserts
    }

    fn finished(turn: &mut Turn) -> &mut Vec<Request<Self>> {
        &mut turn.inserts
    }

    #[inline]
    fn count(&self, traffic: &Traffic) {
        traffic.inserts.fetch_add((self.total - self.items.len()) as u64, Relaxed);
    }

    fn reply(self) {}

    fn expire(self, reason: &str) -> Result<()> {
        let done = self.total - self.items.len();
        Err(Error::DeadlineExceeded(format!(
            "Timeout exceeded: {done} of {} items were inserted; {reason}",
            self.total
        )))
    }

    fn explain(table: &Table, name: &str) -> String {
        format!("insert into table `{name}` waits: {}", table.explain_insert())
    }

    fn undo(&mut self, _: &mut Table, _: &mut Vec<Trajectory>) {}
}

impl Work for SampleWork {
    type Reply = Vec<Drawn>;
    const OPERATION: Operation = Operation::Sample;

    fn queue(state: &mut TableState) -> &mut Requests<Self> {
        &mut state.samples
    }

    fn finished(turn: &mut Turn) -> &mut Vec<Request<Self>> {
        &mut turn.samples
    }

    #[inline]
    fn count(&self, traffic: &Traffic) {
        traffic.samples.fetch_add(self.drawn.len() as u64, Relaxed);
    }

    fn reply(self) -> Vec<Drawn> {
        self.drawn
    }

    fn expire(self, reason: &str) -> Result<Vec<Drawn>> {
        if !self.drawn.is_empty() {
            return Ok(self.drawn);
        }
        Err(Error::DeadlineExceeded(format!(
            "Rate Limiter: Timeout exceeded before the right to sample was acquired; {reason}"
        )))
    }

    fn explain(table: &Table, name: &str) -> String {
        format!("sample of table `{name}` waits: {}", table.explain_sample())
    }

    fn undo(&mut self, table: &mut Table, removed: &mut Vec<Trajectory>) {
        give_back_last(&mut self.drawn, table, removed);
    }
}

/// Gives back the last draws, [`OPERATIONS_PER_LOCK`] of them at most. In reverse order, so that each finds the table in
/// the state after its draw.
pub fn give_back_last(drawn: &mut Vec<Drawn>, table: &mut Table, removed: &mut Vec<Trajectory>) {
    let rest = drawn.len().saturating_sub(OPERATIONS_PER_LOCK);
    drawn.drain(rest..).rev().for_each(|drawn| table.give_back(drawn, removed));
}

/// The requests that a turn has finished, and the data to drop after unlocking.
#[derive(Default)]
pub struct Turn {
    pub inserts: Vec<Request<InsertWork>>,
    pub samples: Vec<Request<SampleWork>>,
    pub removed: Vec<Trajectory>,
}

impl TableState {
    /// What a checkpoint keeps of the table and of what waits at it: the table, as if the draws had not been made whose
    /// samples wait for more or are on their way. Requests that wait are not kept.
    pub fn snapshot(&self) -> TableSnapshot {
        self.table.snapshot_without_flights()
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
    pub fn take_turn(&mut self, now: u64, turn: &mut Turn) -> bool {
        (0..STEPS_PER_TURN).all(|_| self.step(now, turn))
    }

    /// Makes one step: one or more inserts of the first waiting insert, and draws of a waiting draw. Returns false if no
    /// progress is possible.
    fn step(&mut self, now: u64, turn: &mut Turn) -> bool {
        let inserted = self.step_insert(now, turn);
        let drawn = self.step_sample(now, turn);
        inserted || drawn || self.finish_short(turn)
    }

    fn step_insert(&mut self, now: u64, turn: &mut Turn) -> bool {
        let Some(head) = self.inserts.front_mut() else { return false };
        // Without waiting draws, inserts do not have to take turns.
        let turns = if self.samples.is_empty() { OPERATIONS_PER_STEP } else { 1 };
        let mut progress = false;
        let next = head.work.items.as_slice();
        self.table.read_ahead(&next[..next.len().min(turns)]);
        for _ in 0..turns {
            if head.work.items.len() > 0 && !self.table.can_insert(1) {
                return progress;
            }
            let Some(item) = head.work.items.next() else { break };
            self.table.insert(item, now, &mut turn.removed);
            progress = true;
        }
        if head.work.items.len() == 0 {
            let request = self.inserts.pop_front().expect("the queue has a head");
            turn.inserts.push(request);
            return true;
        }
        progress
    }

    fn step_sample(&mut self, now: u64, turn: &mut Turn) -> bool {
        let Some(request) = self.samples.after_mut(self.interrupted) else { return false };
        let (ticket, work) = (request.ticket, &mut request.work);
        let all = work.wanted(&self.table);
        let wanted = all.min(work.drawn.len() + OPERATIONS_PER_STEP);
        let progress = self.table.sample_up_to(wanted, request.waited, now, &mut work.drawn);
        if work.drawn.len() >= all {
            self.finish_sample(ticket, turn);
            return true;
        }
        // Large draws take turns with the draws behind them where no draw affects another.
        let is_alone = self.samples.len() == 1;
        self.interrupted = if is_alone || self.table.config().counts_samples() { 0 } else { ticket };
        progress
    }

    /// Answers the first waiting draw with fewer samples than wanted, if it has enough. Called if no other progress is
    /// possible.
    fn finish_short(&mut self, turn: &mut Turn) -> bool {
        let enough = self.samples.front().filter(|head| {
            let SampleWork { at_least, drawn, .. } = &head.work;
            !drawn.is_empty() && drawn.len() >= *at_least
        });
        let Some(ticket) = enough.map(|head| head.ticket) else { return false };
        self.finish_sample(ticket, turn);
        true
    }

    #[inline]
    fn finish_sample(&mut self, ticket: u64, turn: &mut Turn) {
        turn.samples.push(self.samples.remove(ticket).expect("the request is in its queue"));
    }
}

impl Turn {
    /// Takes the request with this ticket, if this turn has finished it.
    #[inline]
    pub fn take_own<W: Work>(&mut self, ticket: u64) -> Option<W> {
        let finished = W::finished(self);
        let index = finished.iter().position(|request| request.ticket == ticket)?;
        Some(finished.swap_remove(index).work)
    }
}
