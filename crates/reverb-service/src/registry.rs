//! The servers of this process by address, so that a client of the same process can do without a network.

use crate::replay::Replay;
use parking_lot::Mutex;
use reverb_core::fork;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

static SERVERS: Mutex<Vec<RegisteredServer>> = Mutex::new(Vec::new());

struct RegisteredServer {
    hosts: Vec<IpAddr>,
    port: u16,
    generation: u32,
    server: Weak<Replay>,
}

/// Makes a server known to the clients of this process.
pub fn register(hosts: &[IpAddr], port: u16, server: &Arc<Replay>) {
    let mut servers = SERVERS.lock();
    servers.retain(|entry| entry.server.strong_count() > 0);
    let (hosts, generation) = (hosts.to_vec(), fork::generation());
    servers.push(RegisteredServer { hosts, port, generation, server: Arc::downgrade(server) });
}

/// Removes a server.
pub fn unregister(server: &Arc<Replay>) {
    SERVERS.lock().retain(|entry| !std::ptr::eq(entry.server.as_ptr(), Arc::as_ptr(server)));
}

/// Returns the server of this process that listens on this port at one of these loopback addresses. A forked child has
/// copies of the tables of its parent, but not the server, so it does not find one.
pub fn find(hosts: &[IpAddr], port: u16) -> Option<Arc<Replay>> {
    // In a child that was forked while another thread held the lock, the lock is never released. It has no servers.
    let servers = SERVERS.try_lock_for(Duration::from_millis(100))?;
    let listens = |entry: &RegisteredServer| {
        entry.port == port
            && entry.generation == fork::generation()
            && entry.hosts.iter().any(|host| host.is_unspecified() || hosts.contains(host))
    };
    let server = servers.iter().find(|entry| listens(entry))?.server.upgrade();
    server.filter(|server| !server.is_closed())
}
