//! The servers of this process by address, so that a client of the same process can do without a network.

use crate::replay::Replay;
use parking_lot::Mutex;
use reverb_core::fork;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

static SERVERS: Mutex<Vec<RegisteredServer>> = Mutex::new(Vec::new());
/// Addresses of servers that have ended, for errors. The oldest are forgotten.
static ENDED: Mutex<VecDeque<RegisteredServer>> = Mutex::new(VecDeque::new());
/// Number of ended servers that are remembered.
const REMEMBERED: usize = 64;

struct RegisteredServer {
    hosts: Vec<IpAddr>,
    port: u16,
    generation: u32,
    server: Weak<Replay>,
}

impl RegisteredServer {
    fn listens(&self, hosts: &[IpAddr], port: u16) -> bool {
        self.port == port
            && self.generation == fork::generation()
            && self.hosts.iter().any(|host| host.is_unspecified() || hosts.contains(host))
    }
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
    let is_it = |entry: &mut RegisteredServer| std::ptr::eq(entry.server.as_ptr(), Arc::as_ptr(server));
    let ended: Vec<_> = SERVERS.lock().extract_if(.., is_it).collect();
    let mut all = ENDED.lock();
    all.extend(ended);
    let excess = all.len().saturating_sub(REMEMBERED);
    all.drain(..excess);
}

/// Whether a server of this process listened on this port at one of these loopback addresses, and has ended.
pub fn has_ended(hosts: &[IpAddr], port: u16) -> bool {
    // The lock is only tried, as in `find`.
    let Some(ended) = ENDED.try_lock_for(fork::LOCK_TIME) else { return false };
    ended.iter().any(|entry| entry.listens(hosts, port))
}

/// Returns the server of this process that listens on this port at one of these loopback addresses. A forked child has
/// copies of the tables of its parent, but not the server, so it does not find one.
pub fn find(hosts: &[IpAddr], port: u16) -> Option<Arc<Replay>> {
    // In a child that was forked while another thread held the lock, the lock is never released. It has no servers.
    let servers = SERVERS.try_lock_for(fork::LOCK_TIME)?;
    let server = servers.iter().find(|entry| entry.listens(hosts, port))?.server.upgrade();
    server.filter(|server| !server.is_closed())
}
