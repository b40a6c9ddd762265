//! A draw in progress, as the client sees it.

use super::calls::{Calls, answer};
use super::receipts::Receipts;
use crate::replay_v1::proto::{self as replay, sample_request};
use reverb_core::{Error, Result};
use reverb_service::Batch;
use std::sync::Arc;
use tokio::sync::oneshot;

/// What the server answers to a request.
#[derive(Debug)]
pub enum Answer {
    /// To a draw, and to a choice among the arrivals of a race.
    Batch(Batch),
    /// To a race.
    Report(replay::RaceReport),
    /// To a wait.
    Stocked,
}

/// A request of the stream, and the receiver of its answer.
#[derive(Debug)]
pub struct Asked {
    pub receipts: Arc<Receipts>,
    pub calls: Arc<Calls<Answer>>,
    pub request_id: u64,
    pub receiver: oneshot::Receiver<Result<Answer>>,
}

impl Asked {
    /// Withdraws the request. Whatever the server has drawn for it goes back.
    pub fn cancel(&self) {
        self.calls.withdraw(self.request_id);
        self.receipts.send_request(self.request_id, sample_request::Kind::Cancel(true));
    }
}

/// A draw in progress, or a batch that has arrived. Dropping it withdraws the draw unless it was acknowledged: its
/// samples go back to their table.
#[derive(Debug)]
pub struct DrawCall {
    asked: Asked,
    /// Whether samples without a receipt go back to the table.
    receipt_is_due: bool,
    is_received: bool,
}

impl DrawCall {
    /// The call of a request that is answered with a batch.
    pub fn of(asked: Asked) -> Self {
        Self { asked, receipt_is_due: false, is_received: false }
    }

    /// Waits for the batch, which can be taken once. Before that, the future may be dropped and the function called
    /// again.
    pub async fn result(&mut self) -> Result<Batch> {
        let Answer::Batch(batch) = answer(&mut self.asked.receiver).await? else {
            return Err(Error::DataLoss("expected a batch, got another answer".into()));
        };
        self.receipt_is_due = !batch.receipt_may_wait;
        Ok(batch)
    }

    /// Whether the batch has arrived.
    pub fn is_ready(&self) -> bool {
        !self.asked.receiver.is_empty()
    }

    /// Acknowledges the samples, so that they do not go back to their table. The receipt leaves later; with
    /// `waits`, not with the next draw. See [`Receipts`].
    ///
    /// # Errors
    /// The error that ended the stream, if the samples went back with it.
    pub fn received(&mut self, waits: bool) -> Result<()> {
        if self.is_received {
            return Ok(());
        }
        let Asked { receipts, calls, request_id, .. } = &self.asked;
        match calls.broken().map_or_else(|| receipts.add(*request_id, waits), Err) {
            Err(error) if self.receipt_is_due => return Err(error),
            _ => self.is_received = true,
        }
        Ok(())
    }

    /// Whether the samples went back with the stream.
    pub fn is_lost(&self) -> bool {
        let Asked { receipts, calls, .. } = &self.asked;
        self.receipt_is_due && !self.is_received && (calls.broken().is_some() || receipts.have_ended())
    }

    /// Gives the samples back, also after they were acknowledged, as long as the receipt has not left.
    pub fn give_back(mut self) {
        self.is_received = self.is_received && !self.asked.receipts.revoke(self.asked.request_id);
    }
}

impl Drop for DrawCall {
    fn drop(&mut self) {
        if self.is_received {
            self.asked.calls.withdraw(self.asked.request_id);
        } else {
            self.asked.cancel();
        }
    }
}
