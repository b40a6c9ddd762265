//! A draw in progress.

use reverb_core::{Error, Result};
use reverb_service::Batch;
use reverb_service::local::taken;
use tokio::task::JoinHandle;

/// A draw in progress, or a batch that has arrived. Dropping it withdraws the draw. The server does not take back
/// samples that it has sent.
#[derive(Debug)]
pub struct DrawCall(Option<JoinHandle<Result<Batch>>>);

impl DrawCall {
    /// Begins a draw on the current runtime.
    pub fn begin(draw: impl Future<Output = Result<Batch>> + Send + 'static) -> Self {
        Self(Some(tokio::spawn(draw)))
    }

    /// Waits for the batch, which can be taken once. Before that, the future may be dropped and the function called
    /// again.
    pub async fn result(&mut self) -> Result<Batch> {
        let Some(task) = &mut self.0 else { return Err(taken()) };
        let result = task.await.unwrap_or_else(|error| Err(Error::Cancelled(format!("the draw ended: {error}"))));
        self.0 = None;
        result
    }

    /// Whether the batch has arrived.
    pub fn is_ready(&self) -> bool {
        self.0.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for DrawCall {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}
