//! The servers whose loss was reported, so that many clients of one process report it once.

use parking_lot::Mutex;
use reverb_core::fork;
use std::time::{Duration, Instant};

/// Time after which another client reports the loss again.
const REPEAT_AFTER: Duration = Duration::from_secs(60);

/// A server: the address of all servers of the client, its own, and the time of the report.
type Told = (String, String, Instant);

static TOLD: Mutex<Vec<Told>> = Mutex::new(Vec::new());

/// Whether the loss of a server was not reported recently. The caller then reports it.
pub fn is_news(address: &str, peer: &str) -> bool {
    let Some(mut told) = TOLD.try_lock_for(fork::LOCK_TIME) else { return true };
    told.retain(|(_, _, at)| at.elapsed() < REPEAT_AFTER);
    let is_news = !told.iter().any(|(all, one, _)| all == address && one == peer);
    if is_news {
        told.push((address.to_owned(), peer.to_owned(), Instant::now()));
    }
    is_news
}

/// Forgets the report, because the server was reached.
pub fn forget(address: &str, peer: &str) {
    if let Some(mut told) = TOLD.try_lock_for(fork::LOCK_TIME) {
        told.retain(|(all, one, _)| all != address || one != peer);
    }
}
