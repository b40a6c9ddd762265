//! Samples that were drawn and are not the receiver's yet.

use crate::table_handle::TableHandle;
use parking_lot::Mutex;
use reverb_core::CopiedDraws;
use reverb_core::gather::Gatherer;
use std::sync::Arc;

/// Samples on their way to whoever drew them. Dropped before they were received, they go back to their table.
#[derive(Debug)]
pub struct Lease {
    table: TableHandle,
    drawn: Drawn,
    samples: usize,
    received: bool,
}

/// By what the table finds its samples again.
#[derive(Debug)]
enum Drawn {
    /// A gatherer's items.
    Gathered(Arc<Mutex<Gatherer>>),
    /// A copied batch's keys; `None` once they are given back.
    Copied(Option<CopiedDraws>),
}

impl Lease {
    /// Counts the samples as undelivered from now on.
    pub fn new(table: TableHandle, gatherer: Arc<Mutex<Gatherer>>) -> Self {
        let samples = gatherer.lock().items().len();
        Self::of(table, Drawn::Gathered(gatherer), samples)
    }

    /// Likewise, for a batch of so many samples that was copied as it was drawn.
    pub fn copied(table: TableHandle, draws: CopiedDraws, samples: usize) -> Self {
        Self::of(table, Drawn::Copied(Some(draws)), samples)
    }

    fn of(table: TableHandle, drawn: Drawn, samples: usize) -> Self {
        table.count_undelivered(samples);
        Self { table, drawn, samples, received: false }
    }

    /// How many there are.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// They have arrived, and stay drawn.
    pub fn received(mut self) {
        self.received = true;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.table.count_delivered(self.samples);
        if self.received {
            return;
        }
        match &mut self.drawn {
            Drawn::Gathered(gatherer) => {
                let items = gatherer.lock().items().to_vec();
                self.table.give_back(items);
            }
            Drawn::Copied(draws) => {
                if let Some(draws) = draws.take() {
                    self.table.give_back_copied(draws);
                }
            }
        }
    }
}
