//! The listeners of a server: TCP in both address families, and a Unix socket.
//!
//! Without encryption and authentication, a server listens on this machine only: on 127.0.0.1, on ::1, and on a Unix
//! socket of mode 0600 in a folder that only this user can write to. The reference listens on all interfaces. Here
//! another host must be requested with `allow_insecure=True`, which Python checks. Two servers cannot share a port.

use crate::transport::socket::Socket;
use reverb_core::Result;
use reverb_observe::bind::{self, Bound};
use reverb_service::Replay;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
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
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self { host: None, port: None, heartbeat: HEARTBEAT }
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
    unix: Option<UnixListener>,
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
        let (unix, unix_path) = match bind_unix(host, port) {
            Ok((listener, path)) => (Some(listener), Some(path)),
            Err(error) => {
                tracing::info!("cannot open a Unix socket for port {port} ({error}); clients on this host use TCP");
                (None, None)
            }
        };
        Ok(Self { host, hosts, port, unix_path, tcp, unix })
    }

    /// Returns the addresses as people see them.
    pub fn addresses(&self) -> Vec<String> {
        let hosts = self.hosts.iter().map(|host| SocketAddr::new(*host, self.port).to_string());
        hosts.chain(self.unix_path.iter().map(|path| format!("unix:{}", path.display()))).collect()
    }

    /// Accepts connections from all sockets until the service is closed, and then frees the addresses. The returned
    /// receiver is disconnected after that.
    pub fn accept(
        self,
        replay: &Arc<Replay>,
    ) -> (ReceiverStream<std::io::Result<Socket>>, std::sync::mpsc::Receiver<()>) {
        let (sender, receiver) = mpsc::channel(64);
        let (open, freed) = std::sync::mpsc::channel();
        let tcp = self.tcp.into_iter().map(Listener::Tcp);
        for listener in tcp.chain(self.unix.map(Listener::Unix)) {
            tokio::spawn(accept_from(open.clone(), listener, sender.clone(), replay.clone()));
        }
        (ReceiverStream::new(receiver), freed)
    }
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    async fn accept(&self) -> std::io::Result<Socket> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(stream.into())
            }
            Self::Unix(listener) => listener.accept().await.map(|(stream, _)| stream.into()),
        }
    }
}

/// `_open` is the first parameter because arguments are dropped in reverse order: the listener is closed before `_open`
/// reports that the address is free.
async fn accept_from(
    _open: std::sync::mpsc::Sender<()>,
    listener: Listener,
    sender: mpsc::Sender<std::io::Result<Socket>>,
    replay: Arc<Replay>,
) {
    let mut closed = std::pin::pin!(replay.closed());
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(mut io) => {
                    io.register(&replay.connections);
                    if sender.send(Ok(io)).await.is_err() {
                        return;
                    }
                }
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

/// Binds a Unix socket in a folder that only this user can enter, so that other users cannot take its name.
/// The name contains the TCP address, so the server that owns the address may remove the socket of a killed server.
fn bind_unix(host: IpAddr, port: u16) -> std::io::Result<(UnixListener, PathBuf)> {
    let folder = runtime_folder()?;
    let path =
        folder.join(if host == Ipv4Addr::LOCALHOST { format!("{port}.sock") } else { format!("{host}-{port}.sock") });
    let _stale = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    Ok((listener, path))
}

fn runtime_folder() -> std::io::Result<PathBuf> {
    // SAFETY: the call has no preconditions and cannot fail.
    let uid = unsafe { libc::getuid() };
    let base = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| is_ours(path, uid));
    let folder = match base {
        Some(base) => base.join("reverb"),
        None => std::env::temp_dir().join(format!("reverb-{uid}")),
    };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    if !is_ours(&folder, uid) {
        return Err(std::io::Error::other(format!(
            "{} belongs to another user, or other users can write to it",
            folder.display()
        )));
    }
    Ok(folder)
}

fn is_ours(path: &Path, uid: u32) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir() && meta.uid() == uid && meta.mode() & 0o022 == 0)
}
