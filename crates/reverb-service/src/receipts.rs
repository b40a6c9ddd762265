//! The receipts that a server's sample streams have processed.
//!
//! A client sends a receipt some time after it has handed the batch to its program. So a call of the same client that
//! must see it waits for its number, and a server that stops first asks all streams for the receipts that are due.

use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The sample streams of a server whose clients answer for their receipts.
#[derive(Debug)]
pub struct Receipts {
    /// By the numbers that the clients have chosen: how many receipts the server has processed.
    processed: Mutex<HashMap<u64, watch::Receiver<u64>>>,
    /// Number of streams that may still send receipts.
    unsettled: Mutex<usize>,
    settled: Condvar,
    asked: watch::Sender<bool>,
}

impl Default for Receipts {
    fn default() -> Self {
        let (asked, _) = watch::channel(false);
        Self { processed: Mutex::default(), unsettled: Mutex::default(), settled: Condvar::new(), asked }
    }
}

impl Receipts {
    /// Adds a stream with the number that its client has chosen, until the result is dropped.
    pub fn add_stream(self: &Arc<Self>, number: u64) -> StreamReceipts {
        let (count, processed) = watch::channel(0);
        self.processed.lock().insert(number, processed);
        *self.unsettled.lock() += 1;
        StreamReceipts { receipts: self.clone(), number, count, is_settled: false }
    }

    /// Waits until the server has processed that many receipts of a stream, or the stream has ended.
    pub async fn wait_for(&self, number: u64, count: u64) {
        let processed = self.processed.lock().get(&number).cloned();
        if let Some(mut processed) = processed {
            let _ended = processed.wait_for(|&processed| processed >= count).await;
        }
    }

    /// Asks all streams for the receipts that are due, and waits for the answers, but not longer than `limit`. From then
    /// on, no stream sends a batch.
    pub fn collect(&self, limit: Duration) {
        self.asked.send_replace(true);
        self.settled.wait_while_for(&mut self.unsettled.lock(), |unsettled| *unsettled > 0, limit);
    }

    /// Completes when the streams are asked for the receipts that are due.
    pub async fn asked(&self) {
        let mut asked = self.asked.subscribe();
        let _never_closed = asked.wait_for(|&asked| asked).await;
    }
}

/// The receipts of one stream.
#[derive(Debug)]
pub struct StreamReceipts {
    receipts: Arc<Receipts>,
    number: u64,
    count: watch::Sender<u64>,
    is_settled: bool,
}

impl StreamReceipts {
    /// Counts a receipt that was processed.
    pub fn count(&self) {
        self.count.send_if_modified(|count| {
            *count += 1;
            // The list of streams has one receiver. A call that begins to wait later sees the count first.
            self.count.receiver_count() > 1
        });
    }

    /// Notes that no receipt is due any more, and none will be.
    pub fn settle(&mut self) {
        if !std::mem::replace(&mut self.is_settled, true) {
            *self.receipts.unsettled.lock() -= 1;
            self.receipts.settled.notify_all();
        }
    }
}

impl Drop for StreamReceipts {
    fn drop(&mut self) {
        self.settle();
        self.receipts.processed.lock().remove(&self.number);
    }
}
