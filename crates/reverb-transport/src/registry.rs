//! The servers of this process, by address: how a client finds that it needs no network.

use crate::replay::Replay;
use parking_lot::Mutex;
use reverb_core::fork;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

static SERVERS: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

struct Entry {
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
    servers.push(Entry { hosts, port, generation, server: Arc::downgrade(server) });
}

/// Forgets a server.
pub fn unregister(server: &Arc<Replay>) {
    SERVERS.lock().retain(|entry| !std::ptr::eq(entry.server.as_ptr(), Arc::as_ptr(server)));
}

/// The server that listens on this port of one of these loopback addresses, if it lives in this process. A forked child
/// has a copy of its parent's tables, but not its server, so there it finds none.
pub fn find(hosts: &[IpAddr], port: u16) -> Option<Arc<Replay>> {
    // A child forked while another thread held the lock would wait for ever; it has no server to find.
    let servers = SERVERS.try_lock_for(Duration::from_millis(100))?;
    let listens = |entry: &Entry| {
        entry.port == port
            && entry.generation == fork::generation()
            && entry.hosts.iter().any(|host| host.is_unspecified() || hosts.contains(host))
    };
    let server = servers.iter().find(|entry| listens(entry))?.server.upgrade();
    server.filter(|server| !server.is_closed())
}
