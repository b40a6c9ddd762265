//! How much memory a server shares with the clients of its host.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Of the limit for all clients, the part that one may use at most.
const PART_OF_ONE: u64 = 2;

/// Counts the shared memory of a server.
#[derive(Debug, Default)]
pub struct SharedMemory {
    limit: AtomicU64,
    used: AtomicU64,
}

impl SharedMemory {
    /// Sets the number of bytes that all clients may use together. 0, as at first, means that none is shared.
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Relaxed);
    }

    /// Returns the number of bytes that one client may use.
    pub fn limit_of_one(&self) -> u64 {
        self.limit.load(Relaxed) / PART_OF_ONE
    }

    /// Returns the number of bytes in use.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Takes bytes, if they are within the limit.
    pub fn take(&self, bytes: u64) -> bool {
        let limit = self.limit.load(Relaxed);
        let more = |used: u64| used.checked_add(bytes).filter(|used| *used <= limit);
        self.used.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// Gives bytes back that were taken.
    pub fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_taken_up_to_the_limit() {
        let shared = SharedMemory::default();
        assert!(!shared.take(1), "none is shared at first");
        shared.set_limit(100);
        assert!(shared.take(60) && !shared.take(41) && !shared.take(u64::MAX) && shared.take(40));
        shared.give_back(60);
        assert_eq!((shared.used(), shared.limit_of_one()), (40, 50));
    }
}
