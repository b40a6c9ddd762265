//! Leases of samples: drawn, but not yet received by the caller.

use crate::table_handle::TableHandle;
use parking_lot::Mutex;
use reverb_core::gather::Gatherer;
use reverb_core::{CopiedDraws, Result};
use std::sync::Arc;

/// Samples on their way to the caller that drew them. They return to their table if the lease is dropped before
/// [`Lease::received`].
#[derive(Debug)]
pub struct Lease {
    table: TableHandle,
    draws: LeasedDraws,
    samples: usize,
    received: bool,
}

/// What the table needs to take the samples back.
#[derive(Debug)]
enum LeasedDraws {
    /// The items of a gatherer.
    Gathered(Arc<Mutex<Gatherer>>),
    /// The draws of a copied batch. `None` after they were given back.
    Copied(Option<CopiedDraws>),
}

impl Lease {
    /// Leases the items of a gatherer. Until the lease ends, the table counts them as undelivered.
    pub fn new(table: TableHandle, gatherer: Arc<Mutex<Gatherer>>) -> Self {
        let samples = gatherer.lock().items().len();
        Self::of(table, LeasedDraws::Gathered(gatherer), samples)
    }

    /// Leases a batch of `samples` samples that was copied while it was drawn.
    pub fn copied(table: TableHandle, draws: CopiedDraws, samples: usize) -> Self {
        Self::of(table, LeasedDraws::Copied(Some(draws)), samples)
    }

    fn of(table: TableHandle, draws: LeasedDraws, samples: usize) -> Self {
        table.count_undelivered(samples);
        Self { table, draws, samples, received: false }
    }

    /// Returns the number of samples.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// Ends the lease: the caller has received the samples, so they do not return to the table.
    ///
    /// # Errors
    /// The error of [`TableHandle::delivered`]. The samples return to the table then.
    pub fn received(mut self) -> Result<()> {
        match &self.draws {
            LeasedDraws::Gathered(gatherer) => self.table.delivered(gatherer.lock().items())?,
            LeasedDraws::Copied(Some(draws)) => self.table.delivered_copied(draws)?,
            LeasedDraws::Copied(None) => {}
        }
        self.received = true;
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.table.count_delivered(self.samples);
        if self.received {
            return;
        }
        match &mut self.draws {
            LeasedDraws::Gathered(gatherer) => {
                let items = gatherer.lock().items().to_vec();
                self.table.give_back(items);
            }
            LeasedDraws::Copied(draws) => {
                if let Some(draws) = draws.take() {
                    self.table.give_back_copied(draws);
                }
            }
        }
    }
}
