//! Closes open chunks that the first item of a writer has waited for long enough.

use super::outbox::waits_for_chunk;
use super::shared::SharedSession;
use std::time::{Duration, Instant};

/// Time that an item waits for an open chunk to fill, if the chunk may be closed early.
const LINGER: Duration = Duration::from_millis(5);

/// Closes chunks that the first item waits for, after [`LINGER`].
#[derive(Debug, Default)]
pub struct Linger {
    /// Number of the item, and the end of its wait.
    item: Option<(u64, Instant)>,
}

impl Linger {
    /// Completes after it has closed the chunks. Never completes if the first item does not wait for a chunk that may
    /// be closed early.
    pub async fn wait(&mut self, shared: &SharedSession) {
        let Some(sequence) = waiting_item(shared) else {
            self.item = None;
            return std::future::pending().await;
        };
        let until = match self.item {
            Some((item, until)) if item == sequence => until,
            _ => Instant::now() + LINGER,
        };
        self.item = Some((sequence, until));
        tokio::time::sleep_until(until.into()).await;
        let chunks = shared.state.lock().outbox.front().map(|item| item.chunks().cloned().collect::<Vec<_>>());
        for chunk in chunks.unwrap_or_default() {
            // An error is reported when the item is sent.
            if chunk.closes_early() {
                let _reported_later = chunk.close();
            }
        }
    }
}

/// Returns the number of the first item if it waits for a chunk that may be closed early.
fn waiting_item(shared: &SharedSession) -> Option<u64> {
    let mut state = shared.state.lock();
    let waits = state.outbox.front().is_some_and(waits_for_chunk);
    state.lingers = waits;
    waits.then(|| state.outbox.next_sequence())
}
