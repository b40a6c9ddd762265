//! A channel that names the client and its server in the headers of each call, and says when a proxy has answered.

use crate::replay_v1::headers::{SERVER, SESSION, SHARED_BYTES, hex};
use crate::transport::authorized::Channel;
use crate::transport::passing::Passing;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use tonic::transport::Error;

/// See the documentation of this module.
#[derive(Debug, Clone)]
pub struct NamedChannel {
    channel: Channel,
    session: HeaderValue,
    /// The server that said `Hello`.
    server: Option<HeaderValue>,
    /// A header that tells of receipts.
    receipts: Option<(HeaderName, HeaderValue)>,
    /// Number of bytes of shared memory that a sample stream may use.
    shared: Option<HeaderValue>,
}

impl NamedChannel {
    /// Makes the channel for the first call, which finds the server.
    pub fn new(channel: Channel, session: HeaderValue) -> Self {
        Self { channel, session, server: None, receipts: None, shared: None }
    }

    /// Makes the channel for all later calls, which other servers refuse.
    #[must_use]
    pub fn to_server(&self, server: HeaderValue) -> Self {
        Self { server: Some(server), ..self.clone() }
    }

    /// Makes the channel for a sample stream, or for a call that takes effect after receipts.
    #[must_use]
    pub fn with_receipts(&self, name: HeaderName, value: HeaderValue) -> Self {
        Self { receipts: Some((name, value)), ..self.clone() }
    }

    /// Makes the channel for a sample stream that may use so many bytes of shared memory, if any.
    #[must_use]
    pub fn with_shared(&self, bytes: Option<u64>) -> Self {
        Self { shared: bytes.map(|bytes| hex(&bytes.to_be_bytes())), ..self.clone() }
    }

    /// Returns the descriptors on their way over the connection, if it can pass them.
    pub fn passing(&self) -> Option<Arc<Passing>> {
        self.channel.passing()
    }
}

impl Service<Request<Body>> for NamedChannel {
    type Response = Response<Body>;
    type Error = Error;
    type Future = Answer;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.channel.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let headers = request.headers_mut();
        headers.insert(SESSION, self.session.clone());
        if let Some(server) = &self.server {
            headers.insert(SERVER, server.clone());
        }
        if let Some((name, value)) = &self.receipts {
            headers.insert(name.clone(), value.clone());
        }
        if let Some(shared) = &self.shared {
            headers.insert(SHARED_BYTES, shared.clone());
        }
        Answer(self.channel.call(request))
    }
}

/// The answer to a call.
#[derive(Debug)]
pub struct Answer(<Channel as Service<Request<Body>>>::Future);

impl Future for Answer {
    type Output = Result<Response<Body>, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map_ok(of_server)
    }
}

/// Replaces the answer of a proxy by a status. gRPC answers with the HTTP status 200 whatever happens.
fn of_server(response: Response<Body>) -> Response<Body> {
    let hint = match response.status() {
        // A server that does not know the service may answer so, too.
        StatusCode::NOT_FOUND => return response,
        status if status.is_success() => return response,
        StatusCode::PAYLOAD_TOO_LARGE => ": its limit on requests is too low (client_max_body_size of nginx)",
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => {
            ": its time limit is too short (grpc_read_timeout, grpc_send_timeout and client_body_timeout of nginx, \
             timeout client and timeout server of HAProxy)"
        }
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE => ": it reaches no server",
        _ => "",
    };
    Status::unavailable(format!("a proxy has answered with the HTTP status {}{hint}", response.status())).into_http()
}
