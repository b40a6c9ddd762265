//! The connections of a server, for those who watch it.

use crate::peer::Peer;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

/// The peers whose connections are open.
#[derive(Debug, Default)]
pub struct Connections {
    open: Mutex<Vec<Weak<Peer>>>,
}

impl Connections {
    /// Adds the peer of a new connection. It leaves the list when it is dropped.
    pub fn add(&self, peer: &Arc<Peer>) {
        let mut open = self.open.lock();
        open.retain(|peer| peer.strong_count() > 0);
        open.push(Arc::downgrade(peer));
    }

    /// Returns the peers of all open connections, in the order in which they connected.
    pub fn list(&self) -> Vec<Arc<Peer>> {
        self.open.lock().iter().filter_map(Weak::upgrade).collect()
    }
}
