//! What the handlers of the HTTP port read.

use super::answer::text;
use super::histogram_cache::HistogramCache;
use super::history::History;
use super::visitors::Visitors;
use crate::calls::{Calls, Methods};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use reverb_secure::Reloads;
use reverb_service::Replay;
use std::sync::Arc;
use tokio::sync::Semaphore;

// limit (HTTP, metrics and logs): HTTP requests that read tables at the same time | {} | others wait
/// Maximum number of requests that read tables at the same time.
const MAX_HEAVY: usize = 8;

/// What the handlers of the HTTP port read.
#[derive(Debug)]
pub struct HttpState {
    /// The service. Its tables may still be loading.
    pub replay: Arc<Replay>,
    /// Counts of the calls of the gRPC services.
    pub calls: Arc<Calls>,
    /// Who may use the server, and its TLS.
    pub security: Reloads,
    pub(super) history: Arc<History>,
    pub(super) histograms: HistogramCache,
    pub(super) visitors: Visitors,
    heavy: Arc<Semaphore>,
}

impl HttpState {
    /// Creates the state of a server's HTTP port. `methods` are those of the gRPC port.
    pub fn new(replay: Arc<Replay>, methods: Methods) -> Self {
        Self {
            replay,
            calls: Arc::new(Calls::new(methods)),
            security: Reloads::default(),
            history: Arc::default(),
            histograms: HistogramCache::default(),
            visitors: Visitors::default(),
            heavy: Arc::new(Semaphore::new(MAX_HEAVY)),
        }
    }

    /// Adds who may use the server, and its TLS.
    #[must_use]
    pub fn with_security(self, security: Reloads) -> Self {
        Self { security, ..self }
    }

    /// Runs work that may wait for a lock, or takes long, on a blocking thread. At most [`MAX_HEAVY`] requests do so
    /// at the same time; others wait for their turn without a thread. Work whose client has gone is not begun.
    ///
    /// # Errors
    /// [`Failed`] if the work panics.
    pub async fn heavy<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, Failed> {
        let turn = self.heavy.clone().acquire_owned().await.map_err(|_closed| Failed)?;
        let state = self.clone();
        let task = tokio::task::spawn_blocking(move || {
            let result = work(&state);
            drop(turn);
            result
        });
        task.await.map_err(|_panicked| Failed)
    }
}

/// The answer to a request whose work panicked.
#[derive(Debug)]
pub struct Failed;

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        text(StatusCode::INTERNAL_SERVER_ERROR, "The server could not answer because of an error. Its log has more.")
    }
}
