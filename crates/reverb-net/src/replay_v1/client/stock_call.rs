//! A wait for a table of a server to have more, as the client sees it.

use super::calls::answer;
use super::draw_call::{Answer, Asked};
use crate::replay_v1::proto as replay;
use crate::replay_v1::wire::wait_to_wire;
use reverb_core::{Error, Result};
use reverb_service::Stock;

/// What a client waits for at one server.
#[derive(Debug, Clone)]
pub struct StockRequest {
    /// The name of the table.
    pub table: String,
    /// What the table must have.
    pub stock: Stock,
    /// Whether a loader waits that draws ahead of its program.
    pub is_ahead: bool,
}

impl StockRequest {
    pub(super) fn to_wire(&self) -> replay::Wait {
        wait_to_wire(&self.table, self.stock, self.is_ahead)
    }
}

/// A wait that has begun. Dropping it withdraws it.
#[derive(Debug)]
pub struct StockCall(Asked);

impl StockCall {
    pub(super) fn new(asked: Asked) -> Self {
        Self(asked)
    }

    /// Waits until the table has what was asked for.
    ///
    /// # Errors
    /// [`Error::TableNotFound`], [`Error::Unavailable`] if the connection was lost, or [`Error::Cancelled`] if the server
    /// was stopped.
    pub async fn stocked(mut self) -> Result<()> {
        match answer(&mut self.0.receiver).await? {
            Answer::Stocked => Ok(()),
            Answer::Batch(_) | Answer::Report(_) => {
                Err(Error::DataLoss("expected the end of a wait, got another answer".into()))
            }
        }
    }
}

impl Drop for StockCall {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
