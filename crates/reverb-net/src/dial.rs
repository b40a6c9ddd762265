//! Opens connections to servers. Independent of the protocol over them.

use crate::http2::{CONNECTION_WINDOW, FRAME_BYTES, KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT, STREAM_WINDOW};
use crate::socket::Socket;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use reverb_core::{Error, Result};
use std::time::Duration;
use tokio::net::UnixStream;
use tonic::codegen::http::Uri;
use tonic::transport::{Channel, Endpoint};
use tower::ServiceExt;

/// Maximum time of one attempt to connect, so that a host that drops packets does not use up the time for all attempts.
pub const ATTEMPT_TIME: Duration = Duration::from_secs(3);

/// Connects to a TCP port.
///
/// # Errors
/// [`Error::Unavailable`] with the cause, or [`Error::InvalidArgument`] if the host is not a valid name.
pub async fn dial_tcp(host: &str, port: u16) -> Result<Channel> {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(ATTEMPT_TIME));
    let connector = connector.map_response(|stream| TokioIo::new(Socket::from(stream.into_inner())));
    let endpoint = endpoint(&format!("http://{host}:{port}"))?;
    endpoint.connect_with_connector(connector).await.map_err(|error| unavailable(&error))
}

/// Connects to a Unix socket.
///
/// # Errors
/// [`Error::Unavailable`] with the cause.
pub async fn dial_unix(path: &str) -> Result<Channel> {
    let path = path.to_owned();
    let connector = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(|stream| TokioIo::new(Socket::from(stream))) }
    });
    // The URI only names the server in the headers of requests.
    let endpoint = endpoint("http://localhost")?;
    endpoint.connect_with_connector(connector).await.map_err(|error| unavailable(&error))
}

fn endpoint(uri: &str) -> Result<Endpoint> {
    let endpoint = Endpoint::from_shared(uri.to_owned())
        .map_err(|error| Error::invalid(format!("{uri} is not a valid server address: {error}")))?;
    Ok(endpoint
        .connect_timeout(ATTEMPT_TIME)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME_BYTES)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true))
}

/// Returns an error with its root cause, which is the most useful part for users.
fn unavailable(error: &dyn std::error::Error) -> Error {
    let mut root = None;
    let mut next = error.source();
    while let Some(cause) = next {
        root = Some(cause);
        next = cause.source();
    }
    Error::Unavailable(match root {
        Some(root) => format!("{error}: {root}"),
        None => error.to_string(),
    })
}
