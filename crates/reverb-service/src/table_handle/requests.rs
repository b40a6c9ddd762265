//! The two kinds of requests to a table, and what each does in its queue: inserts and draws.

use super::room::Room;
use super::ticket_queue::{self, TicketQueue, Waiter};
use super::turns::{InsertTurn, Turns};
use crate::peer::Traffic;
use crate::tables_used::Place;
use crate::write_ledger::Ledger;
use reverb_core::words::{counted, number};
use reverb_core::{Drawn, Error, NewItem, Result, Table, Trajectory};
use std::fmt::Debug;
use std::sync::Arc;

/// Maximum number of draws in one step, and of inserts while no draw waits.
pub const OPERATIONS_PER_STEP: usize = 512;
/// Number of steps after which other threads get a chance to take the lock.
pub const STEPS_PER_TURN: usize = 16;
// limit (Tables): inserts, draws, updates and deletes under one lock of a table | {} | others get in between, and may
// see a part of the call
// limit (Tables): removals of one step of `configure_table`, between which others use the table | {} |
/// Maximum number of inserts, draws and other changes under one lock.
pub const OPERATIONS_PER_LOCK: usize = 2 * OPERATIONS_PER_STEP * STEPS_PER_TURN;

/// What dm-reverb says of a request whose deadline has passed, also of a draw.
pub const TIMED_OUT: &str = "Rate Limiter: Timeout exceeded before the right to insert was acquired.";

/// Says what an insert into the table with this name waits for whose items are in the table.
pub fn waits_for_disk(name: &str) -> String {
    format!("{} waits: its items are in the table, and the disk has not confirmed the log yet", InsertWork::title(name))
}

/// The kind of a waiting request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// An insert.
    Insert,
    /// A draw.
    Sample,
}

impl Operation {
    /// Returns the name of the kind, for display.
    pub fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Sample => "sample",
        }
    }
}

/// Who waits for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitKind {
    /// The program.
    Call,
    /// A loader that draws ahead of its program, which may be busy.
    Ahead,
    /// A program that waits for a newer version.
    Newer,
}

impl WaitKind {
    /// Returns the name of the kind, for display.
    pub fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Ahead => "ahead",
            Self::Newer => "newer",
        }
    }
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
    /// The ledger that the item is entered in, and its number there. `None` for items that are not sent again.
    pub by: Option<(Arc<Ledger>, u64)>,
    pub turn: InsertTurn,
    /// The index of its client in the counts of inserted items.
    pub counter: usize,
}

const _: () = assert!(size_of::<Request<InsertWork>>() <= 128, "a larger one is moved by a call of memcpy");

/// A request to draw a batch.
#[derive(Debug, Default)]
pub struct SampleWork {
    /// Minimum number of items in the answer, unless the deadline passes.
    pub at_least: usize,
    /// Number of items that the caller asked for.
    pub at_most: usize,
    /// Extra items to draw if the table does not count samples.
    pub ahead: usize,
    /// Whether a loader draws ahead of its program.
    pub is_ahead: bool,
    pub drawn: Vec<Drawn>,
}

impl SampleWork {
    /// Number of items for which the request waits. A change of the table's options may change it.
    pub fn wanted(&self, table: &Table) -> usize {
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
    fn queue(queues: &mut Queues) -> &mut Requests<Self>;
    fn ended(ended: &mut Ended) -> &mut Vec<Request<Self>>;
    /// Whose turn the request takes. `None` if requests of its kind do not take turns.
    fn turn(&self) -> Option<InsertTurn> {
        None
    }
    /// Who waits for the request.
    fn kind(&self) -> WaitKind {
        WaitKind::Call
    }
    /// Adds the items that the request has inserted into a table, or drawn from it, to the counts of its peer.
    fn count(&self, traffic: &Traffic, table: Place);
    /// Whether the request is complete.
    fn is_done(&self) -> bool;
    /// Returns the result of a request that is complete.
    fn reply(self) -> Self::Reply;
    /// Returns the result of a request whose deadline passes before it is complete.
    fn expire(self, reason: &str) -> Result<Self::Reply>;
    /// Says what a request does at the table with this name.
    fn title(name: &str) -> String;
    /// Returns the number of items that the request still waits for.
    fn missing(&self) -> u64;
    /// Says what the request waits for, as the end of a sentence.
    fn reason(&self, table: &Table, room: Option<&Room>) -> String;
    /// Says what the request waits for at the table with this name.
    fn explain(&self, table: &Table, room: Option<&Room>, name: &str) -> String {
        format!("{} waits: {}", Self::title(name), self.reason(table, room))
    }
    /// Undoes operations whose result was not delivered, [`OPERATIONS_PER_LOCK`] of them at most.
    fn undo(&mut self, _table: &mut Table, _removed: &mut Vec<Trajectory>) {}
}

impl Work for InsertWork {
    type Reply = ();
    const OPERATION: Operation = Operation::Insert;

    fn queue(queues: &mut Queues) -> &mut Requests<Self> {
        &mut queues.inserts
    }

    fn ended(ended: &mut Ended) -> &mut Vec<Request<Self>> {
        &mut ended.inserts
    }

    #[inline]
    fn turn(&self) -> Option<InsertTurn> {
        Some(self.turn)
    }

    #[inline]
    fn count(&self, traffic: &Traffic, table: Place) {
        traffic.count_inserts(self.total - self.items.len(), table);
    }

    #[inline]
    fn is_done(&self) -> bool {
        self.items.as_slice().is_empty()
    }

    fn reply(self) {}

    fn expire(self, reason: &str) -> Result<()> {
        let (done, all) = (number((self.total - self.items.len()) as u64), counted(self.total as u64, "item"));
        let were = if self.total == 1 { "was" } else { "were" };
        Err(Error::DeadlineExceeded(format!("{done} of {all} {were} inserted; {reason}\n{TIMED_OUT}")))
    }

    fn title(name: &str) -> String {
        format!("insert into table `{name}`")
    }

    fn missing(&self) -> u64 {
        self.items.len() as u64
    }

    fn reason(&self, table: &Table, room: Option<&Room>) -> String {
        match room {
            Some(room) => room.insert_waits_for(self.missing()),
            None => table.limiter_view().insert_waits_for(self.missing()),
        }
    }
}

impl Work for SampleWork {
    type Reply = Vec<Drawn>;
    const OPERATION: Operation = Operation::Sample;

    fn queue(queues: &mut Queues) -> &mut Requests<Self> {
        &mut queues.samples
    }

    fn ended(ended: &mut Ended) -> &mut Vec<Request<Self>> {
        &mut ended.samples
    }

    fn kind(&self) -> WaitKind {
        if self.is_ahead { WaitKind::Ahead } else { WaitKind::Call }
    }

    #[inline]
    fn count(&self, traffic: &Traffic, table: Place) {
        traffic.count_samples(self.drawn.len(), table);
    }

    #[inline]
    fn is_done(&self) -> bool {
        !self.drawn.is_empty()
    }

    fn reply(self) -> Vec<Drawn> {
        self.drawn
    }

    fn expire(self, reason: &str) -> Result<Vec<Drawn>> {
        if !self.drawn.is_empty() {
            return Ok(self.drawn);
        }
        Err(Error::DeadlineExceeded(format!("{reason}\n{TIMED_OUT}")))
    }

    fn title(name: &str) -> String {
        format!("sample of table `{name}`")
    }

    fn missing(&self) -> u64 {
        self.at_least.saturating_sub(self.drawn.len()).max(1) as u64
    }

    fn reason(&self, table: &Table, _: Option<&Room>) -> String {
        table.limiter_view().sample_waits_for(self.missing())
    }

    fn undo(&mut self, table: &mut Table, removed: &mut Vec<Trajectory>) {
        give_back(table, &mut self.drawn, OPERATIONS_PER_LOCK, removed, Table::give_back);
    }
}

/// Gives one draw back: [`Table::give_back`] or [`Table::give_back_loser`].
pub type GiveBack = fn(&mut Table, Drawn, &mut Vec<Trajectory>) -> bool;

/// Gives back the last draws, at most `count` of them. In reverse order, so that each finds the table in the state after
/// its draw.
pub fn give_back(table: &mut Table, drawn: &mut Vec<Drawn>, count: usize, removed: &mut Vec<Trajectory>, by: GiveBack) {
    let rest = drawn.len().saturating_sub(count);
    for draw in drawn.drain(rest..).rev() {
        by(table, draw, removed);
    }
}

/// The waiting requests of a table.
#[derive(Debug, Default)]
pub struct Queues {
    pub inserts: Requests<InsertWork>,
    pub samples: Requests<SampleWork>,
    /// The turns of the inserts.
    pub turns: Turns,
}

impl Queues {
    /// Number of inserts that wait. The items of one stream count as one.
    pub fn num_inserts(&self) -> usize {
        self.inserts.len() - self.turns.num_behind()
    }

    /// Whether the queue of a request has no room for it. An item of a stream that waits needs no more.
    pub fn are_full<W: Work>(&mut self, work: &W, limit: usize) -> bool {
        let turn = work.turn();
        let waiting = if turn.is_some() { self.num_inserts() } else { W::queue(self).len() };
        waiting >= limit && !turn.and_then(|turn| turn.stream).is_some_and(|stream| self.turns.has_stream(stream))
    }

    /// Lets a request wait, and take turns if those of its kind do.
    pub fn wait<W: Work>(&mut self, ticket: u64, waiter: Waiter<W::Reply>) {
        let request = W::queue(self).get_mut(ticket).expect("the request is still in its queue");
        request.waiter = Some(waiter);
        if let Some(turn) = request.work.turn() {
            self.turns.join(turn, ticket);
        }
    }

    /// Removes a request before it is done.
    pub fn withdraw<W: Work>(&mut self, ticket: u64) -> Option<Request<W>> {
        let request = W::queue(self).remove(ticket)?;
        if let Some(turn) = request.work.turn() {
            self.turns.leave(turn, ticket);
        }
        Some(request)
    }
}

/// What leaves a table when a turn lets go of the lock: requests that have ended, and data to drop.
#[derive(Default)]
pub struct Ended {
    pub inserts: Vec<Request<InsertWork>>,
    pub samples: Vec<Request<SampleWork>>,
    pub removed: Vec<Trajectory>,
    /// Why requests have ended that are not complete.
    pub failure: Option<Box<Error>>,
}

impl Ended {
    /// Takes the request with this ticket, if it has ended.
    #[inline]
    pub fn take_own<W: Work>(&mut self, ticket: u64) -> Option<W> {
        let ended = W::ended(self);
        let index = ended.iter().position(|request| request.ticket == ticket)?;
        Some(ended.swap_remove(index).work)
    }
}
