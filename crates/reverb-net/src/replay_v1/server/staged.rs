//! Data of chunks that clients of the same host have put into shared memory.
//!
//! It is read once, into memory of the server's own, and looked at only there: what the client changes later, or meanwhile,
//! changes no more than that data. It is read from the file, and never mapped, so a file that lies about its size is an error.

use super::segments::PIECE_BYTES;
use crate::replay_v1::proto::{self as replay, Segment};
use crate::transport::passing::Passing;
use crate::transport::segment::Reading;
use reverb_core::{Error, Result};
use reverb_service::Peer;
use reverb_service::insert::check_size;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

// limit (Shared memory): segments of a client's stream of inserts or of a writer | {} | `ResourceExhaustedError`
/// Maximum number of segments of one stream.
const MAX_FILES: usize = 128;

/// The segments of a stream that a client writes to.
#[derive(Debug, Default)]
pub struct Staged {
    /// How the segments come, and from whom.
    from: Option<(Arc<Passing>, Arc<Peer>)>,
    files: HashMap<u64, OwnedFd>,
}

impl Staged {
    /// Makes the segments of a stream, whose descriptors come with its connection.
    pub fn new(passing: Option<Arc<Passing>>, peer: &Arc<Peer>) -> Self {
        Self { from: passing.map(|passing| (passing, peer.clone())), files: HashMap::new() }
    }

    /// Reads the data of those chunks that have it in segments, into the chunks. Returns the segments that were read.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a segment has not come, or is not what the chunk says. [`Error::MessageTooLarge`] if the
    /// data exceeds `limit` bytes in all. [`Error::ResourceExhausted`] if there is no memory, or if there are too many
    /// segments.
    pub async fn fetch(&mut self, chunks: &mut [replay::Chunk], limit: u64) -> Result<Vec<u64>> {
        let mut inodes = Vec::new();
        check_size(chunks.iter().map(|chunk| chunk.segment_bytes).fold(0, u64::saturating_add), limit)?;
        for chunk in chunks {
            let Some(segment) = chunk.segment.take() else { continue };
            let data = read(self.file(&segment)?, chunk.segment_bytes).await;
            chunk.data = data.map_err(|error| error.with_remark(&format!("; chunk {}", chunk.key)))?.into();
            inodes.push(segment.inode);
            if let Some((_, peer)) = &self.from {
                peer.traffic.receive_bytes.fetch_add(chunk.segment_bytes, Relaxed);
            }
        }
        Ok(inodes)
    }

    fn file(&mut self, segment: &Segment) -> Result<&OwnedFd> {
        segment.dropped.iter().for_each(|inode| drop(self.files.remove(inode)));
        let inode = segment.inode;
        if let Some(file) = self.from.as_ref().and_then(|(passing, _)| passing.take(inode)) {
            if self.files.len() >= MAX_FILES {
                return Err(Error::ResourceExhausted(format!("a stream has more than {MAX_FILES} segments")));
            }
            self.files.insert(inode, file);
        }
        self.files.get(&inode).ok_or_else(|| Error::invalid(format!("segment {inode} of shared memory has not come")))
    }
}

/// Reads the first bytes of a segment, and lets other tasks run in between.
async fn read(file: &OwnedFd, len: u64) -> Result<Vec<u8>> {
    let mut reading = Reading::new(file, usize::try_from(len).unwrap_or(usize::MAX))?;
    while reading.read(PIECE_BYTES)? {
        tokio::task::yield_now().await;
    }
    Ok(reading.done())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::segment::Segment as Made;
    use reverb_service::Transport;
    use std::io::IoSlice;
    use std::mem::MaybeUninit;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    const LEN: usize = 1 << 16;
    const LIMIT: u64 = 1 << 20;

    /// The segments of a stream to which these descriptors have come.
    fn staged(descriptors: Vec<OwnedFd>) -> Staged {
        let (here, there) = UnixStream::pair().unwrap();
        let (sender, receiver) = (Passing::default(), Arc::new(Passing::default()));
        for descriptor in descriptors {
            assert!(sender.send(descriptor));
            sender.write(here.as_fd(), &[IoSlice::new(b"a")]).unwrap();
            receiver.read(&there, &mut [MaybeUninit::uninit(); 8]).unwrap();
        }
        Staged::new(Some(receiver), &Arc::new(Peer::new(Transport::Unix, String::new())))
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

    #[tokio::test]
    async fn data_is_read_again_and_again_from_one_descriptor() {
        let (mut segment, file) = made(3);
        let mut staged = staged(vec![file]);
        for value in 3..6 {
            segment.bytes().fill(MaybeUninit::new(value));
            let mut chunks = vec![chunk(segment.inode, 100), replay::Chunk::default()];
            assert_eq!(staged.fetch(&mut chunks, LIMIT).await.unwrap(), [segment.inode]);
            assert_eq!((&chunks[0].data[..], &chunks[0].segment), (&[value; 100][..], &None));
            assert!(chunks[1].data.is_empty());
        }
        let mut gone = chunk(segment.inode, 100);
        gone.segment.as_mut().unwrap().dropped = vec![segment.inode];
        let refused = staged.fetch(&mut [gone], LIMIT).await.unwrap_err();
        assert!(refused.to_string().contains("has not come"), "{refused}");
    }

    #[tokio::test]
    async fn what_a_client_says_wrongly_is_refused() {
        let (segment, file) = made(1);
        let open = rustix::fs::memfd_create(c"open", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let (pipe, _writer) = std::io::pipe().unwrap();
        let pipe = OwnedFd::from(pipe);
        let inode = |file: &OwnedFd| rustix::fs::fstat(file).unwrap().st_ino;
        let (of_open, of_pipe) = (inode(&open), inode(&pipe));
        let mut staged = staged(vec![file, open, pipe]);
        for (wrong, named) in [
            (chunk(segment.inode, LEN as u64 + 1), "at least 65537 bytes"),
            (chunk(of_open, 10), "sealed"),
            (chunk(of_pipe, 10), "sealed"),
            (chunk(1, 10), "has not come"),
            (chunk(segment.inode, LIMIT + 1), "bytes"),
            (chunk(segment.inode, u64::MAX), "bytes"),
        ] {
            let refused = staged.fetch(&mut [wrong], LIMIT).await.unwrap_err();
            assert!(refused.to_string().contains(named), "{refused}");
        }
        let mut right = [chunk(segment.inode, LEN as u64)];
        staged.fetch(&mut right, LIMIT).await.unwrap();
        assert_eq!(right[0].data.len(), LEN);
    }

    #[tokio::test]
    async fn a_stream_has_no_more_than_so_many_segments() {
        let mut staged = staged(Vec::new());
        for number in 0..=MAX_FILES {
            let (segment, file) = made(1);
            let from = self::staged(vec![file]).from;
            staged.from = from;
            let fetched = staged.fetch(&mut [chunk(segment.inode, 10)], LIMIT).await;
            assert_eq!(matches!(fetched, Err(Error::ResourceExhausted(_))), number == MAX_FILES, "{fetched:?}");
        }
    }
}
