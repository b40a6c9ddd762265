//! The segments of shared memory of a sample stream, in which a client of the same host finds its batches.
//!
//! A segment is with the client from the batch that lies in it until the client has said that it is free; the receipt of the
//! batch says nothing about it. Neither side ever waits for one: without a free segment, and without room for another, the
//! data of a batch travels over the socket.

use crate::replay_v1::proto::{self as replay, FreedSegment};
use crate::transport::passing::Passing;
use crate::transport::segment::Segment;
use parking_lot::Mutex;
use reverb_core::gather::Gatherer;
use reverb_service::{Peer, Replay};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Maximum number of bytes of a batch that are gathered before other tasks run, and in one message.
pub const PIECE_BYTES: usize = 512 << 10;
/// Smallest batch in bytes that is worth a segment.
const LEAST_BYTES: usize = 64 << 10;
/// Number of batches after which a free segment is dropped that none of them has used.
const PATIENCE: u64 = 64;
/// A segment is at most so many times as large as its batch.
const MAX_SPARE: usize = 2;

/// See the documentation of this module.
#[derive(Debug)]
pub struct Segments {
    passing: Arc<Passing>,
    replay: Arc<Replay>,
    /// The program that finds its batches there.
    peer: Arc<Peer>,
    /// Maximum number of bytes of all segments, and the number of them.
    limit: u64,
    bytes: u64,
    /// Those that the client has given back, and the batch that each was last used for. The last comes first.
    free: Vec<(Segment, u64)>,
    /// Those that the client has.
    lent: HashMap<u64, Segment>,
    batches: u64,
    /// Those that the client does not know yet to have been dropped.
    dropped: Vec<u64>,
}

impl Segments {
    /// Makes the segments of a stream whose client takes `asked` bytes at most, or fewer if the server has not so many for
    /// one client. `None` if it has none.
    pub fn new(passing: Arc<Passing>, replay: Arc<Replay>, peer: Arc<Peer>, asked: u64) -> Option<Self> {
        let limit = asked.min(replay.shared.limit_of_one());
        let (free, lent, dropped) = (Vec::new(), HashMap::new(), Vec::new());
        (limit > 0).then(|| Self { passing, replay, peer, limit, bytes: 0, free, lent, batches: 0, dropped })
    }

    /// Gathers a batch of so many bytes into a segment, if there is one. Returns what the client is told of it.
    pub async fn gather(&mut self, gatherer: &Mutex<Gatherer>, len: usize) -> Option<replay::Segment> {
        let segment = self.lend(len)?;
        let mut rest = &mut self.lent.get_mut(&segment.inode)?.bytes()[..len];
        while !rest.is_empty() {
            let (piece, later) = rest.split_at_mut(rest.len().min(PIECE_BYTES));
            gatherer.lock().fill(piece);
            rest = later;
            tokio::task::yield_now().await;
        }
        Some(segment)
    }

    /// Lends a segment for a batch of so many bytes, if there is one. Returns what the client is told of it.
    fn lend(&mut self, len: usize) -> Option<replay::Segment> {
        if len < LEAST_BYTES {
            return None;
        }
        self.batches += 1;
        self.drop_unused();
        let fits = |(segment, _): &(Segment, u64)| (len..=len.saturating_mul(MAX_SPARE)).contains(&segment.len());
        let segment = match self.free.iter().rposition(fits) {
            Some(at) => self.free.remove(at).0,
            None => self.make(len)?,
        };
        let inode = segment.inode;
        self.peer.traffic.transmit_bytes.fetch_add(len as u64, Relaxed);
        self.lent.insert(inode, segment);
        Some(replay::Segment { inode, dropped: std::mem::take(&mut self.dropped) })
    }

    /// Takes a segment back that the client has used. One that it does not have is none of its business.
    pub fn take_back(&mut self, freed: &FreedSegment) {
        let Some(segment) = self.lent.remove(&freed.inode) else { return };
        if freed.is_retired {
            self.let_go(segment);
        } else {
            self.free.push((segment, self.batches));
        }
    }

    /// Makes a segment, if there is room for it.
    fn make(&mut self, len: usize) -> Option<Segment> {
        // Batches whose sizes differ a little use the same segments.
        let step = (len / 8).next_power_of_two();
        let len = len.checked_next_multiple_of(step)?;
        let free: u64 = self.free.iter().map(|(segment, _)| segment.len() as u64).sum();
        if (self.bytes - free).saturating_add(len as u64) > self.limit {
            // Without free ones there would still be too little room.
            return None;
        }
        while !self.take(len as u64) {
            if self.free.is_empty() {
                return None;
            }
            self.drop_free(0);
        }
        match Segment::new(len) {
            Ok((segment, descriptor)) => {
                self.passing.send(descriptor);
                Some(segment)
            }
            Err(error) => {
                tracing::debug!("cannot make a segment of {len} bytes of shared memory: {error}");
                self.give_back(len as u64);
                None
            }
        }
    }

    /// Takes bytes, if this stream and all together may use so many.
    fn take(&mut self, bytes: u64) -> bool {
        let is_taken = self.bytes.saturating_add(bytes) <= self.limit && self.replay.shared.take(bytes);
        if is_taken {
            self.bytes += bytes;
            self.peer.traffic.shared_bytes.fetch_add(bytes, Relaxed);
        }
        is_taken
    }

    fn give_back(&mut self, bytes: u64) {
        self.bytes -= bytes;
        self.peer.traffic.shared_bytes.fetch_sub(bytes, Relaxed);
        self.replay.shared.give_back(bytes);
    }

    fn let_go(&mut self, segment: Segment) {
        let bytes = segment.len() as u64;
        drop(segment);
        self.give_back(bytes);
    }

    fn drop_unused(&mut self) {
        while self.free.first().is_some_and(|(_, used)| used + PATIENCE < self.batches) {
            self.drop_free(0);
        }
    }

    fn drop_free(&mut self, at: usize) {
        let (segment, _) = self.free.remove(at);
        self.dropped.push(segment.inode);
        self.let_go(segment);
    }
}

/// What the client has mapped is its own from then on.
impl Drop for Segments {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reverb_service::Transport;

    const LEN: usize = 1 << 20;

    fn segments(limit: u64) -> Segments {
        let replay = Replay::new(Vec::new(), 1 << 20).unwrap();
        replay.shared.set_limit(limit);
        let peer = Arc::new(Peer::new(Transport::Unix, String::new()));
        Segments::new(Arc::default(), replay, peer, u64::MAX).unwrap()
    }

    fn lend(segments: &mut Segments, len: usize) -> replay::Segment {
        segments.lend(len).unwrap_or_else(|| panic!("no segment of {len} bytes"))
    }

    fn freed(segment: &replay::Segment, is_retired: bool) -> FreedSegment {
        FreedSegment { inode: segment.inode, is_retired }
    }

    #[test]
    fn a_segment_is_lent_again_only_once_it_is_back() {
        let mut segments = segments(1 << 30);
        let first = lend(&mut segments, LEN);
        let second = lend(&mut segments, LEN);
        assert_ne!(first.inode, second.inode);
        segments.take_back(&freed(&first, false));
        assert_eq!(lend(&mut segments, LEN - 5).inode, first.inode);
        let fourth = lend(&mut segments, LEN).inode;
        assert!(fourth != first.inode && fourth != second.inode, "the client has both");
    }

    #[test]
    fn a_retired_segment_is_never_used_again() {
        let mut segments = segments(1 << 30);
        let first = lend(&mut segments, LEN);
        segments.take_back(&freed(&first, true));
        assert_eq!((segments.bytes, segments.replay.shared.used()), (0, 0));
        assert_ne!(lend(&mut segments, LEN).inode, first.inode);
    }

    #[test]
    fn a_client_frees_nothing_that_it_does_not_have() {
        let mut segments = segments(1 << 30);
        let first = lend(&mut segments, LEN);
        segments.take_back(&FreedSegment { inode: first.inode + 1, is_retired: false });
        segments.take_back(&freed(&first, false));
        segments.take_back(&freed(&first, false));
        segments.take_back(&freed(&first, true));
        assert_eq!((segments.free.len(), segments.bytes), (1, LEN as u64));
    }

    #[test]
    fn beyond_the_limits_there_is_none() {
        let mut segments = segments(4 << 20);
        let peer = segments.peer.clone();
        let lent: Vec<_> = std::iter::from_fn(|| segments.lend(LEN)).collect();
        assert_eq!(lent.len(), 2, "one client may use half");
        let used = || peer.traffic.shared_bytes.load(Relaxed);
        assert_eq!((segments.replay.shared.used(), used()), (2 << 20, 2 << 20));
        assert!(segments.lend(usize::MAX).is_none() && segments.lend(LEAST_BYTES - 1).is_none());
        // A free one that is too small makes room.
        segments.take_back(&freed(&lent[0], false));
        segments.take_back(&freed(&lent[1], false));
        assert!(segments.lend(3 << 20).is_none());
        assert_eq!(segments.free.len(), 2, "they were dropped in vain");
        let large = lend(&mut segments, 2 << 20);
        assert_eq!(large.dropped, lent.iter().map(|segment| segment.inode).collect::<Vec<_>>());
        let replay = segments.replay.clone();
        drop(segments);
        assert_eq!((replay.shared.used(), used()), (0, 0));
    }

    #[test]
    fn segments_that_no_batch_has_used_for_long_are_dropped() {
        let mut segments = segments(1 << 30);
        let (large, small) = (lend(&mut segments, 8 * LEN), lend(&mut segments, LEN));
        segments.take_back(&freed(&large, false));
        segments.take_back(&freed(&small, false));
        let mut dropped = Vec::new();
        for _ in 0..=PATIENCE {
            let again = lend(&mut segments, LEN);
            assert_eq!(again.inode, small.inode);
            segments.take_back(&freed(&again, false));
            dropped.extend(again.dropped);
        }
        assert_eq!(dropped, [large.inode]);
        assert_eq!(segments.bytes, LEN as u64);
    }
}
