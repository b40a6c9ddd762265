//! Who has been at the HTTP port of late, so that the audit says once who comes. A connection there says nothing: browsers
//! and Prometheus make new ones all the time.

use parking_lot::Mutex;
use reverb_secure::Role;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

// limit (HTTP, metrics and logs): tokens at addresses that the audit has a line for, and no other for their further
// requests | {}, until they have made none for {AWAY_TIME} | those that came the longest ago get another line
/// Maximum number of visitors that are known. Only those with a valid token are.
const MAX_VISITORS: usize = 1024;
/// Time after which somebody who comes again is new.
const AWAY_TIME: Duration = Duration::from_secs(15 * 60);

/// A token at an address, with the role that it has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Visitor {
    pub token: String,
    pub role: Role,
    pub address: Option<IpAddr>,
}

/// Those that have been here of late, with the time of their latest request.
#[derive(Debug, Default)]
pub struct Visitors(Mutex<HashMap<Visitor, Instant>>);

impl Visitors {
    /// Notes that somebody makes a request. Returns whether it is the first one, or that after a long time.
    pub fn note(&self, visitor: Visitor, now: Instant) -> bool {
        let mut known = self.0.lock();
        if !known.contains_key(&visitor) && known.len() >= MAX_VISITORS {
            let oldest = known.iter().min_by_key(|(_, at)| **at).map(|(visitor, _)| visitor.clone());
            oldest.map(|visitor| known.remove(&visitor));
        }
        let before = known.insert(visitor, now);
        before.is_none_or(|before| now.saturating_duration_since(before) >= AWAY_TIME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visitor(number: usize) -> Visitor {
        Visitor { token: format!("learner {number}"), role: Role::View, address: None }
    }

    #[test]
    fn somebody_is_new_once_and_after_a_long_time() {
        let (visitors, start) = (Visitors::default(), Instant::now());
        let mut now = start;
        assert!(visitors.note(visitor(0), now));
        while now < start + 2 * AWAY_TIME {
            now += AWAY_TIME / 10;
            assert!(!visitors.note(visitor(0), now));
        }
        assert!(visitors.note(Visitor { role: Role::Use, ..visitor(0) }, now), "it may do more");
        assert!(visitors.note(Visitor { address: Some([127, 0, 0, 1].into()), ..visitor(0) }, now), "it is elsewhere");
        assert!(visitors.note(visitor(0), now + AWAY_TIME));
    }

    #[test]
    fn the_one_that_came_the_longest_ago_is_forgotten() {
        let (visitors, start) = (Visitors::default(), Instant::now());
        for number in 0..=MAX_VISITORS {
            assert!(visitors.note(visitor(number), start + Duration::from_millis(number as u64)));
        }
        let now = start + Duration::from_secs(10);
        assert_eq!(visitors.0.lock().len(), MAX_VISITORS);
        assert!(!visitors.note(visitor(1), now));
        assert!(visitors.note(visitor(0), now));
    }
}
