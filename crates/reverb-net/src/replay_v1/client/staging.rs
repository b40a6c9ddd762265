//! The segments of shared memory in which a server of the same host finds the data of chunks.

use crate::replay_v1::proto;
use crate::replay_v1::segment_pool::{Budget, SegmentPool};
use crate::transport::passing::Passing;
use bytes::Bytes;
use parking_lot::Mutex;
use reverb_service::SharedMemory;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Maximum number of segments of one stream. The server keeps a descriptor of each, and refuses twice as many.
const MAX_SEGMENTS: usize = 64;

/// The segments of one stream.
#[derive(Debug)]
pub struct Staging(Mutex<SegmentPool>);

impl Budget for SharedMemory {
    fn take(&self, bytes: u64) -> bool {
        Self::take(self, bytes)
    }

    fn give_back(&self, bytes: u64) {
        Self::give_back(self, bytes);
    }
}

impl Staging {
    /// Makes the segments of a stream over a connection that passes descriptors. All streams share the memory.
    pub fn new(passing: Arc<Passing>, shared: Arc<SharedMemory>) -> Self {
        Self(Mutex::new(SegmentPool::new(passing, shared, u64::MAX, MAX_SEGMENTS)))
    }

    /// Puts the data of a chunk into a segment, if there is one.
    pub fn stage(&self, chunk: &mut proto::Chunk) {
        let len = chunk.data.len();
        let Some(mut lent) = self.0.lock().lend(len) else { return };
        copy(&chunk.data, lent.bytes());
        let segment = self.0.lock().sent(lent);
        (chunk.segment, chunk.segment_bytes, chunk.data) = (Some(segment), len as u64, Bytes::new());
    }

    /// Takes segments back that the server has read.
    pub fn take_back(&self, inodes: &[u64]) {
        if !inodes.is_empty() {
            let mut pool = self.0.lock();
            inodes.iter().for_each(|&inode| pool.take_back(inode, false));
        }
    }
}

fn copy(data: &[u8], target: &mut [MaybeUninit<u8>]) {
    let target = &mut target[..data.len()];
    // SAFETY: both have as many bytes, and bytes are valid however they are initialised.
    unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), target.as_mut_ptr().cast(), data.len()) };
}
