//! Counts of failed attempts by address, so that a guesser is told so and costs little.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

// limit (Connections and calls): calls with a wrong token or none, by address of the peer | {MAX_FAILURES} per second |
// `RESOURCE_EXHAUSTED`, over HTTP 429; calls with a valid token are served
/// Maximum number of failures of an address in one [`WINDOW`] that are told what is wrong.
const MAX_FAILURES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(1);
/// Maximum number of addresses that are told apart. All others share one count.
const MAX_ADDRESSES: usize = 4096;

/// The failures of the last moment.
#[derive(Debug, Default)]
pub struct Failures(Mutex<Recent>);

#[derive(Debug, Default)]
struct Recent {
    by_address: HashMap<Option<IpAddr>, Count>,
    others: Option<Count>,
}

#[derive(Debug, Clone, Copy)]
struct Count {
    since: Instant,
    failures: u32,
}

impl Failures {
    /// Counts a failure, and returns whether its address has had too many. `None` stands for this machine's Unix socket.
    pub fn add(&self, address: Option<IpAddr>) -> bool {
        self.add_at(address, Instant::now())
    }

    fn add_at(&self, address: Option<IpAddr>, now: Instant) -> bool {
        let address = address.map(network);
        let recent = &mut *self.0.lock();
        if recent.by_address.len() >= MAX_ADDRESSES && !recent.by_address.contains_key(&address) {
            recent.by_address.retain(|_, count| now.saturating_duration_since(count.since) < WINDOW);
        }
        let new = Count { since: now, failures: 0 };
        let is_full = recent.by_address.len() >= MAX_ADDRESSES && !recent.by_address.contains_key(&address);
        let count =
            if is_full { recent.others.get_or_insert(new) } else { recent.by_address.entry(address).or_insert(new) };
        if now.saturating_duration_since(count.since) >= WINDOW {
            *count = new;
        }
        count.failures = count.failures.saturating_add(1);
        count.failures > MAX_FAILURES
    }
}

/// What one user has: with IPv6, usually all addresses with the same 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> Option<IpAddr> {
        Some(IpAddr::V4(number.into()))
    }

    #[test]
    fn an_address_has_ten_failures_a_second() {
        let (failures, start) = (Failures::default(), Instant::now());
        let add = |address, after_ms| failures.add_at(address, start + Duration::from_millis(after_ms));
        for after in 0..10 {
            assert!(!add(address(1), after));
        }
        assert!(add(address(1), 10) && add(address(1), 999));
        assert!(!add(address(2), 11) && !add(None, 11), "others have their own count");
        assert!(!add(address(1), 1000));
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let (failures, now) = (Failures::default(), Instant::now());
        let add = |text: &str| failures.add_at(Some(text.parse().expect("an address")), now);
        let too_many = (0..11).filter(|number| add(&format!("2001:db8::{number}"))).count();
        assert_eq!((too_many, add("2001:db8:0:1::1")), (1, false));
        let mapped = (0..11).filter(|_| add("::ffff:10.0.0.1")).count();
        assert!(mapped == 1 && add("10.0.0.1"));
    }

    #[test]
    fn a_crowd_of_addresses_takes_bounded_memory() {
        let (failures, now) = (Failures::default(), Instant::now());
        let crowd = MAX_ADDRESSES as u32;
        assert!((0..crowd).all(|number| !failures.add_at(address(number), now)));
        let refused = (0..100).filter(|number| failures.add_at(address(crowd + number), now)).count();
        assert_eq!((refused, failures.0.lock().by_address.len()), (90, MAX_ADDRESSES));
        failures.add_at(address(crowd), now + WINDOW);
        assert_eq!(failures.0.lock().by_address.len(), 1);
    }
}
