//! Samples that were drawn and are not the receiver's yet.

use crate::table_handle::TableHandle;
use parking_lot::Mutex;
use reverb_core::gather::Gatherer;
use std::sync::Arc;

/// Samples on their way to whoever drew them. Dropped before they were received, they go back to their table.
#[derive(Debug)]
pub struct Lease {
    table: TableHandle,
    gatherer: Arc<Mutex<Gatherer>>,
    samples: usize,
    received: bool,
}

impl Lease {
    /// Counts the samples as undelivered from now on.
    pub fn new(table: TableHandle, gatherer: Arc<Mutex<Gatherer>>) -> Self {
        let samples = gatherer.lock().items().len();
        table.count_undelivered(samples);
        Self { table, gatherer, samples, received: false }
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
        if !self.received {
            let items = self.gatherer.lock().items().to_vec();
            self.table.give_back(items);
        }
    }
}
