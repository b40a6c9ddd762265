//! Serves gRPC services over HTTP/2 on accepted connections.

use super::admission::CheckCalls;
use super::connection::Connection;
use super::count_calls::CountCalls;
use crate::transport::http2::{CONNECTION_WINDOW, FRAME_BYTES, KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT, STREAM_WINDOW};
use reverb_observe::Calls;
use reverb_secure::Access;
use std::sync::Arc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::Routes;
use tonic::transport::Server;
use tower::util::option_layer;

// limit (Connections and calls): streams of a connection | {} | HTTP/2
/// Maximum number of streams of one connection. A client opens two, and one for each of its writers.
const MAX_STREAMS: u32 = 10_000;

/// Serves until `closed` completes and the last stream has ended. `access` checks calls, if they are to be checked.
pub async fn serve(
    routes: Routes,
    (calls, access): (Arc<Calls>, Option<Arc<Access>>),
    connections: ReceiverStream<std::io::Result<Connection>>,
    closed: impl Future<Output = ()>,
) {
    let server = Server::builder()
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME_BYTES)
        .max_concurrent_streams(MAX_STREAMS)
        .http2_keepalive_interval(Some(KEEP_ALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEP_ALIVE_TIMEOUT))
        .layer(CountCalls(calls.clone()))
        .layer(option_layer(access.map(|access| CheckCalls::new(access, calls))))
        .add_routes(routes);
    if let Err(error) = server.serve_with_incoming_shutdown(connections, closed).await {
        tracing::error!("the server stopped because of an error: {error}");
    }
}
