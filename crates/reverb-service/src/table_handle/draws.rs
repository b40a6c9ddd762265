//! The ways out: draws, their receipts, and draws that are given back.

use super::call::Call;
use super::handle::{TableHandle, closed, now_nanos};
use super::requests::{OPERATIONS_PER_LOCK, SampleWork};
use crate::lease::Lease;
use crate::peer::Peer;
use crate::stacking::stack;
use reverb_core::gather::{BatchLayout, Gatherer};
use reverb_core::{
    Confirmation, CopiedBatch, CopiedDraws, Delivery, Drawn, DrawnSlot, Error, Race, RaceReport, Result, Table,
    Trajectory,
};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

// limit (Draws): items of one batch, and of one draw from a server of dm-reverb | {} | `ResourceExhaustedError`
/// Maximum number of items of one draw. Without it, a table that does not count samples would draw any number that a
/// peer asks for.
pub const MAX_DRAWN: usize = 1 << 20;

/// The number of items that a draw asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrawRequest {
    /// Minimum number of items in the answer, unless the deadline passes.
    pub at_least: usize,
    /// Maximum number of items for which the draw waits.
    pub at_most: usize,
    /// Number of additional items to draw if the draw does not affect later draws (see
    /// [`TableHandle::counts_samples`]).
    pub ahead: usize,
    /// Whether a loader draws ahead of its program, which does not wait for the batch yet.
    pub is_ahead: bool,
}

impl DrawRequest {
    /// Asks for exactly `count` items.
    #[inline]
    pub fn exactly(count: usize) -> Self {
        Self { at_least: count, at_most: count, ahead: 0, is_ahead: false }
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if they contradict each other, [`Error::ResourceExhausted`] if `at_least` is too large.
    #[inline]
    pub fn check(&self) -> Result<()> {
        let &Self { at_least, at_most, .. } = self;
        if at_most == 0 || at_least > at_most {
            return Err(Error::invalid(format!(
                "`num_samples` must be > 0 and at least the number that must be drawn (got {at_most} and {at_least})"
            )));
        }
        if at_least > MAX_DRAWN {
            return Err(Error::ResourceExhausted(format!(
                "a batch of {at_least} items exceeds the maximum of {MAX_DRAWN} items"
            )));
        }
        Ok(())
    }
}

impl TableHandle {
    /// Draws items for a peer as the rate limiter allows.
    ///
    /// The call fails with [`Error::InvalidArgument`] if the numbers of items are not valid, and with
    /// [`Error::ResourceExhausted`] if `at_least` is too large or too many draws wait.
    pub fn sample(&self, request: DrawRequest, peer: &Arc<Peer>) -> Call<Vec<Drawn>> {
        if let Err(error) = request.check() {
            return Call::Done(Err(error));
        }
        let DrawRequest { at_least, at_most, ahead, is_ahead } = request;
        let at_most = at_most.min(MAX_DRAWN);
        let ahead = ahead.min(MAX_DRAWN - at_most);
        let wanted = at_most + if self.counts_samples() { 0 } else { ahead };
        let drawn = Vec::with_capacity(wanted.min(4096));
        self.submit(SampleWork { at_least, at_most, ahead, is_ahead, drawn }, peer, |_, _| Ok(()))
    }

    /// Draws a small batch and copies it under one lock, if no request waits; see
    /// [`reverb_core::Table::sample_copied`]. `None` if that is not possible. Nothing is drawn then.
    ///
    /// Under the same lock, `lease` may take what gives the draws back: [`reverb_core::Table::lease_copied`].
    #[inline]
    pub fn sample_copied<T>(
        &self,
        request: DrawRequest,
        squeeze_time: bool,
        used: Option<BatchLayout>,
        peer: &Peer,
        lease: impl FnOnce(&mut Table, &[DrawnSlot]) -> T,
    ) -> Option<(CopiedBatch, T)> {
        if request != DrawRequest::exactly(request.at_most) || !self.draws_stay() {
            return None;
        }
        let now = recent_nanos();
        // A draw confirms nothing.
        let (drawn, _kept) = self.turn(|turn| {
            let state = &mut *turn.state;
            // A draw may not overtake waiting draws, and it may allow waiting inserts, which this path does not serve.
            let may_draw = !state.closed && state.queues.samples.is_empty() && state.queues.inserts.is_empty();
            if !may_draw {
                return None;
            }
            let (batch, draws) = state.table.sample_copied(request.at_most, squeeze_time, used, now)?;
            let leased = lease(&mut state.table, &draws);
            Some((batch, leased))
        });
        if drawn.is_some() {
            peer.traffic.count_samples(request.at_most, self.place());
        }
        drawn
    }

    /// Makes the table's part in a race of several tables, at one moment; see [`Table::race`]. Nothing waits. The lease
    /// holds all draws until the caller has merged the reports of all tables, and says by [`Lease::keep`] which have won.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if the table was closed, [`Error::ResourceExhausted`] if the limit of the race is above
    /// [`OPERATIONS_PER_LOCK`], and those of [`Table::race`].
    pub fn race(&self, race: Race) -> Result<(RaceReport, Lease)> {
        if race.limit > OPERATIONS_PER_LOCK {
            return Err(Error::ResourceExhausted(format!(
                "a race for {} items exceeds the maximum of {OPERATIONS_PER_LOCK} items",
                race.limit
            )));
        }
        let (report, drawn) = self.change(|state, _| {
            if state.closed {
                return Err(closed());
            }
            let mut drawn = Vec::new();
            let report = state.table.race(race, &mut drawn)?;
            Ok((report, drawn))
        })?;
        Ok((report, Lease::raced(self.clone(), drawn)))
    }

    /// Counts draws of a race that have won, as samples of a peer.
    pub(crate) fn count_winners(&self, drawn: &[Drawn], peer: &Peer) {
        self.upkeep(|state| state.table.count_winners(drawn, now_nanos()));
        peer.traffic.count_samples(drawn.len(), self.place());
    }

    /// Gives the draws of an undelivered copied batch back.
    pub fn give_back_copied(&self, draws: &CopiedDraws) {
        self.change(|state, ended| state.table.give_back_copied(draws, &mut ended.removed));
    }

    /// Notes that samples have reached their caller. Until then, checkpoints hold them as not drawn.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if the table counts samples and was closed, because the last checkpoint may hold them then. That
    /// of [`Journal::commit`](super::Journal::commit).
    #[inline]
    pub fn delivered(&self, drawn: &[Drawn]) -> Result<()> {
        // A table that has been told to count samples meanwhile tracks the last draws, but not the first.
        if !drawn.last().is_some_and(Drawn::is_tracked) {
            return Ok(());
        }
        if drawn.len() > OPERATIONS_PER_LOCK {
            return self.deliver_in_steps(drawn);
        }
        self.if_open(|table, removed| table.delivered(drawn, removed))
    }

    /// The first step decides about all draws, so neither a checkpoint nor a stop can divide them. If the table is
    /// journaled, each step notes its draws, and may be the last. Then the caller hears of an error.
    #[cold]
    fn deliver_in_steps(&self, drawn: &[Drawn]) -> Result<()> {
        if self.with_table(Table::is_journaled) {
            let mut steps = drawn.chunks(OPERATIONS_PER_LOCK);
            return steps.try_for_each(|drawn| self.if_open(|table, removed| table.delivered(drawn, removed)));
        }
        let delivery = Delivery::of(drawn);
        self.if_open(|table, _| table.begin_delivery(delivery))?;
        self.in_steps(|table, removed| table.continue_deliveries(OPERATIONS_PER_LOCK, removed));
        Ok(())
    }

    /// As [`TableHandle::delivered`], for a copied batch.
    pub(crate) fn delivered_copied(&self, draws: &CopiedDraws) -> Result<()> {
        if !draws.are_tracked() {
            return Ok(());
        }
        self.if_open(|table, removed| table.delivered_copied(draws, removed))
    }

    /// Notes a receipt, unless the table was closed.
    fn if_open(&self, receive: impl FnOnce(&mut Table, &mut Vec<Trajectory>)) -> Result<()> {
        let (received, kept) = self.turn(|turn| {
            if turn.state.closed {
                return Err(closed());
            }
            receive(&mut turn.state.table, &mut turn.ended.removed);
            // Where only counts change, too: the draws count from now on.
            turn.state.table.confirm(Confirmation::Written);
            Ok(())
        });
        received.and(kept)
    }

    /// Makes steps of upkeep until one returns false. Between two steps others may use the table, and what has left it
    /// is dropped.
    fn in_steps(&self, mut step: impl FnMut(&mut Table, &mut Vec<Trajectory>) -> bool) {
        let mut removed = Vec::new();
        while self.upkeep(|state| step(&mut state.table, &mut removed)) {
            removed.clear();
        }
    }

    /// Notes that samples have left their lease which the table does not track.
    #[inline]
    pub(crate) fn end_untracked(&self, count: usize) {
        if self.0.expects_untracked.load(Relaxed) {
            self.upkeep(|state| state.table.end_untracked(count as u64));
            self.in_steps(|table, removed| table.continue_untracked(OPERATIONS_PER_LOCK, removed));
        }
    }

    /// Adds to the number of samples on their way to a client.
    pub(crate) fn count_undelivered(&self, count: usize) {
        self.0.undelivered.fetch_add(count as u64, Relaxed);
    }

    /// Subtracts samples that have arrived or were given back from that number.
    pub(crate) fn count_delivered(&self, count: usize) {
        self.0.undelivered.fetch_sub(count as u64, Relaxed);
    }

    /// Plans a batch of drawn items, as [`stack`] does. Returns the others to the table.
    ///
    /// # Errors
    /// Those of [`stack`]. All items are back in the table then.
    pub fn stack(&self, drawn: Vec<Drawn>, at_least: usize, squeeze_time: bool) -> Result<Gatherer> {
        stack(self.name(), drawn, at_least, squeeze_time, |items| self.give_back(items))
    }
}

/// The time as of the last tick of the system's clock, a few milliseconds ago at most. A quarter of the cost of
/// [`now_nanos`], which a small batch would feel.
#[cfg(target_os = "linux")]
fn recent_nanos() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to `time` only.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut time) } != 0;
    if failed { now_nanos() } else { time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64 }
}

#[cfg(not(target_os = "linux"))]
fn recent_nanos() -> u64 {
    now_nanos()
}
