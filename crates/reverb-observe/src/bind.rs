//! TCP sockets that listen, for gRPC and for HTTP.

use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

// limit (Connections and calls): connections that wait to be accepted | {} | the system
/// Maximum number of connections that wait to be accepted.
const BACKLOG: u32 = 4096;
/// Maximum number of ports to try until one is free in both address families.
const TRIES: u32 = 32;

/// Sockets that listen at one port, in one or both address families.
#[derive(Debug)]
pub struct Bound {
    /// The address; the first of the two at loopback and at a wildcard.
    pub host: IpAddr,
    /// The port.
    pub port: u16,
    /// The sockets.
    pub listeners: Vec<TcpListener>,
}

impl Bound {
    /// Listens at a host, or at loopback if it is `None`. Port 0 picks a free one.
    pub fn new(host: Option<IpAddr>, port: u16) -> Result<Self> {
        // `localhost` names both addresses, in an order that depends on the machine. A wildcard means both too.
        let twin = match host {
            None | Some(IpAddr::V4(Ipv4Addr::LOCALHOST)) => Some(IpAddr::V6(Ipv6Addr::LOCALHOST)),
            Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)) => Some(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
            Some(_) => None,
        };
        let host = host.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let mut tries = 0;
        loop {
            tries += 1;
            match bind_both(host, twin, port) {
                Ok((port, listeners)) => return Ok(Self { host, port, listeners }),
                Err(error) if port == 0 && tries < TRIES && error.kind() == ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Says why a socket could not listen. `prefix` stands before the names of the options that gave the host and the port.
pub fn failed(prefix: &str, host: Option<IpAddr>, port: u16, error: &Error) -> reverb_core::Error {
    let host = host.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    if error.kind() == ErrorKind::AddrNotAvailable {
        return reverb_core::Error::invalid(format!("{prefix}host {host} is not an address of this machine: {error}"));
    }
    reverb_core::Error::Unavailable(format!("cannot listen on {host}, {prefix}port {port}: {error}"))
}

fn bind_both(host: IpAddr, twin: Option<IpAddr>, port: u16) -> Result<(u16, Vec<TcpListener>)> {
    let first = listen(SocketAddr::new(host, port))?;
    let port = first.local_addr()?.port();
    let mut listeners = vec![first];
    if let Some(twin) = twin {
        match listen(SocketAddr::new(twin, port)) {
            Ok(second) => listeners.push(second),
            Err(error) if error.kind() == ErrorKind::AddrInUse => return Err(error),
            Err(error) => tracing::debug!("address {twin} is not available on this machine: {error}"),
        }
    }
    Ok((port, listeners))
}

fn listen(address: SocketAddr) -> Result<TcpListener> {
    use socket2::{Domain, Protocol, Socket, Type};
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A port can be used again immediately after its server stopped. Two servers still cannot share it.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG as i32)?;
    Ok(socket.into())
}
