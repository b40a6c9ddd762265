//! The segments of shared memory of one stream, at the end that writes to them.
//!
//! A segment is with the other end from the message that names it until that has said that it is free. Neither end ever waits
//! for one: without a free segment, and without room for another, the data of a message travels over the socket.

use crate::replay_v1::proto;
use crate::transport::passing::Passing;
use crate::transport::segment::Segment;
use std::collections::HashMap;
use std::fmt::Debug;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Smallest data in bytes that is worth a segment.
pub const LEAST_BYTES: usize = 64 << 10;
/// Number of uses of other segments after which a free one is dropped.
pub const PATIENCE: u64 = 64;
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
    /// Those that the other end has.
    lent: HashMap<u64, Lent>,
    uses: u64,
    /// Those that the other end does not know yet to have been dropped.
    dropped: Vec<u64>,
}

/// A segment that is written to, or that the other end has.
#[derive(Debug)]
pub struct Lent {
    segment: Segment,
    /// Whether its descriptor may still wait at the other end.
    is_unclaimed: bool,
}

impl Lent {
    /// Its bytes, for writing.
    pub fn bytes(&mut self) -> &mut [MaybeUninit<u8>] {
        self.segment.bytes()
    }
}

impl SegmentPool {
    /// Makes the segments of a stream: `most` at most, which have `limit` bytes together, and those of the budget.
    pub fn new(passing: Arc<Passing>, budget: Arc<dyn Budget>, limit: u64, most: usize) -> Self {
        let (free, lent, dropped) = (Vec::new(), HashMap::new(), Vec::new());
        Self { passing, budget, most, count: 0, limit, bytes: 0, free, lent, uses: 0, dropped }
    }

    /// Returns a segment for so many bytes, if there is one, for writing. [`SegmentPool::sent`] must follow.
    pub fn lend(&mut self, len: usize) -> Option<Lent> {
        if len < LEAST_BYTES {
            return None;
        }
        self.uses += 1;
        while self.free.first().is_some_and(|(_, used)| used + PATIENCE < self.uses) {
            self.drop_oldest();
        }
        let fits = |(segment, _): &(Segment, u64)| (len..=len.saturating_mul(MAX_SPARE)).contains(&segment.len());
        match self.free.iter().rposition(fits) {
            Some(at) => Some(Lent { segment: self.free.remove(at).0, is_unclaimed: false }),
            None => self.make(len).map(|segment| Lent { segment, is_unclaimed: true }),
        }
    }

    /// Notes that the other end gets a segment. Returns what it is told.
    pub fn sent(&mut self, lent: Lent) -> proto::Segment {
        let inode = lent.segment.inode;
        self.lent.insert(inode, lent);
        proto::Segment { inode, dropped: std::mem::take(&mut self.dropped) }
    }

    /// Notes that the other end has got the message that named a segment.
    pub fn arrived(&mut self, inode: u64) {
        if let Some(lent) = self.lent.get_mut(&inode)
            && std::mem::take(&mut lent.is_unclaimed)
        {
            self.passing.claimed();
        }
    }

    /// Takes a segment back, for further use unless it is retired. One that the other end does not have is none of its
    /// business.
    pub fn take_back(&mut self, inode: u64, is_retired: bool) {
        self.arrived(inode);
        let Some(Lent { segment, .. }) = self.lent.remove(&inode) else { return };
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
        while !self.take(len as u64) {
            if self.free.is_empty() {
                return None;
            }
            self.drop_oldest();
        }
        match Segment::new(len) {
            Ok((segment, descriptor)) => {
                if self.passing.send(descriptor) {
                    return Some(segment);
                }
            }
            Err(error) => tracing::debug!("cannot make a segment of {len} bytes of shared memory: {error}"),
        }
        self.give_back(len as u64);
        None
    }

    /// Takes a segment of so many bytes, if there may be one more.
    fn take(&mut self, bytes: u64) -> bool {
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
        drop(segment);
        self.give_back(bytes);
    }

    fn drop_oldest(&mut self) {
        let (segment, _) = self.free.remove(0);
        self.dropped.push(segment.inode);
        self.let_go(segment);
    }
}

/// What the other end has is its own from then on.
impl Drop for SegmentPool {
    fn drop(&mut self) {
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

    fn try_lend(segments: &mut SegmentPool, len: usize) -> Option<proto::Segment> {
        segments.lend(len).map(|lent| segments.sent(lent))
    }

    fn lend(segments: &mut SegmentPool, len: usize) -> proto::Segment {
        try_lend(segments, len).unwrap_or_else(|| panic!("no segment of {len} bytes"))
    }

    #[test]
    fn a_segment_is_lent_again_only_once_it_is_back() {
        let (mut segments, _) = pool(1 << 30);
        let first = lend(&mut segments, LEN);
        let second = lend(&mut segments, LEN);
        assert_ne!(first.inode, second.inode);
        segments.take_back(first.inode, false);
        assert_eq!(lend(&mut segments, LEN - 5).inode, first.inode);
        let fourth = lend(&mut segments, LEN).inode;
        assert!(fourth != first.inode && fourth != second.inode, "the other end has both");
    }

    #[test]
    fn a_retired_segment_is_never_used_again() {
        let (mut segments, budget) = pool(1 << 30);
        let first = lend(&mut segments, LEN);
        segments.take_back(first.inode, true);
        assert_eq!((segments.bytes, budget.0.load(Relaxed)), (0, 0));
        assert_ne!(lend(&mut segments, LEN).inode, first.inode);
    }

    #[test]
    fn the_other_end_frees_nothing_that_it_does_not_have() {
        let (mut segments, _) = pool(1 << 30);
        let first = lend(&mut segments, LEN);
        segments.take_back(first.inode + 1, false);
        segments.take_back(first.inode, false);
        segments.take_back(first.inode, false);
        segments.take_back(first.inode, true);
        assert_eq!((segments.free.len(), segments.bytes), (1, LEN as u64));
    }

    #[test]
    fn beyond_the_limits_there_is_none() {
        let budget = Arc::new(Limited(AtomicU64::new(0), 1 << 30));
        let mut segments = SegmentPool::new(Arc::default(), budget.clone(), 2 << 20, MOST);
        let lent: Vec<_> = std::iter::from_fn(|| try_lend(&mut segments, LEN)).collect();
        assert_eq!((lent.len(), budget.0.load(Relaxed)), (2, 2 << 20));
        assert!(segments.lend(usize::MAX).is_none() && segments.lend(LEAST_BYTES - 1).is_none());
        // A free one that is too small makes room.
        segments.take_back(lent[0].inode, false);
        segments.take_back(lent[1].inode, false);
        assert!(segments.lend(3 << 20).is_none());
        assert_eq!(segments.free.len(), 2, "they were dropped in vain");
        let large = lend(&mut segments, 2 << 20);
        assert_eq!(large.dropped, lent.iter().map(|segment| segment.inode).collect::<Vec<_>>());
        drop(segments);
        assert_eq!(budget.0.load(Relaxed), 0);
    }

    #[test]
    fn segments_that_no_batch_has_used_for_long_are_dropped() {
        let (mut segments, _) = pool(1 << 30);
        let (large, small) = (lend(&mut segments, 8 * LEN), lend(&mut segments, LEN));
        segments.take_back(large.inode, false);
        segments.take_back(small.inode, false);
        let mut dropped = Vec::new();
        for _ in 0..=PATIENCE {
            let again = lend(&mut segments, LEN);
            assert_eq!(again.inode, small.inode);
            segments.take_back(again.inode, false);
            dropped.extend(again.dropped);
        }
        assert_eq!(dropped, [large.inode]);
        assert_eq!(segments.bytes, LEN as u64);
    }

    #[test]
    fn no_more_are_made_than_the_other_end_takes_at_once() {
        let passing = Arc::new(Passing::default());
        let (_, budget) = pool(1 << 40);
        let mut of_streams = [(); 5].map(|()| SegmentPool::new(passing.clone(), budget.clone(), u64::MAX, MOST));
        let mut lent = Vec::new();
        for pool in &mut of_streams {
            lent.push(std::iter::from_fn(|| try_lend(pool, LEAST_BYTES)).collect::<Vec<_>>());
        }
        assert_eq!(lent.iter().map(Vec::len).collect::<Vec<_>>(), [20, 20, 20, 4, 0], "64 in all");
        assert_eq!(budget.0.load(Relaxed), 64 * LEAST_BYTES as u64);
        // Those that have arrived, or have even come back, make room for others.
        of_streams[0].arrived(lent[0][0].inode);
        of_streams[0].arrived(lent[0][0].inode);
        of_streams[0].take_back(lent[0][0].inode, false);
        of_streams[1].take_back(lent[1][0].inode, true);
        assert_eq!(std::iter::from_fn(|| try_lend(&mut of_streams[4], LEAST_BYTES)).count(), 2);
    }

    #[test]
    fn what_others_use_leaves_less() {
        let (mut segments, budget) = pool(2 << 20);
        assert!(budget.take(1 << 20));
        assert_eq!(std::iter::from_fn(|| try_lend(&mut segments, LEN)).count(), 1);
        budget.give_back(1 << 20);
        assert_eq!(std::iter::from_fn(|| try_lend(&mut segments, LEN)).count(), 1);
    }

    #[test]
    fn there_are_no_more_than_so_many() {
        let (mut segments, _) = pool(1 << 40);
        let lent: Vec<_> = std::iter::from_fn(|| try_lend(&mut segments, LEN)).collect();
        assert_eq!(lent.len(), MOST);
        segments.take_back(lent[0].inode, false);
        let large = lend(&mut segments, 4 * LEN);
        assert_eq!(large.dropped, [lent[0].inode]);
        assert!(segments.lend(LEN).is_none());
    }
}
