//! The sessions of the writers of this process, so that their unconfirmed items can be counted.

use crate::writing::{SharedSession, count_items};
use parking_lot::Mutex;
use reverb_core::fork;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

static SESSIONS: Mutex<Vec<Weak<SharedSession>>> = Mutex::new(Vec::new());

/// What one writer has not confirmed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unconfirmed {
    /// The address of the server, as the program has given it.
    pub address: String,
    /// Number of unconfirmed items for each table.
    pub items: BTreeMap<Arc<str>, usize>,
    /// Size of the items and of the chunks that they refer to in bytes.
    pub bytes: usize,
}

/// Adds the session of a new writer, or another stream of one.
pub fn add(session: &Arc<SharedSession>) {
    let Some(mut sessions) = SESSIONS.try_lock_for(fork::LOCK_TIME) else { return };
    if sessions.len() == sessions.capacity() {
        sessions.retain(|session| session.strong_count() > 0);
        // At least half of the places are free, so that few writers pay for the search.
        let len = sessions.len();
        sessions.reserve(len + 1);
    }
    sessions.push(Arc::downgrade(session));
}

/// Returns what the writers of this process have not confirmed, in the order in which they were made. Writers without
/// unconfirmed items are left out.
pub fn unconfirmed() -> Vec<Unconfirmed> {
    let Some(sessions) = SESSIONS.try_lock_for(fork::LOCK_TIME).map(|sessions| sessions.clone()) else {
        return Vec::new();
    };
    let sessions = sessions.iter().filter_map(Weak::upgrade);
    // A lock of the parent's writers may have been held at the fork.
    let own = sessions.filter(|session| session.generation == fork::generation());
    let mut writers: Vec<(Arc<str>, Unconfirmed)> = Vec::new();
    for session in own {
        let state = session.state.lock();
        let (items, bytes) = (count_items(state.outbox.items()), state.outbox.bytes());
        match writers.iter_mut().find(|(address, _)| Arc::ptr_eq(address, &session.address)) {
            // Another stream of the same writer.
            Some((_, writer)) => {
                items.into_iter().for_each(|(table, count)| *writer.items.entry(table).or_default() += count);
                writer.bytes += bytes;
            }
            None => {
                let writer = Unconfirmed { address: session.address.to_string(), items, bytes };
                writers.push((session.address.clone(), writer));
            }
        }
    }
    writers.into_iter().map(|(_, writer)| writer).filter(|writer| !writer.items.is_empty()).collect()
}
