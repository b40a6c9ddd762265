//! The segments of shared memory of one stream in which data of chunks is written, and from which a server of the same host
//! reads it.
//!
//! A segment is used again once the chunk is gone and the server has read it, in whatever order.

use crate::replay_v1::proto::{self, FreedSegment};
use crate::replay_v1::segment_pool::{Budget, SegmentPool};
use crate::transport::passing::Passing;
use crate::transport::segment::Segment;
use bytes::Bytes;
use parking_lot::Mutex;
use reverb_core::writer::{ChunkMemory, LEAST_SHARED_BYTES};
use reverb_core::{Buffer, LentMemory, fork};
use reverb_service::SharedMemory;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

/// Maximum number of segments of one stream.
const MAX_SEGMENTS: usize = 256;

/// The segments of one stream.
#[derive(Debug)]
pub struct Staging {
    /// Itself, for the buffers that it lends.
    own: Weak<Self>,
    state: Mutex<State>,
    /// The process whose chunks lie here, which a forked child leaves alone.
    process: u32,
}

#[derive(Debug)]
struct State {
    pool: SegmentPool,
    /// The segments of buffers that are in use, by their addresses.
    used: HashMap<usize, u64>,
    /// Those that the server has not read yet.
    unread: HashSet<u64>,
    /// Those of them whose buffers are gone.
    left: HashMap<u64, Segment>,
    /// Those that are not used again: the server does not keep them, or a forked child may still read them.
    retired: HashSet<u64>,
}

impl Budget for SharedMemory {
    fn take(&self, bytes: u64) -> bool {
        Self::take(self, bytes)
    }

    fn give_back(&self, bytes: u64) {
        Self::give_back(self, bytes);
    }
}

impl Staging {
    /// Makes the segments of a stream over a connection that passes descriptors, whose streams have `limit` bytes together.
    pub fn new(passing: Arc<Passing>, limit: u64) -> Arc<Self> {
        let shared = SharedMemory::default();
        shared.set_limit(limit);
        Self::of(SegmentPool::new(passing, Arc::new(shared), u64::MAX, MAX_SEGMENTS))
    }

    /// Makes the segments of another stream over the same connection.
    pub fn beside(&self) -> Arc<Self> {
        Self::of(self.state.lock().pool.beside())
    }

    fn of(pool: SegmentPool) -> Arc<Self> {
        let (used, unread, left, retired) = Default::default();
        let state = Mutex::new(State { pool, used, unread, left, retired });
        Arc::new_cyclic(|own| Self { own: own.clone(), state, process: fork::generation() })
    }

    /// Names the segment in which the data of a chunk lies, if it lies in one, instead of the data.
    pub fn name(&self, chunk: &mut proto::Chunk) {
        if chunk.data.len() < LEAST_SHARED_BYTES {
            return;
        }
        let mut state = self.state.lock();
        let Some(&inode) = state.used.get(&(chunk.data.as_ptr() as usize)) else { return };
        state.unread.insert(inode);
        chunk.segment = Some(state.pool.name(inode));
        chunk.segment_bytes = chunk.data.len() as u64;
        // The last bytes put the segment back, which takes the lock again.
        drop(state);
        chunk.data = Bytes::new();
    }

    /// Takes note of the segments that the server has read.
    pub fn take_back(&self, freed: &[FreedSegment]) {
        if freed.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        for &FreedSegment { inode, is_retired } in freed {
            if !state.unread.remove(&inode) {
                continue;
            }
            state.pool.arrived(inode);
            if let Some(segment) = state.left.remove(&inode) {
                let is_retired = state.retired.remove(&inode) || is_retired;
                state.pool.put_back(segment, is_retired);
            } else if is_retired {
                state.retired.insert(inode);
            }
        }
    }

    fn put_back(&self, rows: &mut Rows) {
        let Some(segment) = rows.segment.take() else { return };
        if self.process != fork::generation() {
            // It is the parent's, whose lock may be held for ever here.
            return std::mem::forget(segment);
        }
        let mut state = self.state.lock();
        state.used.remove(&(rows.address as usize));
        // A child that was forked meanwhile may still read it.
        if rows.forks != fork::count() {
            state.retired.insert(segment.inode);
        }
        if state.unread.contains(&segment.inode) {
            state.left.insert(segment.inode, segment);
        } else {
            let is_retired = state.retired.remove(&segment.inode);
            state.pool.put_back(segment, is_retired);
        }
    }
}

impl ChunkMemory for Staging {
    fn take(&self, bytes: usize) -> Option<Buffer> {
        if self.process != fork::generation() {
            return None;
        }
        let staging = self.own.upgrade()?;
        let mut state = self.state.lock();
        let mut segment = state.pool.take(bytes)?;
        let (address, len) = (segment.bytes().as_mut_ptr().cast(), segment.len());
        state.used.insert(address as usize, segment.inode);
        drop(state);
        let rows = Rows { segment: Some(segment), address, len, forks: fork::count(), staging };
        Some(Buffer::lent(Box::new(rows), bytes))
    }
}

/// The memory of a chunk.
struct Rows {
    /// None while it is put back.
    segment: Option<Segment>,
    address: *mut u8,
    len: usize,
    forks: u32,
    staging: Arc<Staging>,
}

// SAFETY: the segment is mapped for this value alone in this process, and its pages are zeroed or were written. The server
// only reads it.
unsafe impl LentMemory for Rows {
    fn bytes(&self) -> (*mut u8, usize) {
        (self.address, self.len)
    }
}

// SAFETY: the address is that of memory which this value alone uses.
unsafe impl Send for Rows {}
// SAFETY: a shared reference gives nothing but the address.
unsafe impl Sync for Rows {}

impl Drop for Rows {
    fn drop(&mut self) {
        self.staging.clone().put_back(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 1 << 17;

    fn staging(limit: u64) -> Arc<Staging> {
        Staging::new(Arc::default(), limit)
    }

    fn chunk(staging: &Staging, value: u8) -> (Bytes, Option<proto::Chunk>) {
        let Some(mut buffer) = staging.take(LEN) else { return (Bytes::new(), None) };
        buffer.as_uninit_mut().fill(std::mem::MaybeUninit::new(value));
        // SAFETY: all bytes were written.
        let data = unsafe { buffer.into_bytes() };
        let mut message = proto::Chunk { data: data.clone(), ..proto::Chunk::default() };
        staging.name(&mut message);
        (data, Some(message))
    }

    fn named(staging: &Staging, value: u8) -> (Bytes, u64) {
        let (data, message) = chunk(staging, value);
        let message = message.unwrap();
        assert_eq!((message.data.len(), message.segment_bytes), (0, LEN as u64));
        (data, message.segment.unwrap().inode)
    }

    fn freed(inode: u64) -> [FreedSegment; 1] {
        [FreedSegment { inode, is_retired: false }]
    }

    #[test]
    fn a_segment_is_used_again_once_it_was_read_and_its_chunk_is_gone() {
        let staging = staging(1 << 30);
        for is_read_first in [true, false] {
            let (data, inode) = named(&staging, 1);
            let mut data = Some(data);
            for step in [is_read_first, !is_read_first] {
                let (other, of_other) = named(&staging, 2);
                assert_ne!(of_other, inode, "it is in use");
                staging.take_back(&freed(of_other));
                drop(other);
                if step {
                    staging.take_back(&freed(inode));
                    assert!(data.iter().all(|data| data.iter().all(|&byte| byte == 1)));
                } else {
                    data = None;
                }
            }
            let again = named(&staging, 3);
            assert_eq!(again.1, inode, "the last that came back");
            staging.take_back(&freed(inode));
        }
    }

    #[test]
    fn data_elsewhere_is_sent_as_it_is() {
        let staging = staging(1 << 30);
        let data = Bytes::from(vec![1; LEN]);
        let mut message = proto::Chunk { data: data.clone(), ..proto::Chunk::default() };
        staging.name(&mut message);
        assert_eq!((message.data, message.segment), (data, None));
        // So is that of another stream.
        let (data, _) = named(&self::staging(1 << 30), 1);
        let mut message = proto::Chunk { data: data.clone(), ..proto::Chunk::default() };
        staging.name(&mut message);
        assert_eq!((message.data, message.segment), (data, None));
    }

    #[test]
    fn the_server_frees_nothing_that_it_was_not_sent_and_retires_what_it_does_not_keep() {
        let staging = staging(1 << 30);
        let (data, inode) = named(&staging, 1);
        staging.take_back(&freed(inode + 1));
        staging.take_back(&[FreedSegment { inode, is_retired: true }]);
        staging.take_back(&freed(inode));
        drop(data);
        let (data, second) = named(&staging, 2);
        assert_ne!(second, inode);
        drop(data);
        staging.take_back(&[FreedSegment { inode: second, is_retired: true }]);
        assert_ne!(named(&staging, 3).1, second);
    }

    #[test]
    fn segments_whose_chunks_were_there_during_a_fork_are_retired() {
        let staging = staging(1 << 30);
        let chunks = [named(&staging, 1), named(&staging, 2)];
        // SAFETY: the child ends at once, with a call that is safe there.
        match unsafe { libc::fork() } {
            -1 => panic!("no child"),
            // SAFETY: it runs nothing of the parent.
            0 => unsafe { libc::_exit(0) },
            // SAFETY: the status is not wanted.
            child => assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child),
        }
        let inodes = chunks.each_ref().map(|(_, inode)| *inode);
        // One is read first, the other is gone first.
        staging.take_back(&freed(inodes[0]));
        drop(chunks);
        staging.take_back(&freed(inodes[1]));
        let next = [named(&staging, 3).1, named(&staging, 4).1];
        assert!(next.iter().all(|inode| !inodes.contains(inode)), "{next:?} after {inodes:?}");
    }

    #[test]
    fn beyond_the_limit_there_is_no_memory_until_chunks_are_gone() {
        let staging = staging(2 * LEN as u64);
        let (first, inode) = named(&staging, 1);
        let second = named(&staging, 2);
        assert!(chunk(&staging, 3).1.is_none());
        staging.take_back(&freed(inode));
        assert!(chunk(&staging, 3).1.is_none(), "the chunk is still there");
        drop(first);
        let third = named(&staging, 3);
        assert_eq!(third.1, inode);
        assert!(chunk(&staging.beside(), 4).1.is_none(), "all streams have one limit");
        assert!(second.0.iter().all(|&byte| byte == 2));
    }
}
