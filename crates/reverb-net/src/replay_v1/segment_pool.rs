//! The segments of shared memory of one stream, at the end that writes to them.
//!
//! A segment is with the other end from the message that names it until that has said that it is free. Neither end ever waits
//! for one: without a free segment, and without room for another, the data of a message travels over the socket.

use crate::replay_v1::proto;
use crate::transport::passing::Passing;
use crate::transport::segment::Segment;
use reverb_core::writer::LEAST_SHARED_BYTES;
use std::collections::HashMap;
use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Number of uses of other segments, for each segment there is, after which a free one is dropped: a writer that has a
/// hundred items on their way now and then, and few in between, makes its segments once.
const PATIENCE: u64 = 32;
/// A segment is at most so many times as large as what lies in it.
const MAX_SPARE: usize = 2;

/// Who else uses shared memory, and how much there may be.
pub trait Budget: Debug + Send + Sync {
    /// Takes bytes, if there may be so many more.
    fn take(&self, bytes: u64) -> bool;
    /// Gives bytes back that were taken.
    fn give_back(&self, bytes: u64);
}

/// See the documentation of this module.
#[derive(Debug)]
pub struct SegmentPool {
    passing: Arc<Passing>,
    budget: Arc<dyn Budget>,
    /// Maximum number of segments, and the number of them.
    most: usize,
    count: usize,
    /// Maximum number of bytes of all segments, and the number of them.
    limit: u64,
    bytes: u64,
    /// Those that have come back, and the use after which each did. The last comes first.
    free: Vec<(Segment, u64)>,
    /// Those whose descriptors may still wait at the other end, and those descriptors that were not sent there yet.
    unclaimed: HashMap<u64, Option<OwnedFd>>,
    uses: u64,
    /// Those that the other end does not know yet to have been dropped.
    dropped: Vec<u64>,
}

impl SegmentPool {
    /// Makes the segments of a stream: `most` at most, which have `limit` bytes together, and those of the budget.
    pub fn new(passing: Arc<Passing>, budget: Arc<dyn Budget>, limit: u64, most: usize) -> Self {
        let (free, unclaimed, dropped) = (Vec::new(), HashMap::new(), Vec::new());
        Self { passing, budget, most, count: 0, limit, bytes: 0, free, unclaimed, uses: 0, dropped }
    }

    /// Makes the segments of another stream over the same connection, with the same limits.
    pub fn beside(&self) -> Self {
        Self::new(self.passing.clone(), self.budget.clone(), self.limit, self.most)
    }

    /// Takes a segment for so many bytes, if there is one.
    pub fn take(&mut self, len: usize) -> Option<Segment> {
        if len < LEAST_SHARED_BYTES {
            return None;
        }
        self.uses += 1;
        while self.free.first().is_some_and(|(_, used)| used + PATIENCE * (self.count as u64) < self.uses) {
            self.drop_oldest();
        }
        let fits = |(segment, _): &(Segment, u64)| (len..=len.saturating_mul(MAX_SPARE)).contains(&segment.len());
        match self.free.iter().rposition(fits) {
            Some(at) => Some(self.free.remove(at).0),
            None => self.make(len),
        }
    }

    /// Returns what the other end is told of a segment that was taken.
    pub fn name(&mut self, inode: u64) -> proto::Segment {
        let unsent = self.unclaimed.get_mut(&inode).and_then(Option::take);
        unsent.into_iter().for_each(|descriptor| self.passing.send(descriptor));
        proto::Segment { inode, dropped: std::mem::take(&mut self.dropped) }
    }

    /// Notes that the other end has got the message that named a segment.
    pub fn arrived(&mut self, inode: u64) {
        if self.unclaimed.remove(&inode).is_some() {
            self.passing.release();
        }
    }

    /// Puts a segment back, for further use unless it is retired.
    pub fn put_back(&mut self, segment: Segment, is_retired: bool) {
        if is_retired {
            self.let_go(segment);
        } else {
            self.free.push((segment, self.uses));
        }
    }

    /// Makes a segment, if there is room for it.
    fn make(&mut self, len: usize) -> Option<Segment> {
        // Data whose sizes differ a little use the same segments.
        let len = len.checked_next_multiple_of((len / 8).next_power_of_two())?;
        let free: u64 = self.free.iter().map(|(segment, _)| segment.len() as u64).sum();
        if self.count - self.free.len() >= self.most || (self.bytes - free).saturating_add(len as u64) > self.limit {
            // Without the free ones there would still be too little room.
            return None;
        }
        while !self.take_room(len as u64) {
            if self.free.is_empty() {
                return None;
            }
            self.drop_oldest();
        }
        if self.passing.reserve() {
            match Segment::new(len) {
                Ok((segment, descriptor)) => {
                    self.unclaimed.insert(segment.inode, Some(descriptor));
                    return Some(segment);
                }
                Err(error) => tracing::debug!("cannot make a segment of {len} bytes of shared memory: {error}"),
            }
            self.passing.release();
        }
        self.give_back(len as u64);
        None
    }

    /// Takes a segment of so many bytes, if there may be one more.
    fn take_room(&mut self, bytes: u64) -> bool {
        let is_room = self.count < self.most && self.bytes.saturating_add(bytes) <= self.limit;
        let is_taken = is_room && self.budget.take(bytes);
        self.count += usize::from(is_taken);
        self.bytes += if is_taken { bytes } else { 0 };
        is_taken
    }

    fn give_back(&mut self, bytes: u64) {
        self.count -= 1;
        self.bytes -= bytes;
        self.budget.give_back(bytes);
    }

    fn let_go(&mut self, segment: Segment) {
        let bytes = segment.len() as u64;
        if let Some(Some(_unsent)) = self.unclaimed.get(&segment.inode) {
            self.arrived(segment.inode);
        }
        drop(segment);
        self.give_back(bytes);
    }

    fn drop_oldest(&mut self) {
        let (segment, _) = self.free.remove(0);
        if !matches!(self.unclaimed.get(&segment.inode), Some(Some(_))) {
            self.dropped.push(segment.inode);
        }
        self.let_go(segment);
    }
}

/// What the other end has is its own from then on.
impl Drop for SegmentPool {
    fn drop(&mut self) {
        self.unclaimed.values().filter(|unsent| unsent.is_some()).for_each(|_| self.passing.release());
        self.budget.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::Relaxed;

    const LEN: usize = 1 << 20;
    const MOST: usize = 20;

    /// Counts bytes up to a limit.
    #[derive(Debug)]
    struct Limited(AtomicU64, u64);

    impl Budget for Limited {
        fn take(&self, bytes: u64) -> bool {
            let is_taken = self.0.load(Relaxed) + bytes <= self.1;
            self.0.fetch_add(if is_taken { bytes } else { 0 }, Relaxed);
            is_taken
        }

        fn give_back(&self, bytes: u64) {
            self.0.fetch_sub(bytes, Relaxed);
        }
    }

    fn pool(limit: u64) -> (SegmentPool, Arc<Limited>) {
        let budget = Arc::new(Limited(AtomicU64::new(0), limit));
        (SegmentPool::new(Arc::default(), budget.clone(), u64::MAX, MOST), budget)
    }

    fn take(segments: &mut SegmentPool, len: usize) -> Segment {
        segments.take(len).unwrap_or_else(|| panic!("no segment of {len} bytes"))
    }

    #[test]
    fn a_segment_is_used_again_once_it_is_back() {
        let (mut segments, _) = pool(1 << 30);
        let first = take(&mut segments, LEN);
        let inode = first.inode;
        let second = take(&mut segments, LEN);
        assert_ne!(inode, second.inode);
        segments.put_back(first, false);
        assert_eq!(take(&mut segments, LEN - 5).inode, inode);
        let fourth = take(&mut segments, LEN).inode;
        assert!(fourth != inode && fourth != second.inode, "neither is back");
    }

    #[test]
    fn a_retired_segment_is_never_used_again() {
        let (mut segments, budget) = pool(1 << 30);
        let first = take(&mut segments, LEN);
        let inode = first.inode;
        segments.put_back(first, true);
        assert_eq!((segments.bytes, budget.0.load(Relaxed)), (0, 0));
        assert_ne!(take(&mut segments, LEN).inode, inode);
    }

    #[test]
    fn beyond_the_limits_there_is_none() {
        let budget = Arc::new(Limited(AtomicU64::new(0), 1 << 30));
        let mut segments = SegmentPool::new(Arc::default(), budget.clone(), 2 << 20, MOST);
        let taken: Vec<_> = std::iter::from_fn(|| segments.take(LEN)).collect();
        assert_eq!((taken.len(), budget.0.load(Relaxed)), (2, 2 << 20));
        assert!(segments.take(usize::MAX).is_none() && segments.take(LEAST_SHARED_BYTES - 1).is_none());
        // A free one that is too small makes room.
        let inodes: Vec<_> = taken.iter().map(|segment| segments.name(segment.inode).inode).collect();
        taken.into_iter().for_each(|segment| segments.put_back(segment, false));
        assert!(segments.take(3 << 20).is_none());
        assert_eq!(segments.free.len(), 2, "they were dropped in vain");
        let large = take(&mut segments, 2 << 20);
        assert_eq!(segments.name(large.inode).dropped, inodes);
        assert!(segments.name(large.inode).dropped.is_empty(), "the other end knows");
        drop(segments);
        assert_eq!(budget.0.load(Relaxed), 0);
    }

    #[test]
    fn segments_that_nobody_has_used_for_long_are_dropped() {
        let (mut segments, _) = pool(1 << 30);
        let (large, small) = (take(&mut segments, 8 * LEN), take(&mut segments, LEN));
        let (of_large, of_small) = (segments.name(large.inode).inode, small.inode);
        segments.put_back(large, false);
        segments.put_back(small, false);
        for _ in 0..=2 * PATIENCE {
            let again = take(&mut segments, LEN);
            assert_eq!(again.inode, of_small);
            segments.put_back(again, false);
        }
        assert_eq!(segments.name(of_small).dropped, [of_large]);
        assert_eq!(segments.bytes, LEN as u64);
    }

    #[test]
    fn bursts_use_the_segments_of_the_burst_before() {
        let (mut segments, _) = pool(1 << 30);
        let mut burst = || {
            let taken: Vec<_> = (0..MOST).map(|_| take(&mut segments, LEN)).collect();
            let mut inodes: Vec<_> = taken.iter().map(|segment| segment.inode).collect();
            inodes.sort_unstable();
            taken.into_iter().for_each(|segment| segments.put_back(segment, false));
            for _ in 0..5 * MOST {
                let one = take(&mut segments, LEN);
                segments.put_back(one, false);
            }
            inodes
        };
        let first = burst();
        assert!((0..3).all(|_| burst() == first));
    }

    #[test]
    fn no_more_are_made_than_the_other_end_takes_at_once() {
        let passing = Arc::new(Passing::default());
        let (_, budget) = pool(1 << 40);
        let mut of_streams = [(); 5].map(|()| SegmentPool::new(passing.clone(), budget.clone(), u64::MAX, MOST));
        let mut taken = Vec::new();
        for pool in &mut of_streams {
            taken.push(std::iter::from_fn(|| pool.take(LEAST_SHARED_BYTES)).collect::<Vec<_>>());
        }
        assert_eq!(taken.iter().map(Vec::len).collect::<Vec<_>>(), [20, 20, 20, 4, 0], "64 in all");
        assert_eq!(budget.0.load(Relaxed), 64 * LEAST_SHARED_BYTES as u64);
        // Each that has arrived makes room for another.
        for inode in [taken[0][0].inode, taken[0][0].inode, taken[0][1].inode] {
            of_streams[0].arrived(inode);
        }
        assert_eq!(std::iter::from_fn(|| of_streams[4].take(LEAST_SHARED_BYTES)).count(), 2);
        // So does each that was never named, and the other end does not hear of it.
        let unnamed = taken[1].remove(0);
        of_streams[1].put_back(unnamed, true);
        of_streams[2].put_back(taken[2].remove(0), false);
        of_streams[2].drop_oldest();
        assert!(of_streams[2].name(1).dropped.is_empty());
        assert_eq!(std::iter::from_fn(|| of_streams[4].take(LEAST_SHARED_BYTES)).count(), 2);
        drop(of_streams);
        assert_eq!((0..100).filter(|_| passing.reserve()).count(), 64, "nothing was sent");
    }

    #[test]
    fn what_others_use_leaves_less() {
        let (mut segments, budget) = pool(2 << 20);
        assert!(budget.take(1 << 20));
        let first = take(&mut segments, LEN);
        assert!(segments.take(LEN).is_none());
        budget.give_back(1 << 20);
        assert_ne!(take(&mut segments, LEN).inode, first.inode);
    }

    #[test]
    fn there_are_no_more_than_so_many() {
        let (mut segments, _) = pool(1 << 40);
        let mut taken: Vec<_> = std::iter::from_fn(|| segments.take(LEN)).collect();
        assert_eq!(taken.len(), MOST);
        let first = taken.remove(0);
        let inode = segments.name(first.inode).inode;
        segments.put_back(first, false);
        let large = take(&mut segments, 4 * LEN);
        assert_eq!(segments.name(large.inode).dropped, [inode]);
        assert!(segments.take(LEN).is_none());
    }
}
