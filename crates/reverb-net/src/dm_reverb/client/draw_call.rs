//! A draw in progress.

use reverb_core::{Error, Result};
use reverb_service::Batch;

/// A draw in progress, or a batch that has arrived. The server does not take samples back.
#[derive(Debug)]
pub struct DrawCall;

impl DrawCall {
    /// Waits for the batch, which can be taken once. Before that, the future may be dropped and the function called
    /// again.
    pub async fn result(&mut self) -> Result<Batch> {
        Err(Error::Unimplemented("draws".into()))
    }

    /// Whether the batch has arrived.
    pub fn is_ready(&self) -> bool {
        true
    }
}
