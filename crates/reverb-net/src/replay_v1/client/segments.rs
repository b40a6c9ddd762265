//! The segments of shared memory in which a sample stream finds its batches.
//!
//! A batch in a segment belongs to the program until its last array is gone. The segment then goes back to the server, unless
//! a child that was forked meanwhile may still see it.

use crate::replay_v1::proto::{self as replay, FreedSegment, SampleRequest, sample_request};
use crate::transport::passing::Passing;
use crate::transport::segment::{InSegment, Pages, Received};
use parking_lot::Mutex;
use reverb_core::{Buffer, Error, Result, fork};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedSender, WeakUnboundedSender};

/// See the documentation of this module.
#[derive(Debug)]
pub struct Segments {
    passing: Arc<Passing>,
    /// Those that the server may use, by the numbers of their inodes.
    free: Mutex<HashMap<u64, Received>>,
    requests: WeakUnboundedSender<SampleRequest>,
    pages: Option<Pages>,
}

impl Segments {
    /// Makes the segments of a stream with these requests.
    pub fn new(passing: Arc<Passing>, requests: &UnboundedSender<SampleRequest>) -> Arc<Self> {
        Arc::new(Self { passing, free: Mutex::default(), requests: requests.downgrade(), pages: Pages::open() })
    }

    /// Returns the bytes of a batch that lies in a segment.
    ///
    /// # Errors
    /// [`Error::DataLoss`] if there is no such segment, or if it is too small. [`Error::ResourceExhausted`] if it cannot be
    /// mapped.
    pub fn open(self: &Arc<Self>, segment: &replay::Segment, len: usize) -> Result<Buffer> {
        let inode = segment.inode;
        self.find(segment, len).map(|received| self.lend(inode, received, len)).inspect_err(|_| self.tell(inode, true))
    }

    /// Returns a segment that the server names.
    fn find(&self, segment: &replay::Segment, len: usize) -> Result<Received> {
        let inode = segment.inode;
        let mut free = self.free.lock();
        segment.dropped.iter().for_each(|inode| drop(free.remove(inode)));
        let known = free.remove(&inode);
        drop(free);
        let received = match known {
            Some(received) => received,
            None => {
                let file = self.passing.take(inode).ok_or_else(|| {
                    Error::DataLoss(format!("the server names a segment {inode} of shared memory that has not come"))
                })?;
                Received::new(&file, usize::try_from(segment.size).unwrap_or(usize::MAX))?
            }
        };
        if received.len() < len {
            let has = received.len();
            return Err(Error::DataLoss(format!("expected a segment of at least {len} bytes, got one of {has} bytes")));
        }
        Ok(received)
    }

    /// Makes a buffer of a segment, which goes back when that is dropped.
    fn lend(self: &Arc<Self>, inode: u64, received: Received, len: usize) -> Buffer {
        let (segments, process, forks) = (self.clone(), fork::generation(), fork::count());
        let give_back = move |received| segments.give_back(inode, received, process, forks);
        Buffer::lent(Box::new(InSegment::new(received, give_back)), len)
    }

    /// Gives a segment back that came when this process had made so many forks.
    fn give_back(&self, inode: u64, received: Received, process: u32, forks: u32) {
        if process != fork::generation() {
            return;
        }
        let is_retired = forks != fork::count();
        // Before the server hears of it.
        if is_retired {
            drop(received);
        } else {
            received.forget_own_writes(self.pages.as_ref());
            self.free.lock().insert(inode, received);
        }
        self.tell(inode, is_retired);
    }

    /// Tells the server that a segment is not used any more.
    fn tell(&self, inode: u64, is_retired: bool) {
        let kind = Some(sample_request::Kind::Freed(FreedSegment { inode, is_retired }));
        if let Some(requests) = self.requests.upgrade() {
            let _gone = requests.send(SampleRequest { request_id: 0, kind });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::segment::Segment;
    use std::io::IoSlice;
    use std::mem::MaybeUninit;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    const LEN: usize = 1 << 16;

    /// The end of a client to which segments have come, these, and what it tells the server.
    fn client(count: usize) -> (Arc<Segments>, Vec<Segment>, UnboundedReceiver<SampleRequest>, impl Drop) {
        let (here, there) = UnixStream::pair().unwrap();
        let (sender, receiver) = (Passing::default(), Arc::new(Passing::default()));
        let made = (0..count).map(|_| Segment::new(LEN).unwrap());
        let segments = made.map(|(segment, file)| {
            sender.send(file);
            segment
        });
        let segments = segments.collect();
        if count > 0 {
            sender.write(here.as_fd(), &[IoSlice::new(b"a")]).unwrap();
            receiver.read(&there, &mut [MaybeUninit::uninit(); 8]).unwrap();
        }
        let (requests, told) = unbounded_channel();
        (Segments::new(receiver, &requests), segments, told, KeepOpen(requests))
    }

    struct KeepOpen(#[expect(dead_code, reason = "keeps the channel open")] UnboundedSender<SampleRequest>);

    impl Drop for KeepOpen {
        fn drop(&mut self) {}
    }

    fn named(segment: &Segment) -> replay::Segment {
        replay::Segment { inode: segment.inode, is_new: true, size: LEN as u64, dropped: Vec::new() }
    }

    fn freed(told: &mut UnboundedReceiver<SampleRequest>) -> Option<FreedSegment> {
        match told.try_recv().ok()?.kind {
            Some(sample_request::Kind::Freed(freed)) => Some(freed),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_segment_goes_back_after_its_batch_and_comes_again() {
        let (client, segments, mut told, _open) = client(1);
        let batch = client.open(&named(&segments[0]), LEN - 1).unwrap();
        let address = batch.as_ptr();
        assert_eq!(freed(&mut told), None);
        drop(batch);
        assert_eq!(freed(&mut told), Some(FreedSegment { inode: segments[0].inode, is_retired: false }));
        let again = client.open(&named(&segments[0]), 5).unwrap();
        assert_eq!(again.as_ptr(), address, "it is mapped once");
    }

    #[test]
    fn a_segment_that_was_mapped_during_a_fork_is_retired() {
        let (client, segments, mut told, _open) = client(1);
        let batch = client.open(&named(&segments[0]), LEN).unwrap();
        // SAFETY: the child does nothing but end.
        match unsafe { libc::fork() } {
            // SAFETY: as above.
            0 => unsafe { libc::_exit(0) },
            child => {
                // SAFETY: the status is not asked for.
                let ended = unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
                assert_eq!(ended, child);
            }
        }
        drop(batch);
        assert_eq!(freed(&mut told), Some(FreedSegment { inode: segments[0].inode, is_retired: true }));
        assert!(client.free.lock().is_empty());
    }

    #[test]
    fn what_a_server_names_wrongly_is_refused_and_given_back() {
        let (client, segments, mut told, _open) = client(2);
        let absent = replay::Segment { inode: segments[0].inode + segments[1].inode, ..named(&segments[0]) };
        let too_small = replay::Segment { size: 100, ..named(&segments[0]) };
        let lies = replay::Segment { size: u64::MAX, ..named(&segments[1]) };
        for (wrong, len) in [(absent, LEN), (too_small, LEN), (lies, LEN)] {
            let refused = client.open(&wrong, len).unwrap_err();
            assert!(matches!(refused, Error::DataLoss(_)), "{refused}");
            assert_eq!(freed(&mut told), Some(FreedSegment { inode: wrong.inode, is_retired: true }));
        }
    }

    #[test]
    fn dropped_segments_are_let_go() {
        let (client, segments, _told, _open) = client(2);
        drop(client.open(&named(&segments[0]), LEN).unwrap());
        assert_eq!(client.free.lock().len(), 1);
        let next = replay::Segment { dropped: vec![segments[0].inode, 5], ..named(&segments[1]) };
        let _batch = client.open(&next, LEN).unwrap();
        assert!(client.free.lock().is_empty());
    }
}
