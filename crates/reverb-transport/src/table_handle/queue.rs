//! The two queues of a table, and the turns in which their heads are served.

use super::status::WaitClock;
use super::waiting::Reply;
use reverb_core::{Drawn, Error, NewItem, Result, Table, Trajectory};
use std::collections::VecDeque;
use std::time::Instant;
use tokio::sync::oneshot;

/// Inserts in one step while nobody waits for samples; a larger request lets others take the lock in between.
pub const OPERATIONS_A_TURN: usize = 512;

/// Bytes of freed data that are worth returning to the system.
const WORTH_A_TRIM: u64 = 16 << 20;

/// What the lock of a table guards.
#[derive(Debug)]
pub struct State {
    pub table: Table,
    pub inserts: VecDeque<Request<InsertWork>>,
    pub samples: VecDeque<Request<SampleWork>>,
    pub next_ticket: u64,
    pub closed: bool,
    pub made: Instant,
    pub insert_clock: WaitClock,
    pub sample_clock: WaitClock,
    /// Most bytes that the table held since it last became much smaller, and whether that is news.
    pub peak_bytes: u64,
    pub shrunk: bool,
}

/// A request in its queue.
#[derive(Debug)]
pub struct Request<W: Work> {
    pub ticket: u64,
    pub work: W,
    /// Set when the caller could not be served at once.
    pub reply: Option<oneshot::Sender<Result<W::Reply>>>,
}

/// Items to be inserted one after another.
#[derive(Debug)]
pub struct InsertWork {
    pub items: std::vec::IntoIter<NewItem>,
    pub total: usize,
}

/// A batch to be drawn.
#[derive(Debug)]
pub struct SampleWork {
    /// It is answered with no fewer, unless its time ends.
    pub at_least: usize,
    /// It waits for no more.
    pub wanted: usize,
    pub drawn: Vec<Drawn>,
}

/// What a kind of request is made of; implemented by the two kinds only.
pub trait Work: Sized + Send {
    type Reply: Reply<Work = Self>;
    fn queue(state: &mut State) -> &mut VecDeque<Request<Self>>;
    fn finished(turn: &mut Turn) -> &mut Vec<(Request<Self>, Result<Self::Reply>)>;
    /// Operations that it takes at most.
    fn size(&self) -> usize;
    /// The result if the request ends now, before it is complete.
    fn expire(self, reason: &str) -> Result<Self::Reply>;
    fn explain(table: &Table, name: &str) -> String;
    /// Undoes what was done and not delivered.
    fn undo(self, table: &mut Table, removed: &mut Vec<Trajectory>);
}

impl Work for InsertWork {
    type Reply = ();

    fn queue(state: &mut State) -> &mut VecDeque<Request<Self>> {
        &mut state.inserts
    }

    fn finished(turn: &mut Turn) -> &mut Vec<(Request<Self>, Result<()>)> {
        &mut turn.inserts
    }

    fn size(&self) -> usize {
        self.items.len()
    }

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

    fn undo(self, _: &mut Table, removed: &mut Vec<Trajectory>) {
        removed.extend(self.items.map(|item| item.trajectory));
    }
}

impl Work for SampleWork {
    type Reply = Vec<Drawn>;

    fn queue(state: &mut State) -> &mut VecDeque<Request<Self>> {
        &mut state.samples
    }

    fn finished(turn: &mut Turn) -> &mut Vec<(Request<Self>, Result<Vec<Drawn>>)> {
        &mut turn.samples
    }

    fn size(&self) -> usize {
        self.wanted
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

    fn undo(self, table: &mut Table, removed: &mut Vec<Trajectory>) {
        // Last drawn, first returned, so that each finds the table as it left it.
        self.drawn.into_iter().rev().for_each(|drawn| table.give_back(drawn, removed));
    }
}

/// What a turn at the table has finished, and what is to be dropped after unlocking.
#[derive(Default)]
pub struct Turn {
    pub inserts: Vec<(Request<InsertWork>, Result<()>)>,
    pub samples: Vec<(Request<SampleWork>, Result<Vec<Drawn>>)>,
    pub removed: Vec<Trajectory>,
}

impl State {
    /// Notes whether the table has given up half of its data, and enough to be worth the trouble.
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

    /// Whether every waiting request could be finished by another thread.
    pub fn all_can_be_told(&self) -> bool {
        self.inserts.iter().all(|request| request.reply.is_some())
            && self.samples.iter().all(|request| request.reply.is_some())
    }

    /// One insert, and as many draws of the first waiting request as may go. False if nothing could be done.
    pub fn step(&mut self, now: u64, turn: &mut Turn) -> bool {
        let inserted = self.step_insert(now, turn);
        let drawn = self.step_sample(turn);
        inserted || drawn || self.finish_short(turn)
    }

    fn step_insert(&mut self, now: u64, turn: &mut Turn) -> bool {
        let Some(head) = self.inserts.front_mut() else { return false };
        // While nobody waits for samples there is no one to take turns with.
        let turns = if self.samples.is_empty() { OPERATIONS_A_TURN } else { 1 };
        let mut progress = false;
        for _ in 0..turns {
            if head.work.items.len() > 0 && !self.table.can_insert(1) {
                return progress;
            }
            let Some(item) = head.work.items.next() else { break };
            self.table.insert(item, now, &mut turn.removed);
            progress = true;
        }
        if head.work.items.len() == 0 {
            let request = self.inserts.pop_front().expect("the head is there");
            turn.inserts.push((request, Ok(())));
            return true;
        }
        progress
    }

    fn step_sample(&mut self, turn: &mut Turn) -> bool {
        let Some(head) = self.samples.front_mut() else { return false };
        let work = &mut head.work;
        let waited = head.reply.is_some();
        let progress = self.table.sample_up_to(work.wanted, waited, &mut work.drawn);
        if work.drawn.len() >= work.wanted {
            self.finish_sample(turn);
            return true;
        }
        progress
    }

    /// Where nothing else can be done, a draw that has enough is answered with what it has.
    fn finish_short(&mut self, turn: &mut Turn) -> bool {
        let enough = self.samples.front().is_some_and(|head| {
            let SampleWork { at_least, drawn, .. } = &head.work;
            !drawn.is_empty() && drawn.len() >= *at_least
        });
        if enough {
            self.finish_sample(turn);
        }
        enough
    }

    fn finish_sample(&mut self, turn: &mut Turn) {
        let mut request = self.samples.pop_front().expect("the head is there");
        let drawn = std::mem::take(&mut request.work.drawn);
        turn.samples.push((request, Ok(drawn)));
    }
}

impl Turn {
    /// The result of the caller's own request, if it was finished in this turn.
    pub fn take_own<W: Work>(&mut self, ticket: u64) -> Option<Result<W::Reply>> {
        W::finished(self)
            .iter()
            .position(|(request, _)| request.ticket == ticket)
            .map(|index| W::finished(self).swap_remove(index).1)
    }
}
