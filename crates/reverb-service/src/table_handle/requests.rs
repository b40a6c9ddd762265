//! Requests to a table: inserts and draws, which are served immediately or wait.

use super::handle::{CLOSED, TableHandle, recent_nanos};
use super::queue::{InsertWork, Request, SampleWork, TableState, Work};
use super::ticket_queue::Waiter;
use super::waiting::{Call, Waiting};
use crate::peer::Peer;
use crate::stacking::stack;
use parking_lot::MutexGuard;
use reverb_core::gather::{BatchLayout, Gatherer};
use reverb_core::{CopiedBatch, CopiedDraws, Drawn, Error, NewItem, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use tokio::sync::oneshot;

// limit (Tables): waiting requests of one kind at a table | {} | `ResourceExhaustedError`
/// Maximum number of waiting inserts, and of waiting draws, at one table. Further requests are refused.
const MAX_WAITING: usize = 100_000;
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
}

impl DrawRequest {
    /// Asks for exactly `count` items.
    #[inline]
    pub fn exactly(count: usize) -> Self {
        Self { at_least: count, at_most: count, ahead: 0 }
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
    /// Inserts items one after another as the rate limiter allows. The items must have passed
    /// [`TableHandle::check_all`].
    #[inline]
    pub fn insert(&self, items: Vec<NewItem>) -> Call<()> {
        self.insert_from(items, None)
    }

    /// As [`TableHandle::insert`], for a peer; `None` is this process.
    pub fn insert_from(&self, items: Vec<NewItem>, peer: Option<&Arc<Peer>>) -> Call<()> {
        let total = items.len();
        let items = items.into_iter();
        self.submit(InsertWork { items, total }, peer)
    }

    /// Draws items as the rate limiter allows.
    ///
    /// The call fails with [`Error::InvalidArgument`] if the numbers of items are not valid, and with
    /// [`Error::ResourceExhausted`] if `at_least` is too large or too many draws wait.
    #[inline]
    pub fn sample(&self, request: DrawRequest) -> Call<Vec<Drawn>> {
        self.sample_from(request, None)
    }

    /// As [`TableHandle::sample`], for a peer; `None` is this process.
    pub fn sample_from(&self, request: DrawRequest, peer: Option<&Arc<Peer>>) -> Call<Vec<Drawn>> {
        if let Err(error) = request.check() {
            return Call::Done(Err(error));
        }
        let DrawRequest { at_least, at_most, ahead } = request;
        let at_most = at_most.min(MAX_DRAWN);
        let ahead = ahead.min(MAX_DRAWN - at_most);
        let wanted = at_most + if self.counts_samples() { 0 } else { ahead };
        self.submit(SampleWork { at_least, at_most, ahead, drawn: Vec::with_capacity(wanted.min(4096)) }, peer)
    }

    /// Draws a small batch and copies it under one lock, if no request waits; see
    /// [`reverb_core::Table::sample_copied`]. `None` if that is not possible. Nothing is drawn then.
    pub fn sample_copied(
        &self,
        request: DrawRequest,
        squeeze_time: bool,
        used: Option<BatchLayout>,
    ) -> Option<CopiedBatch> {
        let now = recent_nanos();
        let copied = self.if_nobody_waits(request)?.table.sample_copied(request.at_most, squeeze_time, used, now);
        self.count_drawn(copied.as_ref().map_or(0, |_| request.at_most));
        copied
    }

    /// As [`TableHandle::sample_copied`], but also returns the draws, for [`TableHandle::give_back_copied`].
    pub fn sample_copied_leased(&self, request: DrawRequest, squeeze_time: bool) -> Option<(CopiedBatch, CopiedDraws)> {
        let now = recent_nanos();
        let copied = self.if_nobody_waits(request)?.table.sample_copied_leased(request.at_most, squeeze_time, now);
        self.count_drawn(copied.as_ref().map_or(0, |_| request.at_most));
        copied
    }

    #[inline]
    fn count_drawn(&self, count: usize) {
        if let Some(here) = self.here() {
            here.traffic.samples.fetch_add(count as u64, Relaxed);
        }
    }

    fn if_nobody_waits(&self, request: DrawRequest) -> Option<MutexGuard<'_, TableState>> {
        if request != DrawRequest::exactly(request.at_most) {
            return None;
        }
        let state = self.0.state.lock();
        // A draw may not overtake waiting draws, and it may allow waiting inserts, which this path does not serve.
        (!state.closed && state.samples.is_empty() && state.inserts.is_empty()).then_some(state)
    }

    fn submit<W: Work>(&self, work: W, peer: Option<&Arc<Peer>>) -> Call<W::Reply> {
        let mut state = self.0.state.lock();
        if state.closed {
            return Call::Done(Err(Error::Cancelled(CLOSED.into())));
        }
        if W::queue(&mut state).len() >= MAX_WAITING {
            return Call::Done(Err(Error::ResourceExhausted(format!(
                "{MAX_WAITING} requests wait at table `{}` already; {}",
                self.0.name,
                W::explain(&state.table, &self.0.name)
            ))));
        }
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        W::queue(&mut state).push_back(Request { ticket, work, waiter: None, waited: false, is_withdrawn: false });
        let (mut own, mut receiver) = (None::<W>, None);
        let turn = self.serve(&mut state, |state, turn| {
            if own.is_none() {
                own = turn.take_own::<W>(ticket);
            }
            // Most requests are done before the lock is released. The others need a channel.
            if own.is_none() && receiver.is_none() {
                let (reply, waiting) = oneshot::channel();
                let peer = peer.or_else(|| self.here()).cloned().unwrap_or_else(Peer::this_process);
                let request = W::queue(state).get_mut(ticket).expect("the request is still in its queue");
                request.waiter = Some(Waiter { reply, peer, since: Instant::now() });
                receiver = Some(waiting);
            }
            own.is_some()
        });
        if own.is_none()
            && let Some(request) = W::queue(&mut state).get_mut(ticket)
        {
            request.waited = true;
        }
        drop(state);
        self.finish(turn);
        match own {
            Some(work) => {
                if let Some(peer) = peer.or_else(|| self.here()) {
                    work.count(&peer.traffic);
                }
                Call::Done(Ok(work.reply()))
            }
            None => Call::Waiting(Waiting { handle: self.clone(), ticket, receiver, long: None }),
        }
    }

    /// Plans a batch of drawn items, as [`stack`] does. Returns the others to the table.
    ///
    /// # Errors
    /// Those of [`stack`]. All items are back in the table then.
    pub fn stack(&self, drawn: Vec<Drawn>, at_least: usize, squeeze_time: bool) -> Result<Gatherer> {
        stack(&self.0.name, drawn, at_least, squeeze_time, |items| self.give_back(items))
    }
}
