//! Whether a connection still leads to its server.

use super::insert_stream::InsertStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::task::AbortHandle;

/// Watches an insert stream that no call uses. It ends when the connection is lost or the server stops.
#[derive(Debug)]
pub struct Liveness {
    has_ended: Arc<AtomicBool>,
    watch: AbortHandle,
}

impl Liveness {
    /// Opens the stream in the background.
    pub fn watch(mut stream: InsertStream) -> Self {
        let has_ended = Arc::<AtomicBool>::default();
        let flag = has_ended.clone();
        let watch = tokio::spawn(async move {
            while let Ok(Some(_)) = stream.confirmed().await {}
            flag.store(true, Relaxed);
        });
        Self { has_ended, watch: watch.abort_handle() }
    }

    /// Whether the connection was lost.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Relaxed)
    }
}

impl Drop for Liveness {
    fn drop(&mut self) {
        self.watch.abort();
    }
}
