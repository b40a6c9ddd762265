//! What the services of both protocols do in the same way.

use crate::transport::socket::Introduced;
use reverb_core::{Error, Result};
use reverb_service::{Peer, Replay, TableHandle, Transport};
use std::sync::Arc;
use tonic::Request;

// limit (Chunks and messages): the other parts of an insert message: keys, priorities, names | {:bytes} | the stream
// ends
/// Maximum size in bytes of everything in a message except the data of an insert: keys, priorities, names.
const MESSAGE_SLACK: usize = 16 << 20;
/// Maximum number of updates and deletes that are made on a thread that serves connections.
const MUTATED_AT_ONCE: usize = 16_384;

/// Returns the maximum size in bytes of a message that a server accepts.
pub fn max_request_bytes(replay: &Replay) -> usize {
    usize::try_from(replay.max_message_size()).unwrap_or(usize::MAX).saturating_add(MESSAGE_SLACK)
}

/// Returns the peer that makes a call.
pub fn peer_of<T>(request: &Request<T>) -> Arc<Peer> {
    // Every accepted connection has a peer, so this is only a fallback.
    let unknown = || Arc::new(Peer::new(Transport::Tcp, String::new()));
    request.extensions().get::<Introduced>().map_or_else(unknown, |introduced| introduced.peer.clone())
}

/// Returns the service, or an error if it was stopped. Connections are closed a little later than the service.
pub fn open(replay: &Arc<Replay>) -> Result<&Arc<Replay>> {
    if replay.is_closed() { Err(stopped()) } else { Ok(replay) }
}

/// Returns the error of a call to a server that was stopped.
pub fn stopped() -> Error {
    Error::Cancelled("the server was stopped".into())
}

/// Runs work on a thread that serves no connections.
pub async fn in_background<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(Error::Internal(error.to_string())))
}

/// Makes `count` updates and deletes, on a thread that serves no connections if they are many.
pub async fn mutate<T: Send + 'static>(count: usize, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    if count <= MUTATED_AT_ONCE { work() } else { in_background(work).await }
}

/// Empties a table.
pub async fn reset(table: TableHandle) -> Result<()> {
    // The items are dropped by the call.
    in_background(move || table.reset()).await
}
