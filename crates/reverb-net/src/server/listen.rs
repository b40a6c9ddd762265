//! The listeners of a server: TCP in both address families, and a Unix socket.
//!
//! Without encryption and authentication, a server listens on this machine only: on 127.0.0.1, on ::1, and on a Unix
//! socket of mode 0600 in a folder that only this user can write to. The reference listens on all interfaces. Here
//! another host must be requested with `allow_insecure=True`, which Python checks. Two servers cannot share a port.

use super::connection::Connection;
use crate::transport::address::TLS_SCHEME;
use crate::transport::peer_user;
use crate::transport::socket::Socket;
use crate::transport::unix_path;
use reverb_core::Result;
use reverb_observe::bind::{self, Bound};
use reverb_secure::{Access, Handshakes, Port, Secured, ServerTls};
use reverb_service::Replay;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

// limit (Connections and calls): empty message on a stream whose requests wait, from both sides | every {} | |
// `Server(heartbeat_interval=)`
/// Default of [`ListenOptions::heartbeat`]. Balancers close streams on which nothing is sent, often after 50 or 60 s.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// The address and port to listen on, and how often streams that wait show that they are alive.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// An address of this machine. `None` means loopback, in both address families.
    pub host: Option<IpAddr>,
    /// The TCP port. `None` or 0 picks a free one.
    pub port: Option<u16>,
    /// Time after which an empty message is sent on a stream whose requests wait, at least a millisecond.
    pub heartbeat: Duration,
    /// TLS of the TCP port. Unix sockets have none.
    pub tls: Option<Arc<ServerTls>>,
    /// Checks calls. `None` lets everyone who reaches a socket do everything.
    pub access: Option<Arc<Access>>,
    /// Users of this machine, beside the server's own and root, whose programs may use the Unix socket. Their calls need
    /// tokens.
    pub unix_peers: Vec<u32>,
    /// Number of bytes of memory that clients of this host may share with the server together. `None` means an eighth of the
    /// memory that the process may use.
    pub max_shared_bytes: Option<u64>,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            host: None,
            port: None,
            heartbeat: HEARTBEAT,
            tls: None,
            access: None,
            unix_peers: Vec::new(),
            max_shared_bytes: None,
        }
    }
}

/// The bound sockets of a server.
#[derive(Debug)]
pub struct Listeners {
    pub host: IpAddr,
    /// All addresses that the server listens on.
    pub hosts: Vec<IpAddr>,
    pub port: u16,
    pub unix_path: Option<PathBuf>,
    tcp: Vec<TcpListener>,
    tls: Option<Arc<ServerTls>>,
    unix: Option<UnixListener>,
    unix_check: UnixCheck,
}

/// Whose programs may connect to the Unix socket.
#[derive(Debug, Clone)]
enum UnixCheck {
    /// Those of the server's user and of root.
    Own,
    /// Those who can open the socket, which takes the server's user or root. Tokens decide.
    Openers,
    /// Those of these users, too. Tokens decide.
    Among(Arc<[u32]>),
}

impl UnixCheck {
    fn of(options: &ListenOptions) -> Self {
        match &options.access {
            Some(access) if access.has_tokens() && options.unix_peers.is_empty() => Self::Openers,
            Some(access) if access.has_tokens() => Self::Among(options.unix_peers.as_slice().into()),
            _ => Self::Own,
        }
    }

    fn check(&self, stream: &UnixStream) -> std::result::Result<(), Option<u32>> {
        match self {
            Self::Own => peer_user::check(stream, &[]),
            Self::Openers => Ok(()),
            Self::Among(users) => peer_user::check(stream, users),
        }
    }
}

impl Listeners {
    /// Binds all sockets. Must be called in the context of a runtime.
    pub fn bind(options: &ListenOptions) -> Result<Self> {
        let wanted = options.port.unwrap_or(0);
        let failed = |error: std::io::Error| bind::failed("", options.host, wanted, &error);
        let Bound { host, port, listeners } = Bound::new(options.host, wanted).map_err(failed)?;
        let hosts = listeners.iter().filter_map(|listener| listener.local_addr().ok());
        let hosts = hosts.map(|address| address.ip()).collect();
        let tcp = listeners.into_iter().map(TcpListener::from_std).collect::<std::io::Result<_>>();
        let tcp = tcp.map_err(failed)?;
        let unix_check = UnixCheck::of(options);
        let (unix, unix_path) = match bind_unix(host, port, matches!(unix_check, UnixCheck::Among(_))) {
            Ok((listener, path)) => (Some(listener), Some(path)),
            Err(error) => {
                tracing::info!("cannot open a Unix socket for port {port} ({error}); clients on this host use TCP");
                (None, None)
            }
        };
        Ok(Self { host, hosts, port, unix_path, tcp, tls: options.tls.clone(), unix, unix_check })
    }

    /// Returns the addresses as people see them.
    pub fn addresses(&self) -> Vec<String> {
        let scheme = if self.tls.is_some() { TLS_SCHEME } else { "" };
        let hosts = self.hosts.iter().map(|host| format!("{scheme}{}", SocketAddr::new(*host, self.port)));
        hosts.chain(self.unix_path.iter().map(|path| format!("unix:{}", path.display()))).collect()
    }

    /// Accepts connections from all sockets until the service is closed, and then frees the addresses. The returned
    /// receiver is disconnected after that.
    pub fn accept(
        self,
        replay: &Arc<Replay>,
    ) -> (ReceiverStream<std::io::Result<Connection>>, std::sync::mpsc::Receiver<()>) {
        let (sender, receiver) = mpsc::channel(64);
        let (open, freed) = std::sync::mpsc::channel();
        let tcp = self.tcp.into_iter().map(|listener| Listener::Tcp(listener, self.tls.clone()));
        for listener in tcp.chain(self.unix.map(|unix| Listener::Unix(unix, self.unix_check))) {
            let accepted = Accepted { sender: sender.clone(), replay: replay.clone() };
            tokio::spawn(accept_from(open.clone(), listener, accepted));
        }
        (ReceiverStream::new(receiver), freed)
    }
}

enum Listener {
    Tcp(TcpListener, Option<Arc<ServerTls>>),
    Unix(UnixListener, UnixCheck),
}

/// A connection that was just accepted.
enum New {
    Ready(Secured<Socket>),
    /// Its client has yet to make a handshake.
    Stranger(TcpStream, Arc<ServerTls>),
    /// It is of another user of this machine, and was closed.
    Foreign(Option<u32>),
}

impl Listener {
    async fn accept(&self) -> std::io::Result<New> {
        match self {
            Self::Tcp(listener, tls) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(match tls {
                    None => New::Ready(Secured::Plain(stream.into())),
                    Some(tls) => New::Stranger(stream, tls.clone()),
                })
            }
            Self::Unix(listener, users) => {
                let (stream, _) = listener.accept().await?;
                Ok(match users.check(&stream) {
                    Ok(()) => New::Ready(Secured::Plain(Socket::from(stream).taking(Arc::default()))),
                    Err(user) => New::Foreign(user),
                })
            }
        }
    }
}

/// Nobody takes connections any more.
struct Closed;

/// Where connections go that are ready for calls.
#[derive(Clone)]
struct Accepted {
    sender: mpsc::Sender<std::io::Result<Connection>>,
    replay: Arc<Replay>,
}

impl Accepted {
    /// Makes the handshake with a stranger, and hands the connection over.
    async fn greet(self, stream: TcpStream, tls: Arc<ServerTls>) {
        match tls.accept(stream, Port::Grpc, Socket::from).await {
            Ok(connection) => drop(self.hand_over(connection).await),
            Err(error) => tracing::debug!("a handshake of TLS failed: {error}"),
        }
    }

    /// Hands a connection over.
    async fn hand_over(&self, secured: Secured<Socket>) -> std::result::Result<(), Closed> {
        self.sender.send(Ok(Connection::new(secured, &self.replay.connections))).await.map_err(|_| Closed)
    }
}

/// `_open` is the first parameter because arguments are dropped in reverse order: the listener is closed before `_open`
/// reports that the address is free.
async fn accept_from(_open: std::sync::mpsc::Sender<()>, listener: Listener, accepted: Accepted) {
    let replay = accepted.replay.clone();
    let mut closed = std::pin::pin!(replay.closed());
    let mut handshakes = Handshakes::default();
    loop {
        tokio::select! {
            new = listener.accept() => match new {
                Ok(New::Ready(connection)) => {
                    if accepted.hand_over(connection).await.is_err() {
                        return;
                    }
                }
                Ok(New::Foreign(user)) => tracing::debug!("closed a connection to the Unix socket of user {user:?}"),
                Ok(New::Stranger(stream, tls)) => handshakes.begin(accepted.clone().greet(stream, tls)),
                Err(error) => {
                    // Usually the process has no free file descriptor. Some become free when open connections close.
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            () = &mut closed => return,
        }
    }
}

/// Binds a Unix socket in a folder that only this user can write to, so that other users cannot take its name. The name contains the TCP address, so the server that owns the address may remove the socket of a killed server.
fn bind_unix(host: IpAddr, port: u16, is_for_others: bool) -> std::io::Result<(UnixListener, PathBuf)> {
    let path = unix_path::of_server(host, port, is_for_others)?;
    let _stale = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(if is_for_others { 0o666 } else { 0o600 }))?;
    Ok((listener, path))
}
