//! The segments of shared memory in which a sample stream finds its batches.
//!
//! A batch in a segment belongs to the program until its last array is gone. The segment then goes back to the server, unless
//! a child that was forked meanwhile may still see it.

use crate::replay_v1::proto::{self as replay, FreedSegment, SampleRequest, sample_request};
use crate::transport::passing::Passing;
use crate::transport::segment::{Pages, Received};
use parking_lot::Mutex;
use reverb_core::{Buffer, Error, LentMemory, Result, fork};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedSender, WeakUnboundedSender};

/// See the documentation of this module.
#[derive(Debug)]
pub struct Segments {
    passing: Arc<Passing>,
    /// Maximum number of bytes that are mapped.
    limit: u64,
    state: Mutex<State>,
    requests: WeakUnboundedSender<SampleRequest>,
    pages: Option<Pages>,
}

#[derive(Debug, Default)]
struct State {
    /// Those that the server may use, by the numbers of their inodes.
    free: HashMap<u64, Received>,
    /// Number of bytes of these and of those that the program has.
    bytes: u64,
}

impl State {
    fn let_go(&mut self, received: Received) {
        self.bytes -= received.len() as u64;
    }
}

/// A segment that the program has, and what was so when it came.
struct Lent {
    /// None while it is given back.
    received: Option<Received>,
    inode: u64,
    process: u32,
    forks: u32,
    segments: Arc<Segments>,
}

impl Segments {
    /// Makes the segments of a stream with these requests, which have `limit` bytes at most.
    pub fn new(passing: Arc<Passing>, limit: u64, requests: &UnboundedSender<SampleRequest>) -> Arc<Self> {
        let (state, pages) = (Mutex::default(), Pages::open());
        Arc::new(Self { passing, limit, state, requests: requests.downgrade(), pages })
    }

    /// Returns the bytes of a batch that lies in a segment.
    ///
    /// # Errors
    /// [`Error::DataLoss`] if there is no such segment, or if it has too few or too many bytes. [`Error::ResourceExhausted`]
    /// if it cannot be mapped.
    pub fn open(self: &Arc<Self>, segment: &replay::Segment, len: usize) -> Result<Buffer> {
        let inode = segment.inode;
        let received = self.find(segment, len).inspect_err(|_| self.tell(inode, true))?;
        let (process, forks, segments) = (fork::generation(), fork::count(), self.clone());
        Ok(Buffer::lent(Box::new(Lent { received: Some(received), inode, process, forks, segments }), len))
    }

    /// Returns a segment that the server names, with at least `len` bytes.
    fn find(&self, segment: &replay::Segment, len: usize) -> Result<Received> {
        let inode = segment.inode;
        let mut state = self.state.lock();
        for dropped in &segment.dropped {
            state.free.remove(dropped).into_iter().for_each(|received| state.let_go(received));
        }
        if let Some(known) = state.free.remove(&inode) {
            let has = known.len();
            if has < len {
                state.let_go(known);
                return Err(Error::DataLoss(format!(
                    "expected a segment of at least {len} bytes, got one of {has} bytes"
                )));
            }
            drop(state);
            // Not when it was given back: that may be a thread with the GIL.
            known.forget_own_writes(self.pages.as_ref());
            return Ok(known);
        }
        let room = usize::try_from(self.limit.saturating_sub(state.bytes)).unwrap_or(usize::MAX);
        drop(state);
        let file = self.passing.take(inode).ok_or_else(|| {
            Error::DataLoss(format!("the server names a segment {inode} of shared memory that has not come"))
        })?;
        // Only the task that reads the stream maps segments, so the room cannot have become less.
        let received = Received::new(&file, (len, room))?;
        self.state.lock().bytes += received.len() as u64;
        Ok(received)
    }

    /// Gives a segment back, before the server hears of it.
    fn give_back(&self, received: Received, inode: u64, is_retired: bool) {
        if is_retired {
            self.state.lock().let_go(received);
        } else {
            self.state.lock().free.insert(inode, received);
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

// SAFETY: the bytes are mapped privately for this value alone. Pages of a file have values, and are aligned.
unsafe impl LentMemory for Lent {
    fn bytes(&self) -> (*mut u8, usize) {
        self.received.as_ref().map_or((std::ptr::null_mut(), 0), Received::bytes)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // In a forked child it is the parent's.
        if let Some(received) = self.received.take().filter(|_| self.process == fork::generation()) {
            self.segments.give_back(received, self.inode, self.forks != fork::count());
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
        (Segments::new(receiver, 2 * LEN as u64, &requests), segments, told, KeepOpen(requests))
    }

    struct KeepOpen(#[expect(dead_code, reason = "keeps the channel open")] UnboundedSender<SampleRequest>);

    impl Drop for KeepOpen {
        fn drop(&mut self) {}
    }

    fn named(segment: &Segment) -> replay::Segment {
        replay::Segment { inode: segment.inode, dropped: Vec::new() }
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
        assert!(client.state.lock().free.is_empty() && client.state.lock().bytes == 0);
    }

    #[test]
    fn what_a_server_names_wrongly_is_refused_and_given_back() {
        let (client, segments, mut told, _open) = client(3);
        let absent = replay::Segment { inode: segments[0].inode + segments[1].inode, dropped: Vec::new() };
        for (wrong, len) in [(absent, LEN), (named(&segments[0]), LEN + 1)] {
            let refused = client.open(&wrong, len).unwrap_err();
            assert!(matches!(refused, Error::DataLoss(_)), "{refused}");
            assert_eq!(freed(&mut told), Some(FreedSegment { inode: wrong.inode, is_retired: true }));
        }
        // A known one that is too small now is not mapped any more.
        drop(client.open(&named(&segments[1]), LEN).unwrap());
        freed(&mut told);
        client.open(&named(&segments[1]), LEN + 1).unwrap_err();
        assert_eq!(freed(&mut told), Some(FreedSegment { inode: segments[1].inode, is_retired: true }));
        assert_eq!(client.state.lock().bytes, 0);
        client.open(&named(&segments[2]), LEN).unwrap();
    }

    #[test]
    fn a_server_maps_no_more_here_than_was_asked_for() {
        let (client, segments, mut told, _open) = client(3);
        let kept = [0, 1].map(|number: usize| client.open(&named(&segments[number]), LEN).unwrap());
        let refused = client.open(&named(&segments[2]), 5).unwrap_err();
        assert!(refused.to_string().contains("of 5 to 0 bytes"), "{refused}");
        assert_eq!(freed(&mut told), Some(FreedSegment { inode: segments[2].inode, is_retired: true }));
        drop(kept);
        assert_eq!(client.state.lock().bytes, 2 * LEN as u64, "they stay mapped");
    }

    #[test]
    fn dropped_segments_are_let_go() {
        let (client, segments, _told, _open) = client(2);
        drop(client.open(&named(&segments[0]), LEN).unwrap());
        assert_eq!(client.state.lock().free.len(), 1);
        let next = replay::Segment { dropped: vec![segments[0].inode, 5], ..named(&segments[1]) };
        let _batch = client.open(&next, LEN).unwrap();
        assert!(client.state.lock().free.is_empty());
        assert_eq!(client.state.lock().bytes, LEN as u64);
    }
}
