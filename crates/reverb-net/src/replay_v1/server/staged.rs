//! Data of chunks that clients of the same host have put into shared memory.
//!
//! It is read once, into memory of the server's own, and looked at only there: what the client changes later, or meanwhile,
//! changes no more than that data. Seals keep the file as large as it was, so reading never goes beyond its end.

use super::segments::{OfClient, PIECE_BYTES};
use crate::replay_v1::proto::{self as replay, FreedSegment};
use crate::replay_v1::segment_pool::Budget;
use crate::transport::passing::Passing;
use crate::transport::segment::Seen;
use bytes::Bytes;
use reverb_core::memory::chunk_buffer;
use reverb_core::{Buffer, Error, Result};
use reverb_service::insert::check_size;
use reverb_service::{Peer, Replay};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The segments of a stream that a client writes to.
#[derive(Debug)]
pub struct Staged {
    /// How they come. `None` if the connection passes no descriptors.
    passing: Option<Arc<Passing>>,
    client: OfClient,
    /// Those that stay mapped, which the memory that the server shares with the client counts.
    kept: HashMap<u64, Seen>,
}

impl Staged {
    /// Makes the segments of a stream, whose descriptors come with its connection.
    pub fn new(passing: Option<Arc<Passing>>, replay: &Arc<Replay>, peer: &Arc<Peer>) -> Self {
        Self { passing, client: OfClient { replay: replay.clone(), peer: peer.clone() }, kept: HashMap::new() }
    }

    /// Reads the data of those chunks that have it in segments, into the chunks. Returns these segments, and which of them the
    /// client cannot use again, also after an error.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a segment has not come, or is not what the chunk says. [`Error::MessageTooLarge`] if the
    /// data exceeds the size of a message in all. [`Error::ResourceExhausted`] if there is no memory.
    pub async fn fetch(&mut self, chunks: &mut [replay::Chunk]) -> (Vec<FreedSegment>, Result<()>) {
        let mut freed = Vec::new();
        let size = chunks.iter().map(|chunk| chunk.segment_bytes).fold(0, u64::saturating_add);
        let mut result = check_size(size, self.client.replay.max_message_size());
        let mut pace = Pace::default();
        for chunk in chunks {
            let Some(segment) = chunk.segment.take() else { continue };
            self.drop_all(&segment.dropped);
            let mut is_kept = false;
            if result.is_ok() {
                let read = self.read(segment.inode, chunk.segment_bytes, &mut pace).await;
                result = read.map_err(|error| error.with_remark(&format!("; chunk {}", chunk.key))).map(|read| {
                    self.client.peer.traffic.receive_bytes.fetch_add(chunk.segment_bytes, Relaxed);
                    (chunk.data, is_kept) = read;
                });
            }
            if !is_kept {
                self.drop_all(&[segment.inode]);
            }
            freed.push(FreedSegment { inode: segment.inode, is_retired: !is_kept });
        }
        (freed, result)
    }

    /// Forgets segments, whether they were read or not.
    fn drop_all(&mut self, inodes: &[u64]) {
        for inode in inodes {
            self.kept.remove(inode).into_iter().for_each(|seen| self.client.give_back(seen.len() as u64));
            self.passing.iter().for_each(|passing| drop(passing.take(*inode)));
        }
    }

    /// Reads the first bytes of a segment. Returns them, and whether the segment stays mapped.
    async fn read(&mut self, inode: u64, len: u64, pace: &mut Pace) -> Result<(Bytes, bool)> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if let Some(seen) = self.kept.get(&inode) {
            if seen.len() < len {
                return Err(Error::invalid(format!(
                    "expected a segment of at least {len} bytes, got one of {} bytes",
                    seen.len()
                )));
            }
            return Ok((copy(seen, len, pace).await?, true));
        }
        let seen = self.open(inode, len)?;
        let data = copy(&seen, len, pace).await?;
        let is_kept = self.client.take(seen.len() as u64);
        if is_kept {
            self.kept.insert(inode, seen);
        }
        Ok((data, is_kept))
    }

    /// Maps a segment that has come, with at least so many bytes; and with those that later data may have.
    fn open(&self, inode: u64, least: usize) -> Result<Seen> {
        let file = self.passing.as_ref().and_then(|passing| passing.take(inode));
        let file = file.ok_or_else(|| Error::invalid(format!("segment {inode} of shared memory has not come")))?;
        let len = Seen::check(&file, least)?;
        let most = usize::try_from(self.client.replay.max_message_size()).unwrap_or(usize::MAX);
        Seen::new(&file, len.min(most.max(least)))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        self.kept.values().for_each(|seen| self.client.give_back(seen.len() as u64));
    }
}

/// Lets other tasks run while data is copied. It counts the bytes that were copied since they last did.
#[derive(Debug, Default)]
struct Pace(usize);

impl Pace {
    async fn after(&mut self, bytes: usize) {
        self.0 += bytes;
        if self.0 >= PIECE_BYTES {
            self.0 = 0;
            tokio::task::yield_now().await;
        }
    }
}

/// Copies the first bytes of a segment, and lets other tasks run in between.
async fn copy(seen: &Seen, len: usize, pace: &mut Pace) -> Result<Bytes> {
    let buffer = chunk_buffer(len).or_else(|| Buffer::try_new(len));
    let mut data = buffer
        .ok_or_else(|| Error::ResourceExhausted(format!("cannot allocate {len} bytes for data in shared memory")))?;
    for start in (0..len).step_by(PIECE_BYTES) {
        let end = len.min(start + PIECE_BYTES);
        seen.copy(start, &mut data.as_uninit_mut()[start..end]);
        pace.after(end - start).await;
    }
    // SAFETY: all bytes were written.
    Ok(unsafe { data.into_bytes() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay_v1::proto::Segment;
    use crate::transport::segment::Segment as Made;
    use reverb_service::Transport;
    use std::io::IoSlice;
    use std::mem::MaybeUninit;
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::net::UnixStream;

    const LEN: usize = 1 << 16;

    /// The segments of a stream to which these descriptors have come, of a server that shares so many bytes with one client.
    fn staged(descriptors: Vec<OwnedFd>, shared: u64) -> Staged {
        let (here, there) = UnixStream::pair().unwrap();
        let (sender, receiver) = (Passing::default(), Arc::new(Passing::default()));
        for descriptor in descriptors {
            sender.send(descriptor);
            sender.write(here.as_fd(), &[IoSlice::new(b"a")]).unwrap();
            receiver.read(&there, &mut [MaybeUninit::uninit(); 8]).unwrap();
        }
        let replay = Replay::new(Vec::new(), 1 << 20).unwrap();
        replay.shared.set_limit(2 * shared);
        Staged::new(Some(receiver), &replay, &Arc::new(Peer::new(Transport::Unix, String::new())))
    }

    fn chunk(inode: u64, segment_bytes: u64) -> replay::Chunk {
        let segment = Some(Segment { inode, dropped: Vec::new() });
        replay::Chunk { segment, segment_bytes, ..replay::Chunk::default() }
    }

    fn made(value: u8) -> (Made, OwnedFd) {
        let (mut segment, file) = Made::new(LEN).unwrap();
        segment.bytes().fill(MaybeUninit::new(value));
        (segment, file)
    }

    async fn refusal(staged: &mut Staged, wrong: replay::Chunk) -> String {
        let inode = wrong.segment.as_ref().unwrap().inode;
        let (freed, refused) = staged.fetch(&mut [wrong]).await;
        assert_eq!(freed, [FreedSegment { inode, is_retired: true }], "the client hears of it nevertheless");
        refused.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn data_is_read_again_and_again_from_one_segment() {
        let (mut segment, file) = made(3);
        let mut staged = staged(vec![file], LEN as u64);
        for value in 3..6 {
            segment.bytes().fill(MaybeUninit::new(value));
            let mut chunks = vec![chunk(segment.inode, 100), replay::Chunk::default()];
            let (freed, read) = staged.fetch(&mut chunks).await;
            read.unwrap();
            assert_eq!(freed, [FreedSegment { inode: segment.inode, is_retired: false }]);
            assert_eq!((&chunks[0].data[..], &chunks[0].segment), (&[value; 100][..], &None));
            assert!(chunks[1].data.is_empty());
        }
        let refused = refusal(&mut staged, chunk(segment.inode, LEN as u64 + 1)).await;
        assert!(refused.contains("of at least 65537 bytes, got one of 65536"), "{refused}");
        let mut gone = chunk(segment.inode, 100);
        gone.segment.as_mut().unwrap().dropped = vec![segment.inode];
        let refused = refusal(&mut staged, gone).await;
        assert!(refused.contains("has not come"), "{refused}");
        assert_eq!(staged.client.replay.shared.used(), 0);
    }

    #[tokio::test]
    async fn segments_beyond_the_limit_are_read_once() {
        let ((one, of_one), (two, of_two)) = (made(1), made(2));
        let mut staged = staged(vec![of_one, of_two], LEN as u64);
        let mut chunks = vec![chunk(one.inode, LEN as u64), chunk(two.inode, LEN as u64)];
        let (freed, read) = staged.fetch(&mut chunks).await;
        read.unwrap();
        assert_eq!(freed.iter().map(|freed| freed.is_retired).collect::<Vec<_>>(), [false, true]);
        assert_eq!((&chunks[0].data[..], &chunks[1].data[..]), (&[1; LEN][..], &[2; LEN][..]));
        let replay = staged.client.replay.clone();
        assert_eq!(replay.shared.used(), LEN as u64);
        drop(staged);
        assert_eq!(replay.shared.used(), 0);
    }

    #[tokio::test]
    async fn what_a_client_says_wrongly_is_refused() {
        let (segment, file) = made(1);
        let (hollow, of_hollow) = Made::new(LEN).unwrap();
        let open = rustix::fs::memfd_create(c"open", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let (pipe, _writer) = std::io::pipe().unwrap();
        let pipe = OwnedFd::from(pipe);
        let inode = |file: &OwnedFd| rustix::fs::fstat(file).unwrap().st_ino;
        let (of_open, of_pipe, again) = (inode(&open), inode(&pipe), file.try_clone().unwrap());
        let mut staged = staged(vec![file, of_hollow, open, pipe], 1 << 20);
        for (wrong, named) in [
            (chunk(segment.inode, LEN as u64 + 1), "at least 65537 bytes"),
            (chunk(hollow.inode, LEN as u64), "0 of them written"),
            (chunk(of_open, 10), "sealed: false"),
            (chunk(of_pipe, 10), "sealed: false"),
            (chunk(1, 10), "has not come"),
            (chunk(segment.inode, (1 << 20) + 1), "bytes"),
            (chunk(segment.inode, u64::MAX), "bytes"),
        ] {
            let refused = refusal(&mut staged, wrong).await;
            assert!(refused.contains(named), "{refused}");
        }
        let mut staged = self::staged(vec![again], 1 << 20);
        let mut right = [chunk(segment.inode, LEN as u64)];
        staged.fetch(&mut right).await.1.unwrap();
        assert_eq!(right[0].data.len(), LEN);
    }
}
