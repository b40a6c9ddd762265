//! The servers of this process, by port: how a client finds that it needs no network.

use crate::replay::Replay;
use parking_lot::Mutex;
use reverb_core::fork;
use std::sync::{Arc, Weak};

static SERVERS: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

struct Entry {
    port: u16,
    generation: u32,
    server: Weak<Replay>,
}

/// Makes a server known to the clients of this process.
pub fn register(port: u16, server: &Arc<Replay>) {
    let mut servers = SERVERS.lock();
    servers.retain(|entry| entry.server.strong_count() > 0 && entry.port != port);
    servers.push(Entry { port, generation: fork::generation(), server: Arc::downgrade(server) });
}

/// Forgets the server on this port.
pub fn unregister(port: u16) {
    SERVERS.lock().retain(|entry| entry.port != port);
}

/// The server on this port, if it lives in this process. A forked child has a copy of its parent's tables, but not its
/// server, so there it finds none.
pub fn find(port: u16) -> Option<Arc<Replay>> {
    let generation = fork::generation();
    // A child forked while another thread held the lock would wait for ever; it has no server to find.
    let servers = SERVERS.try_lock_for(std::time::Duration::from_millis(100))?;
    let entry = servers.iter().find(|entry| entry.port == port && entry.generation == generation)?;
    entry.server.upgrade().filter(|server| !server.is_closed())
}
