//! The segments of shared memory in which a client of the same host finds the batches of a sample stream.
//!
//! The receipt of a batch says nothing about its segment, which is the client's until that has freed it.

use crate::replay_v1::proto::{FreedSegment, Segment};
use crate::replay_v1::segment_pool::{Budget, SegmentPool};
use crate::transport::passing::Passing;
use crate::transport::segment::Segment as Memory;
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
    /// Those that the client has.
    lent: HashMap<u64, Memory>,
    /// The program that finds its batches there.
    peer: Arc<Peer>,
    /// The segments of batches that the client has not acknowledged, by request id.
    named: HashMap<u64, u64>,
}

/// What the server and one client share, which counts for all together.
#[derive(Debug)]
pub struct OfClient {
    /// The limits of the server.
    pub replay: Arc<Replay>,
    /// The client.
    pub peer: Arc<Peer>,
}

impl Budget for OfClient {
    fn take(&self, bytes: u64) -> bool {
        let (of_client, limit) = (&self.peer.traffic.shared_bytes, self.replay.shared.limit_of_one());
        // Others of this client may take the same room at this moment, which the limit of all bounds.
        let is_room = of_client.load(Relaxed).saturating_add(bytes) <= limit;
        let is_taken = is_room && self.replay.shared.take(bytes);
        of_client.fetch_add(if is_taken { bytes } else { 0 }, Relaxed);
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
        let is_shared = asked > 0 && replay.shared.limit_of_one() > 0;
        let budget = Arc::new(OfClient { replay, peer: peer.clone() });
        is_shared.then(|| Self {
            pool: SegmentPool::new(passing, budget, asked, usize::MAX),
            peer,
            lent: HashMap::new(),
            named: HashMap::new(),
        })
    }

    /// Gathers a batch of so many bytes into a segment, if there is one. Returns what the client is told of it.
    pub async fn gather(&mut self, request_id: u64, gatherer: &Mutex<Gatherer>, len: usize) -> Option<Segment> {
        let mut memory = self.pool.take(len)?;
        self.peer.traffic.transmit_bytes.fetch_add(len as u64, Relaxed);
        let mut rest = &mut memory.bytes()[..len];
        while !rest.is_empty() {
            let (piece, later) = rest.split_at_mut(rest.len().min(PIECE_BYTES));
            gatherer.lock().fill(piece);
            rest = later;
            tokio::task::yield_now().await;
        }
        let told = self.pool.name(memory.inode);
        self.lent.insert(told.inode, memory);
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

    /// Takes a segment back that the client has used. One that it does not have is none of its business.
    pub fn take_back(&mut self, freed: &FreedSegment) {
        let Some(memory) = self.lent.remove(&freed.inode) else { return };
        self.pool.arrived(freed.inode);
        self.pool.put_back(memory, freed.is_retired);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reverb_core::writer::LEAST_SHARED_BYTES as LEAST_BYTES;
    use reverb_service::Transport;

    #[test]
    fn one_client_may_use_half_of_what_all_may_use() {
        let replay = Replay::new(Vec::new(), 1 << 20).unwrap();
        let peer = || Arc::new(Peer::new(Transport::Unix, String::new()));
        let (first, second) = (peer(), peer());
        let segments = |peer: &Arc<Peer>, asked| Segments::new(Arc::default(), replay.clone(), peer.clone(), asked);
        assert!(segments(&first, u64::MAX).is_none(), "the server shares nothing");
        replay.shared.set_limit(4 * LEAST_BYTES as u64);
        assert!(segments(&first, 0).is_none(), "the client takes nothing");
        let count = |segments: &mut Segments| std::iter::from_fn(|| segments.pool.take(LEAST_BYTES)).count();
        let mut one = segments(&first, u64::MAX).unwrap();
        assert_eq!(count(&mut one), 2);
        let mut again = segments(&first, u64::MAX).unwrap();
        assert_eq!(count(&mut again), 0, "all streams of a client count together");
        let mut two = segments(&second, LEAST_BYTES as u64).unwrap();
        assert_eq!(count(&mut two), 1);
        let counts = || (replay.shared.used(), first.traffic.shared_bytes.load(Relaxed));
        assert_eq!(counts(), (3 * LEAST_BYTES as u64, 2 * LEAST_BYTES as u64));
        drop((one, again, two));
        assert_eq!(counts(), (0, 0));
    }

    #[tokio::test]
    async fn a_client_frees_nothing_that_it_does_not_have() {
        let replay = Replay::new(Vec::new(), 1 << 20).unwrap();
        replay.shared.set_limit(1 << 30);
        let peer = Arc::new(Peer::new(Transport::Unix, String::new()));
        let mut segments = Segments::new(Arc::default(), replay, peer, u64::MAX).unwrap();
        let memory = segments.pool.take(LEAST_BYTES).unwrap();
        let inode = segments.pool.name(memory.inode).inode;
        segments.lent.insert(inode, memory);
        for wrong in [inode + 1, inode, inode] {
            segments.take_back(&FreedSegment { inode: wrong, is_retired: false });
        }
        assert_eq!(segments.pool.take(LEAST_BYTES).unwrap().inode, inode);
        assert_ne!(segments.pool.take(LEAST_BYTES).unwrap().inode, inode, "it was free once");
    }
}
