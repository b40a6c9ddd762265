//! The segments of shared memory in which a client of the same host finds the batches of a sample stream.
//!
//! The receipt of a batch says nothing about its segment, which is the client's until that has freed it.

use crate::replay_v1::proto::{FreedSegment, Segment};
use crate::replay_v1::segment_pool::{Budget, SegmentPool};
use crate::transport::passing::Passing;
use parking_lot::Mutex;
use reverb_core::gather::Gatherer;
use reverb_service::{Peer, Replay};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Maximum number of bytes of a batch that are gathered before other tasks run, and in one message.
pub const PIECE_BYTES: usize = 512 << 10;

/// See the documentation of this module.
#[derive(Debug)]
pub struct Segments {
    pool: SegmentPool,
    /// The program that finds its batches there.
    peer: Arc<Peer>,
    /// The segments of batches that the client has not acknowledged, by request id.
    named: HashMap<u64, u64>,
}

/// What one client shares, which counts for all together.
#[derive(Debug)]
struct OfClient {
    replay: Arc<Replay>,
    peer: Arc<Peer>,
}

impl Budget for OfClient {
    fn take(&self, bytes: u64) -> bool {
        let is_taken = self.replay.shared.take(bytes);
        self.peer.traffic.shared_bytes.fetch_add(if is_taken { bytes } else { 0 }, Relaxed);
        is_taken
    }

    fn give_back(&self, bytes: u64) {
        self.peer.traffic.shared_bytes.fetch_sub(bytes, Relaxed);
        self.replay.shared.give_back(bytes);
    }
}

impl Segments {
    /// Makes the segments of a stream whose client takes `asked` bytes at most, or fewer if the server has not so many for
    /// one client. `None` if it has none.
    pub fn new(passing: Arc<Passing>, replay: Arc<Replay>, peer: Arc<Peer>, asked: u64) -> Option<Self> {
        let limit = asked.min(replay.shared.limit_of_one());
        let budget = Arc::new(OfClient { replay, peer: peer.clone() });
        (limit > 0).then(|| Self {
            pool: SegmentPool::new(passing, budget, limit, usize::MAX),
            peer,
            named: HashMap::new(),
        })
    }

    /// Gathers a batch of so many bytes into a segment, if there is one. Returns what the client is told of it.
    pub async fn gather(&mut self, request_id: u64, gatherer: &Mutex<Gatherer>, len: usize) -> Option<Segment> {
        let mut lent = self.pool.lend(len)?;
        self.peer.traffic.transmit_bytes.fetch_add(len as u64, Relaxed);
        let mut rest = &mut lent.bytes()[..len];
        while !rest.is_empty() {
            let (piece, later) = rest.split_at_mut(rest.len().min(PIECE_BYTES));
            gatherer.lock().fill(piece);
            rest = later;
            tokio::task::yield_now().await;
        }
        let told = self.pool.sent(lent);
        self.named.insert(request_id, told.inode);
        Some(told)
    }

    /// Notes that a batch has arrived.
    pub fn received(&mut self, request_id: u64) {
        self.named.remove(&request_id).into_iter().for_each(|inode| self.pool.arrived(inode));
    }

    /// Notes that the client does not want a batch, which may not have arrived.
    pub fn given_up(&mut self, request_id: u64) {
        self.named.remove(&request_id);
    }

    /// Takes a segment back that the client has used.
    pub fn take_back(&mut self, freed: &FreedSegment) {
        self.pool.take_back(freed.inode, freed.is_retired);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay_v1::segment_pool::LEAST_BYTES;
    use reverb_service::Transport;

    #[test]
    fn one_client_may_use_half_of_what_all_may_use() {
        let replay = Replay::new(Vec::new(), 1 << 20).unwrap();
        let peer = Arc::new(Peer::new(Transport::Unix, String::new()));
        let segments = |asked| Segments::new(Arc::default(), replay.clone(), peer.clone(), asked);
        assert!(segments(u64::MAX).is_none(), "the server shares nothing");
        replay.shared.set_limit(4 * LEAST_BYTES as u64);
        let mut one = segments(u64::MAX).unwrap();
        assert_eq!(std::iter::from_fn(|| one.pool.lend(LEAST_BYTES)).count(), 2);
        let mut two = segments(LEAST_BYTES as u64).unwrap();
        assert_eq!(std::iter::from_fn(|| two.pool.lend(LEAST_BYTES)).count(), 1);
        let counts = || (replay.shared.used(), peer.traffic.shared_bytes.load(Relaxed));
        assert_eq!(counts(), (3 * LEAST_BYTES as u64, 3 * LEAST_BYTES as u64));
        drop((one, two));
        assert_eq!(counts(), (0, 0));
    }
}
