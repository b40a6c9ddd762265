//! Log lines about clients that have gone while they had something in flight.

use reverb_service::{Peer, Replay};

/// Logs that a client has gone, if it had anything in flight: kinds of things, each with its number. When the server has
/// stopped, it is the server that has gone.
pub fn log_vanished(replay: &Replay, peer: &Peer, in_flight: &[(usize, &str)]) {
    let parts: Vec<_> = in_flight.iter().filter(|(number, _)| *number > 0).collect();
    if parts.is_empty() || replay.is_closed() {
        return;
    }
    let parts: Vec<_> = parts.into_iter().map(|(number, what)| format!("{number} {what}")).collect();
    tracing::info!(client = %peer, "{peer} has gone, with {} in flight", parts.join(" and "));
}
