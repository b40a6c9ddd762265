//! A draw in progress.

use super::left::Unconfirmed;
use reverb_core::{Error, Result};
use reverb_service::Batch;
use reverb_service::local::taken;
use tokio::task::JoinHandle;

/// A draw in progress, or a batch that has arrived. Dropping it withdraws the draw. The server does not take samples back,
/// so those of a table that counts them are left to the next draws of the connection.
#[derive(Debug)]
pub struct DrawCall {
    task: Option<JoinHandle<Result<(Batch, Unconfirmed)>>>,
    unconfirmed: Option<Unconfirmed>,
}

impl DrawCall {
    /// Begins a draw on the current runtime.
    pub fn begin(draw: impl Future<Output = Result<(Batch, Unconfirmed)>> + Send + 'static) -> Self {
        Self { task: Some(tokio::spawn(draw)), unconfirmed: None }
    }

    /// Waits for the batch, which can be taken once. Before that, the future may be dropped and the function called
    /// again.
    pub async fn result(&mut self) -> Result<Batch> {
        let Some(task) = &mut self.task else { return Err(taken()) };
        let result = task.await.unwrap_or_else(|error| Err(Error::Cancelled(format!("the draw ended: {error}"))));
        self.task = None;
        let (batch, unconfirmed) = result?;
        self.unconfirmed = Some(unconfirmed);
        Ok(batch)
    }

    /// Whether the batch has arrived.
    pub fn is_ready(&self) -> bool {
        self.task.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Confirms that the batch has reached its receiver, so that no other draw gets its samples.
    pub fn received(mut self) {
        if let Some(unconfirmed) = self.unconfirmed.take() {
            unconfirmed.confirm();
        }
    }
}

impl Drop for DrawCall {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}
