//! The largest priorities that this process knows of, for servers that do not fill in their own.

use parking_lot::Mutex;
use reverb_core::{NewPriority, fork};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// What is known of each server, by its address as the program has given it.
static SERVERS: LazyLock<Mutex<BTreeMap<String, Known>>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Known {
    /// The largest priority by table.
    largest: BTreeMap<String, f64>,
    has_warned: bool,
}

/// Takes priorities into account that clients of this process have set. Those that are not finite are ignored.
pub fn note(server: &str, table: &str, priorities: impl IntoIterator<Item = f64>) {
    let largest = priorities.into_iter().filter(|priority| priority.is_finite()).fold(0.0, f64::max);
    let Some(mut servers) = SERVERS.try_lock_for(fork::LOCK_TIME) else { return };
    if let Some(known) = servers.get_mut(server).and_then(|known| known.largest.get_mut(table)) {
        *known = known.max(largest);
    } else {
        servers.entry(server.into()).or_default().largest.insert(table.into(), largest);
    }
}

/// Returns the larger of 1 and the largest priority that was noted.
pub fn known(server: &str, table: &str) -> f64 {
    let Some(servers) = SERVERS.try_lock_for(fork::LOCK_TIME) else { return 1.0 };
    let noted = servers.get(server).and_then(|known| known.largest.get(table));
    noted.copied().unwrap_or_default().max(1.0)
}

/// Returns the priority with which an item is sent, and notes it: its own, or the known one if it takes the largest and
/// that is larger.
pub fn filled_in(server: &str, table: &str, priority: NewPriority) -> f64 {
    if priority.takes_largest {
        return priority.value.max(known(server, table));
    }
    note(server, table, [priority.value]);
    priority.value
}

/// Returns true the first time that it is called for a server: then its users are to be warned.
pub fn begin_warning(server: &str) -> bool {
    let Some(mut servers) = SERVERS.try_lock_for(fork::LOCK_TIME) else { return false };
    !std::mem::replace(&mut servers.entry(server.into()).or_default().has_warned, true)
}
