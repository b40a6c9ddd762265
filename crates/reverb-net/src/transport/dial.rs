//! Opens connections to servers. Independent of the protocol over them.

use super::address::{Endpoint, Place};
use super::authorized::{Bearer, Channel};
use super::http2::{CONNECTION_WINDOW, FRAME_BYTES, KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT, STREAM_WINDOW};
use super::passing::Passing;
use super::peer_user;
use super::socket::Socket;
use super::unix_path;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use reverb_core::{Error, Result};
use reverb_secure::{Connector, TokenSource};
use reverb_service::Transport;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tonic::codegen::http::Uri;
use tonic::transport::{Channel as PlainChannel, Endpoint as HttpEndpoint};
use tower::{BoxError, ServiceExt};

/// Maximum time of one attempt to connect, so that a host that drops packets does not use up the time for all attempts.
pub const ATTEMPT_TIME: Duration = Duration::from_secs(3);
/// Number of probes of the operating system without an answer after which a connection is lost.
const KEEP_ALIVE_PROBES: u32 = 2;

/// How a lost peer is noticed while nothing is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeepAlive {
    /// By pings of HTTP/2, which also notice a peer that hangs.
    Pings,
    /// By the operating system. Servers of gRPC's own library close connections with more pings than one in 5 minutes.
    System,
}

/// An open connection.
#[derive(Debug)]
pub struct Dialled {
    pub transport: Transport,
    pub channel: Channel,
    tls: Option<Connector>,
    has_token: bool,
}

impl Dialled {
    /// Returns why a call over this connection has failed: `error`, unless the server has refused the client.
    pub fn why(&self, error: Error) -> Error {
        match (self.tls.as_ref().and_then(Connector::refusal), error) {
            (Some(refusal), _) => refusal,
            (None, error @ Error::Unauthenticated(_)) if !self.has_token => error.with_remark(
                "; this client has no token: pass token=, or set REVERB_TOKEN or REVERB_TOKEN_FILE in the environment",
            ),
            (None, error) => error,
        }
    }
}

/// Opens one connection to a server. With a token, `localhost:port` means the server's Unix socket if that is where it is
/// looked for, and else TCP, which a token may not take without TLS.
///
/// # Errors
/// [`Error::Unavailable`] with the cause, [`Error::InvalidArgument`] if the address or the token is not valid or the token
/// may not be sent there, or, over TLS, those of [`Connector::connect`].
pub async fn dial(endpoint: &Endpoint, keep_alive: KeepAlive) -> Result<Dialled> {
    let has_token = endpoint.token.is_some();
    let (host, port, or_shorter) = match endpoint.address.place()? {
        Place::Unix(path) => return dial_unix(endpoint, path, keep_alive).await,
        Place::Tcp { host, port, or_shorter } => (host, port, or_shorter),
    };
    let bearer = bearer_of(endpoint).await?;
    let foreign = match has_token {
        true => match dial_known_socket(endpoint, keep_alive).await {
            Ok(dialled) => return Ok(dialled),
            Err(foreign) => foreign,
        },
        false => None,
    };
    if let Some(refusal) = endpoint.refusal_of_plaintext() {
        return Err(foreign.map_or(refusal.clone(), |foreign| refusal.with_remark(&format!("; {foreign}"))));
    }
    let tls = if endpoint.address.is_tls() { Some(connector(endpoint, host).await?) } else { None };
    let channel = dial_host(host, port, or_shorter, tls.as_ref(), keep_alive).await?;
    Ok(Dialled { transport: Transport::Tcp, channel: Channel::new(channel, bearer), tls, has_token })
}

/// Connects to the Unix socket at which the server of a loopback address without TLS is looked for: in the folder of this
/// user.
///
/// # Errors
/// The [`Error::PermissionDenied`] of [`dial_unix`], if there was one.
pub async fn dial_known_socket(
    endpoint: &Endpoint,
    keep_alive: KeepAlive,
) -> std::result::Result<Dialled, Option<Error>> {
    const HOSTS: [IpAddr; 4] = [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    ];
    let Some((_, port)) = endpoint.address.loopback() else { return Err(None) };
    let mut foreign = None;
    for path in HOSTS.iter().flat_map(|host| unix_path::known(*host, port, &endpoint.unix_peers)) {
        let Some(path) = path.to_str() else { continue };
        match dial_unix(endpoint, path, keep_alive).await {
            Ok(dialled) => return Ok(dialled),
            Err(error @ Error::PermissionDenied(_)) => foreign = Some(error),
            Err(_) => {}
        }
    }
    Err(foreign)
}

/// Returns the token of an endpoint, which may be in a file.
async fn bearer_of(endpoint: &Endpoint) -> Result<Option<Bearer>> {
    match endpoint.token.clone() {
        None => Ok(None),
        Some(given @ TokenSource::Given(_)) => Bearer::of(given).map(Some),
        Some(file @ TokenSource::File(_)) => {
            let read = tokio::task::spawn_blocking(move || Bearer::of(file));
            read.await.map_err(|error| Error::Internal(error.to_string()))?.map(Some)
        }
    }
}

/// Reads the files for the handshakes with a server.
async fn connector(endpoint: &Endpoint, host: &str) -> Result<Connector> {
    let (tls, host, peer) = (endpoint.tls.clone(), host.to_owned(), endpoint.to_string());
    let read = tokio::task::spawn_blocking(move || tls.connector(&host, &peer));
    read.await.map_err(|error| Error::Internal(error.to_string()))?
}

/// Connects to a TCP port.
///
/// # Errors
/// [`Error::Unavailable`] with the cause, [`Error::InvalidArgument`] if the host is not a valid name, or those of
/// [`Connector::connect`].
async fn dial_tcp(host: &str, port: u16, tls: Option<&Connector>, keep_alive: KeepAlive) -> Result<PlainChannel> {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(ATTEMPT_TIME));
    if keep_alive == KeepAlive::System {
        connector.set_keepalive(Some(KEEP_ALIVE_INTERVAL));
        connector.set_keepalive_interval(Some(KEEP_ALIVE_INTERVAL));
        connector.set_keepalive_retries(Some(KEEP_ALIVE_PROBES));
        #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
        connector.set_tcp_user_timeout(Some(KEEP_ALIVE_INTERVAL + KEEP_ALIVE_TIMEOUT));
    }
    let connected = match tls {
        None => {
            let connector = connector.map_response(|stream| TokioIo::new(Socket::from(stream.into_inner())));
            endpoint(&format!("http://{host}:{port}"), keep_alive)?.connect_with_connector(connector).await
        }
        Some(tls) => {
            connector.enforce_http(false);
            let tls = tls.clone();
            let connector = tower::service_fn(move |uri: Uri| {
                let (connector, tls) = (connector.clone(), tls.clone());
                async move {
                    let stream = connector.oneshot(uri).await?.into_inner();
                    Ok::<_, BoxError>(TokioIo::new(tls.connect(Socket::from(stream)).await?))
                }
            });
            endpoint(&format!("https://{host}:{port}"), keep_alive)?.connect_with_connector(connector).await
        }
    };
    connected.map_err(|error| failed(&error))
}

/// As [`dial_tcp`]. If nothing answers at an address of this machine other than loopback, and `or_loopback` is set,
/// connects to the loopback address: that is where a server listens if it was not given a host.
///
/// # Errors
/// The errors of [`dial_tcp`]. The text says where servers listen, if the host is not a loopback address.
async fn dial_host(
    host: &str,
    port: u16,
    or_loopback: bool,
    tls: Option<&Connector>,
    keep_alive: KeepAlive,
) -> Result<PlainChannel> {
    let refused = match dial_tcp(host, port, tls, keep_alive).await {
        Err(Error::Unavailable(reason)) => reason,
        done => return done,
    };
    let resolved = tokio::time::timeout(ATTEMPT_TIME, tokio::net::lookup_host((host, port))).await;
    let addresses: Vec<IpAddr> = match resolved {
        Ok(Ok(found)) => found.map(|address| address.ip()).collect(),
        Ok(Err(_)) => return Err(Error::Unavailable(format!("{host}: unknown host"))),
        Err(_) => return Err(Error::Unavailable(refused)),
    };
    // A server at one of these is reached, if there is one.
    let is_served = |ip: &IpAddr| ip.is_unspecified() || *ip == Ipv4Addr::LOCALHOST || *ip == Ipv6Addr::LOCALHOST;
    if addresses.iter().all(is_served) {
        return Err(Error::Unavailable(refused));
    }
    if or_loopback
        && addresses.iter().any(is_of_this_machine)
        && let Ok(channel) = dial_tcp("127.0.0.1", port, None, keep_alive).await
    {
        return Ok(channel);
    }
    Err(Error::Unavailable(format!(
        "{refused}; servers listen on this machine only unless host= or REVERB_HOST is given"
    )))
}

fn is_of_this_machine(address: &IpAddr) -> bool {
    // A socket can be bound to the addresses of this machine only. Nothing is sent.
    address.is_loopback() || UdpSocket::bind((*address, 0)).is_ok()
}

/// Connects to a Unix socket. Nothing is sent to a server of another user, except one of those that the endpoint trusts.
///
/// # Errors
/// [`Error::Unavailable`] with the cause, or [`Error::PermissionDenied`] if the server is of a user who is not trusted.
pub async fn dial_unix(to: &Endpoint, path: &str, keep_alive: KeepAlive) -> Result<Dialled> {
    let (path, others) = (path.to_owned(), to.unix_peers.clone());
    let passing: Arc<Passing> = Arc::default();
    let of_socket = passing.clone();
    let connector = tower::service_fn(move |_: Uri| {
        let (path, others, passing) = (path.clone(), others.clone(), of_socket.clone());
        async move {
            let stream = UnixStream::connect(&path).await?;
            peer_user::check(&stream, &others).map_err(|user| foreign(&path, user, &others))?;
            Ok::<_, BoxError>(TokioIo::new(Socket::from(stream).taking(passing)))
        }
    });
    let bearer = bearer_of(to).await?;
    let has_token = bearer.is_some();
    // The URI only names the server in the headers of requests.
    let endpoint = endpoint("http://localhost", keep_alive)?;
    let channel = endpoint.connect_with_connector(connector).await.map_err(|error| failed(&error))?;
    let channel = Channel::new(channel, bearer).with_passing(passing);
    Ok(Dialled { transport: Transport::Unix, channel, tls: None, has_token })
}

/// The error of a server of another user.
fn foreign(path: &str, user: Option<u32>, others: &[u32]) -> Error {
    let trusted: String = others.iter().map(|user| format!(", user {user}")).collect();
    let user = match user {
        None => "an unknown user".to_owned(),
        Some(user) if user == peer_user::overflow_user() => {
            format!("user {user}, whose number stands for all users that the system cannot name here")
        }
        Some(user) => format!("user {user}"),
    };
    Error::PermissionDenied(format!(
        "the server at unix:{path} is a process of {user}; this one is of user {}, and trusts servers of that user{trusted} \
         and of root only",
        peer_user::own()
    ))
}

fn endpoint(uri: &str, keep_alive: KeepAlive) -> Result<HttpEndpoint> {
    let endpoint = HttpEndpoint::from_shared(uri.to_owned())
        .map_err(|error| Error::invalid(format!("{uri} is not a valid server address: {error}")))?;
    let endpoint = endpoint
        .connect_timeout(ATTEMPT_TIME)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME_BYTES);
    Ok(match keep_alive {
        KeepAlive::System => endpoint,
        KeepAlive::Pings => endpoint
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .keep_alive_while_idle(true),
    })
}

/// Returns an error with its root cause, which is the most useful part for users; only the cause if that says all. The
/// error of a handshake stays as it is.
fn failed(error: &dyn std::error::Error) -> Error {
    let mut root = None;
    let mut next = error.source();
    while let Some(cause) = next {
        if let Some(refused) = cause.downcast_ref::<Error>() {
            return refused.clone();
        }
        root = Some(cause);
        if cause.downcast_ref::<io::Error>().is_some_and(|cause| cause.kind() == io::ErrorKind::ConnectionRefused) {
            return Error::Unavailable("connection refused".into());
        }
        next = cause.source();
    }
    Error::Unavailable(match root {
        Some(root) => format!("{error}: {root}"),
        None => error.to_string(),
    })
}
