//! Leases of samples: drawn, but not yet received by the caller.

use crate::peer::Peer;
use crate::table_handle::TableHandle;
use parking_lot::Mutex;
use reverb_core::gather::Gatherer;
use reverb_core::{CopiedDraws, Drawn, Error, Result};
use std::sync::Arc;

/// Samples on their way to the caller that drew them. They return to their table if the lease is dropped before
/// [`Lease::received`].
#[derive(Debug)]
pub struct Lease {
    table: TableHandle,
    draws: LeasedDraws,
    samples: usize,
    /// Whether the items are draws of a race whose winners are not known.
    is_raced: bool,
    received: bool,
}

/// What the table needs to take the samples back.
#[derive(Debug)]
enum LeasedDraws {
    /// The items of a gatherer.
    Gathered(Arc<Mutex<Gatherer>>),
    /// The draws of a copied batch.
    Copied(CopiedDraws),
    /// Items that are received one after another.
    Drawn(Vec<Drawn>),
}

impl LeasedDraws {
    /// Whether the table tracks the draws, as far as the last one tells.
    fn are_tracked(&self) -> bool {
        match self {
            Self::Gathered(gatherer) => gatherer.lock().items().last().is_some_and(Drawn::is_tracked),
            Self::Copied(draws) => draws.are_tracked(),
            Self::Drawn(drawn) => drawn.last().is_some_and(Drawn::is_tracked),
        }
    }
}

impl Lease {
    /// Leases the items of a gatherer. Until the lease ends, the table counts them as undelivered.
    pub fn new(table: TableHandle, gatherer: Arc<Mutex<Gatherer>>) -> Self {
        let samples = gatherer.lock().items().len();
        Self::of(table, LeasedDraws::Gathered(gatherer), samples)
    }

    /// Leases a batch of `samples` samples that was copied while it was drawn.
    pub fn copied(table: TableHandle, draws: CopiedDraws, samples: usize) -> Self {
        Self::of(table, LeasedDraws::Copied(draws), samples)
    }

    /// Leases items that the caller receives in parts, each with [`Lease::received_first`].
    pub fn drawn(table: TableHandle, drawn: Vec<Drawn>) -> Self {
        let samples = drawn.len();
        Self::of(table, LeasedDraws::Drawn(drawn), samples)
    }

    /// Leases all draws of a race until [`Lease::keep`] tells which have won. Those that have not are never counted as
    /// samples.
    pub(crate) fn raced(table: TableHandle, drawn: Vec<Drawn>) -> Self {
        let mut lease = Self::drawn(table, drawn);
        lease.is_raced = true;
        lease
    }

    fn of(table: TableHandle, draws: LeasedDraws, samples: usize) -> Self {
        table.count_undelivered(samples);
        Self { table, draws, samples, is_raced: false, received: false }
    }

    /// Returns the table that the samples are of.
    pub fn table(&self) -> &TableHandle {
        &self.table
    }

    /// Returns the number of samples.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// Whether the table tracks the draws, so that it matters when the lease ends.
    pub fn is_tracked(&self) -> bool {
        self.draws.are_tracked()
    }

    /// Adds items that were drawn later to a lease by [`Lease::drawn`].
    pub fn add(&mut self, drawn: Vec<Drawn>) {
        if let LeasedDraws::Drawn(items) = &mut self.draws {
            self.table.count_undelivered(drawn.len());
            self.samples += drawn.len();
            items.extend(drawn);
        } else {
            self.table.give_back(drawn);
        }
    }

    /// Returns the items of a lease by [`Lease::drawn`] that were not received yet.
    pub fn items(&self) -> &[Drawn] {
        if let LeasedDraws::Drawn(drawn) = &self.draws { drawn } else { &[] }
    }

    /// Keeps those of [`Lease::items`] at these positions, which ascend, and gives all others back to the table. Those of
    /// a race that are kept have won, and count as samples of `peer` from now on.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a position is not above the one before it, or if there is no such item. All items stay
    /// in the lease then.
    pub fn keep(&mut self, positions: &[usize], peer: &Peer) -> Result<()> {
        let LeasedDraws::Drawn(drawn) = &mut self.draws else { return Ok(()) };
        check_positions(positions, drawn.len())?;
        let mut kept = positions.iter().copied().peekable();
        let (mut winners, mut others) = (Vec::with_capacity(positions.len()), Vec::new());
        for (position, draw) in drawn.drain(..).enumerate() {
            let side = if kept.next_if_eq(&position).is_some() { &mut winners } else { &mut others };
            side.push(draw);
        }
        let (count, are_tracked) = (others.len(), others.last().is_none_or(Drawn::is_tracked));
        if std::mem::take(&mut self.is_raced) {
            self.table.count_winners(&winners, peer);
            self.table.give_back_losers(others);
        } else {
            self.table.give_back(others);
        }
        *drawn = winners;
        self.end(count, are_tracked);
        Ok(())
    }

    /// Takes [`Lease::items`] out of the lease, and ends it. The caller leases them again, or gives them back.
    pub fn into_items(mut self) -> Vec<Drawn> {
        let LeasedDraws::Drawn(drawn) = &mut self.draws else { return Vec::new() };
        let drawn = std::mem::take(drawn);
        // Those that the table does not track have not ended.
        self.end(drawn.len(), true);
        drawn
    }

    /// Stops counting samples of the lease as undelivered, once all of them were delivered or are back in the table.
    fn end(&mut self, count: usize, are_tracked: bool) {
        self.table.count_delivered(count);
        self.samples -= count;
        if !are_tracked {
            self.table.end_untracked(count);
        }
    }

    /// Notes that the caller has received the first `count` of [`Lease::items`], so they do not return to the table.
    ///
    /// # Errors
    /// The error of [`TableHandle::delivered`]. All items stay in the lease then.
    pub fn received_first(&mut self, count: usize) -> Result<()> {
        let LeasedDraws::Drawn(drawn) = &mut self.draws else { return Ok(()) };
        self.table.delivered(&drawn[..count])?;
        let are_tracked = drawn.drain(..count).next_back().is_none_or(|draw| draw.is_tracked());
        self.end(count, are_tracked);
        Ok(())
    }

    /// Ends the lease: the caller has received the samples, so they do not return to the table.
    ///
    /// # Errors
    /// The error of [`TableHandle::delivered`]. The samples return to the table then.
    pub fn received(mut self) -> Result<()> {
        match &self.draws {
            LeasedDraws::Gathered(gatherer) => self.table.delivered(gatherer.lock().items())?,
            LeasedDraws::Copied(draws) => self.table.delivered_copied(draws)?,
            LeasedDraws::Drawn(drawn) => self.table.delivered(drawn)?,
        }
        self.received = true;
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let are_tracked = self.draws.are_tracked();
        if !self.received {
            match &mut self.draws {
                LeasedDraws::Gathered(gatherer) => {
                    let items = gatherer.lock().items().to_vec();
                    self.table.give_back(items);
                }
                LeasedDraws::Copied(draws) => self.table.give_back_copied(draws),
                LeasedDraws::Drawn(drawn) if self.is_raced => self.table.give_back_losers(std::mem::take(drawn)),
                LeasedDraws::Drawn(drawn) => self.table.give_back(std::mem::take(drawn)),
            }
        }
        // Until all are back, who looks must not take them for delivered. A change of options expects as many samples to
        // end as it finds here, so this comes before their end.
        self.end(self.samples, are_tracked);
    }
}

/// Checks that positions ascend and that there are items at them.
fn check_positions(positions: &[usize], num_items: usize) -> Result<()> {
    let mut least = 0;
    for (place, &position) in positions.iter().enumerate() {
        if position < least || position >= num_items {
            let number = place + 1;
            return Err(Error::invalid(format!(
                "expected ascending positions below {num_items}, got {position} as number {number} of {}",
                positions.len()
            )));
        }
        least = position + 1;
    }
    Ok(())
}
