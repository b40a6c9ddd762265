//! Requests of a sample stream that may wait for a table, and what becomes of them.

use crate::replay_v1::proto::{Draw, sample_request};
use reverb_core::{Drawn, Result};
use reverb_service::TableHandle;
use std::time::Instant;

/// A draw that was begun.
pub enum Begun {
    Drawn(TableHandle, Draw, Vec<Drawn>),
    Waits,
}

/// A draw that waited for its table, and its result.
pub struct Waited {
    pub request_id: u64,
    pub table: TableHandle,
    pub draw: Draw,
    pub begun: Instant,
    /// Taken when the batch is sent. Samples that are still here on drop go back to the table.
    pub result: Option<Result<Vec<Drawn>>>,
}

impl Drop for Waited {
    fn drop(&mut self) {
        if let Some(Ok(drawn)) = self.result.take() {
            self.table.give_back(drawn);
        }
    }
}

/// What has waited for a table.
pub enum Woken {
    Draw(Waited),
    /// A wait for a stock, by the id of its request.
    Stock(u64, Result<()>),
}

impl Woken {
    /// The id of the request.
    pub fn request_id(&self) -> u64 {
        match self {
            Self::Draw(waited) => waited.request_id,
            Self::Stock(request_id, _) => *request_id,
        }
    }
}

/// Whether a request is answered if the stream goes on. A choice of nothing is not answered.
pub fn wants_answer(kind: &sample_request::Kind) -> bool {
    match kind {
        sample_request::Kind::Draw(_) | sample_request::Kind::Race(_) | sample_request::Kind::Wait(_) => true,
        sample_request::Kind::Choice(choice) => !choice.winners.is_empty(),
        _ => false,
    }
}
