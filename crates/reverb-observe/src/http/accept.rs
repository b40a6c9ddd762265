//! Connections of the HTTP port: how many there are, how long each may take, and how they end.

use super::admission::PeerAddress;
use super::answer::text;
use super::guard::{Guard, set_headers};
use super::health;
use super::places::{Activity, Place, Places};
use super::state::HttpState;
use super::stream::Stream;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use reverb_secure::{Secured, ServerTls};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tower::ServiceExt;

// limit (HTTP, metrics and logs): HTTP connections that may ask for anything | {} | the one that has been idle the
// longest is closed. While requests of all of them are being answered, {MAX_RESERVE} further ones may ask for health,
// once; anything else is 503. Beyond that, the longest idle of these is closed
/// Maximum number of connections that may ask for anything. The one that has been idle the longest gives way to a new
/// one. While requests of all of them are being answered, further ones may ask for health.
const MAX_CONNECTIONS: usize = 64;
/// Maximum number of connections that may ask for health only.
const MAX_RESERVE: usize = 64;
// limit (HTTP, metrics and logs): time for the head of an HTTP request, and for which a connection stays open without
// one | {} | closed
/// Maximum time for the head of a request, from the moment at which the connection could take it.
const HEAD_TIME: Duration = Duration::from_secs(10);
// limit (HTTP, metrics and logs): head of an HTTP request | {}, {MAX_HEADERS} headers | 431
/// Maximum size of the head of a request.
const MAX_HEAD_BYTES: usize = 16 << 10;
// limit (HTTP, metrics and logs): body of an HTTP request | none is read |
/// Maximum number of headers of a request.
const MAX_HEADERS: usize = 64;

/// What all connections share.
#[derive(Debug)]
pub struct Port {
    state: Arc<HttpState>,
    router: Router,
    guard: Guard,
    connections: Arc<Places>,
    reserve: Arc<Places>,
    tls: Option<Arc<ServerTls>>,
}

impl Port {
    pub fn new(state: Arc<HttpState>, router: Router, guard: Guard, tls: Option<Arc<ServerTls>>) -> Self {
        let [connections, reserve] = [MAX_CONNECTIONS, MAX_RESERVE].map(|size| Arc::new(Places::new(size)));
        Self { state, router, guard, connections, reserve, tls }
    }

    /// Gives room to a new connection. `None` if no other one can leave for it.
    fn room(&self) -> Option<Room> {
        let usual = self.connections.enter().map(|place| Room { place, is_reserve: false });
        usual.or_else(|| self.reserve.enter().map(|place| Room { place, is_reserve: true }))
    }

    /// Answers a request. Its body is not read.
    async fn answer(
        &self,
        request: Request<Incoming>,
        activity: &Arc<Activity>,
        address: SocketAddr,
        is_in_reserve: bool,
    ) -> Response<Body> {
        let _stays = activity.answer();
        let (request, _unread) = request.into_parts();
        let mut response = if let Some(refusal) = self.guard.refusal(&request) {
            refusal
        } else if health::is_path(request.uri.path()) {
            // With tokens, the verdict is for those with one, at its own path.
            let needs_token = self.state.security.access.as_ref().is_some_and(|access| access.has_tokens());
            health::answer(request.uri.path(), &self.state, !needs_token && self.guard.is_for_us(&request))
        } else if is_in_reserve {
            let line = format!("{MAX_CONNECTIONS} HTTP requests are being answered. Try again later.");
            text(StatusCode::SERVICE_UNAVAILABLE, &line)
        } else {
            let mut request = Request::from_parts(request, Body::empty());
            request.extensions_mut().insert(PeerAddress(address));
            self.router.clone().oneshot(request).await.unwrap_or_else(|never| match never {})
        };
        set_headers(response.headers_mut());
        response
    }
}

/// Accepts connections until `stopped` changes, and then frees the address.
///
/// `open` is the first parameter because arguments are dropped in reverse order: the listener is closed before `open`
/// reports that the address is free.
pub async fn accept_from(open: Sender<()>, listener: Listener, port: Arc<Port>, mut stopped: watch::Receiver<()>) {
    loop {
        tokio::select! {
            accepted = listener.0.accept() => match accepted {
                Ok(accepted) => {
                    if let Some(room) = port.room() {
                        tokio::spawn(greet(open.clone(), accepted, room, port.clone(), stopped.clone()));
                    }
                }
                Err(error) => {
                    // Usually the process has no free file descriptor. Some become free when open connections close.
                    tracing::warn!("cannot accept an HTTP connection: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            _dropped = stopped.changed() => return,
        }
    }
}

/// A socket that listens. A process that was forked may have a copy of it, which does not listen either after the drop.
#[derive(Debug)]
pub struct Listener(pub TcpListener);

impl Drop for Listener {
    fn drop(&mut self) {
        let _closed = socket2::SockRef::from(&self.0).shutdown(std::net::Shutdown::Both);
    }
}

/// The place of a connection.
struct Room {
    place: Place,
    /// Whether it may ask for health only, once.
    is_reserve: bool,
}

/// Serves a connection, after the handshake of TLS if the port has it. A stranger that another one displaces, or that is
/// there when `stopped` changes, ends without one. The stream is closed before `open` is dropped.
async fn greet(
    open: Sender<()>,
    (stream, address): (TcpStream, SocketAddr),
    mut room: Room,
    port: Arc<Port>,
    mut stopped: watch::Receiver<()>,
) {
    let activity = room.place.activity.clone();
    let wrap = |stream| Stream::new(stream, activity);
    let secured = match &port.tls {
        None => Secured::Plain(wrap(stream)),
        Some(tls) => tokio::select! {
            accepted = tls.accept(stream, reverb_secure::Port::Http, wrap) => match accepted {
                Ok(secured) => secured,
                // It concerns this client only, which may send any bytes.
                Err(_) => return,
            },
            _dropped = stopped.changed() => return,
            () = room.place.displaced() => return,
        },
    };
    serve(open, (secured, address), room, port, stopped).await;
}

/// Serves a connection until its client ends it, or `stopped` changes. The stream is closed before `_open` is dropped.
async fn serve(
    _open: Sender<()>,
    (stream, address): (Secured<Stream>, SocketAddr),
    mut room: Room,
    port: Arc<Port>,
    mut stopped: watch::Receiver<()>,
) {
    let is_in_reserve = room.is_reserve;
    let activity = room.place.activity.clone();
    let answer = |request| {
        let (port, activity) = (port.clone(), activity.clone());
        async move { Ok::<_, Infallible>(port.answer(request, &activity, address, is_in_reserve).await) }
    };
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).keep_alive(!is_in_reserve);
    builder.max_header_size(MAX_HEAD_BYTES).max_buf_size(MAX_HEAD_BYTES).max_headers(MAX_HEADERS);
    tokio::select! {
        // An error concerns this client only, which may send any bytes.
        _ended = builder.serve_connection(TokioIo::new(stream), service_fn(answer)) => {}
        _dropped = stopped.changed() => {}
        () = room.place.displaced() => {}
    }
}
