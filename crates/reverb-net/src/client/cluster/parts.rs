//! The draws from several shards that gave one batch, acknowledged and given back together.

use crate::replay_v1::client::DrawCall;
use reverb_core::{Error, Result};

/// The draws that gave one batch. Dropping them gives back what was not acknowledged.
#[derive(Debug, Default)]
pub struct Parts {
    calls: Vec<DrawCall>,
    /// Why the batch could not be acknowledged. All parts went back then.
    lost: Option<Error>,
}

impl Parts {
    /// Makes one draw of several.
    pub fn new(calls: Vec<DrawCall>) -> Self {
        Self { calls, lost: None }
    }

    /// Acknowledges all parts, or none. See [`DrawCall::received`].
    ///
    /// # Errors
    /// The error of a part that went back with its connection. All others are given back then.
    pub fn received(&mut self, waits: bool) -> Result<()> {
        if let Some(error) = &self.lost {
            return Err(error.clone());
        }
        let received = self.calls.iter_mut().try_for_each(|call| call.received(waits));
        received.inspect_err(|error| {
            self.lost = Some(error.clone());
            self.calls.drain(..).for_each(DrawCall::give_back);
        })
    }

    /// Whether a part went back with its connection.
    pub fn is_lost(&self) -> bool {
        self.lost.is_some() || self.calls.iter().any(DrawCall::is_lost)
    }

    /// Gives all parts back, also after they were acknowledged, as long as their receipts have not left.
    pub fn give_back(self) {
        self.calls.into_iter().for_each(DrawCall::give_back);
    }
}
