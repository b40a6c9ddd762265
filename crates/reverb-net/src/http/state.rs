//! What the handlers of the HTTP port read.

use crate::observe::ServerFacts;
use reverb_service::Replay;
use std::sync::Arc;

/// What the handlers of the HTTP port read.
#[derive(Debug)]
pub struct HttpState {
    /// The service. Its tables may still be loading.
    pub replay: Arc<Replay>,
    /// Facts about the server.
    pub facts: Arc<ServerFacts>,
}
