//! File descriptors that travel with the bytes of a Unix socket.
//!
//! One end hands descriptors over with the next bytes that it writes, so they are there when these bytes have arrived. The
//! other finds each by the number of its inode, which a message tells: messages of several streams mix on a connection, and
//! their order says nothing. A connection that never takes descriptors discards those that come.

use parking_lot::Mutex;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::collections::{HashMap, VecDeque};
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[cfg(target_os = "linux")]
const FLAGS: (SendFlags, i32) = (SendFlags::NOSIGNAL, libc::MSG_CMSG_CLOEXEC);
/// Other systems pass no descriptors, and their sockets send no signal.
#[cfg(not(target_os = "linux"))]
const FLAGS: (SendFlags, i32) = (SendFlags::empty(), 0);
/// Maximum number of descriptors that one write takes along.
const AT_ONCE: usize = 16;
// limit (Shared memory): descriptors that have arrived and are not asked for | {} | the connection ends
/// Maximum number of descriptors that have arrived and that nobody has asked for.
const MAX_UNCLAIMED: usize = 64;

/// The descriptors on their way over one connection.
#[derive(Debug, Default)]
pub struct Passing {
    /// Those that go with the next bytes, and their number, which is read without the lock.
    leaving: Mutex<VecDeque<OwnedFd>>,
    num_leaving: AtomicUsize,
    /// Number of those that are handed over, and that the other end may not have asked for yet.
    num_reserved: AtomicUsize,
    /// Those that have arrived, by the number of their inode.
    arrived: Mutex<HashMap<u64, OwnedFd>>,
}

impl Passing {
    /// Takes room for a descriptor at the other end. Returns whether there is some.
    pub fn reserve(&self) -> bool {
        let is_room = self.num_reserved.fetch_add(1, Relaxed) < MAX_UNCLAIMED;
        if !is_room {
            self.release();
        }
        is_room
    }

    /// Gives room back: the other end has asked for the descriptor, or does not get it.
    pub fn release(&self) {
        self.num_reserved.fetch_sub(1, Relaxed);
    }

    /// Hands a descriptor over with the next bytes. There should be room for it at the other end.
    pub fn send(&self, descriptor: OwnedFd) {
        let mut leaving = self.leaving.lock();
        leaving.push_back(descriptor);
        self.num_leaving.store(leaving.len(), Relaxed);
    }

    /// Takes a descriptor that has arrived.
    pub fn take(&self, inode: u64) -> Option<OwnedFd> {
        self.arrived.lock().remove(&inode)
    }

    /// Whether descriptors wait for the next write.
    pub fn is_leaving(&self) -> bool {
        self.num_leaving.load(Relaxed) > 0
    }

    /// Writes bytes, and hands over the descriptors that wait. While more wait than one write takes along, it writes one byte:
    /// the messages that name the others may be among the bytes.
    pub fn write(&self, socket: BorrowedFd<'_>, parts: &[IoSlice<'_>]) -> Result<usize> {
        let mut taken = self.take_leaving();
        let first = parts.iter().find(|part| !part.is_empty()).map(|part| IoSlice::new(&part[..1]));
        let written = send_with(socket, if self.is_leaving() { first.as_slice() } else { parts }, &taken);
        if written.is_err() {
            let mut leaving = self.leaving.lock();
            taken.append(&mut leaving);
            *leaving = taken;
            self.num_leaving.store(leaving.len(), Relaxed);
        }
        written
    }

    /// Takes as many descriptors as one write takes along.
    fn take_leaving(&self) -> VecDeque<OwnedFd> {
        let mut leaving = self.leaving.lock();
        let count = leaving.len().min(AT_ONCE);
        let later = leaving.split_off(count);
        self.num_leaving.store(later.len(), Relaxed);
        std::mem::replace(&mut *leaving, later)
    }

    /// Reads bytes into `target`, and keeps the descriptors that come with them. Returns the number of bytes, and whether
    /// descriptors came: then more bytes may be there, however few were read.
    pub fn read(&self, socket: &impl AsRawFd, target: &mut [MaybeUninit<u8>]) -> Result<(usize, bool)> {
        /// Room for the header of a control message and [`AT_ONCE`] descriptors, aligned as the header is.
        #[repr(C, align(8))]
        struct Control([u8; 16 + 4 * AT_ONCE]);
        let mut control = Control([0; 16 + 4 * AT_ONCE]);
        let mut part = libc::iovec { iov_base: target.as_mut_ptr().cast(), iov_len: target.len() };
        // SAFETY: all fields of the struct may be zero.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = size_of::<Control>() as _;
        // SAFETY: all pointers are to memory of the sizes given, which outlives the call.
        let read = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, FLAGS.1) };
        let read = usize::try_from(read).map_err(|_| Error::last_os_error())?;
        if message.msg_controllen == 0 {
            return Ok((read, false));
        }
        let mut arrived = self.arrived.lock();
        let mut result = Ok(());
        // SAFETY: the kernel has filled the message in.
        for descriptor in unsafe { descriptors_of(&message) } {
            let inode = rustix::fs::fstat(&descriptor)?.st_ino;
            if arrived.len() >= MAX_UNCLAIMED {
                result = Err(Error::new(ErrorKind::InvalidData, "too many descriptors came that no message names"));
            } else {
                arrived.insert(inode, descriptor);
            }
        }
        result.map(|()| (read, true))
    }
}

fn send_with(socket: BorrowedFd<'_>, parts: &[IoSlice<'_>], descriptors: &VecDeque<OwnedFd>) -> Result<usize> {
    let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&borrowed)) {
        return Err(Error::other("there is no room for descriptors"));
    }
    Ok(sendmsg(socket, parts, &mut control, FLAGS.0)?)
}

/// Takes the descriptors out of a received message.
///
/// # Safety
/// The message was filled in by `recvmsg`, and its descriptors were not taken before.
unsafe fn descriptors_of(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut found = Vec::new();
    // SAFETY: the macros of libc read the control messages that the kernel has written; each descriptor is taken once.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(control) = header.as_ref() {
            if control.cmsg_level == libc::SOL_SOCKET && control.cmsg_type == libc::SCM_RIGHTS {
                #[allow(clippy::unnecessary_cast, reason = "musl and macOS have another type")]
                let bytes = control.cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let first = libc::CMSG_DATA(control).cast::<RawFd>();
                let taken =
                    (0..bytes / size_of::<RawFd>()).map(|at| OwnedFd::from_raw_fd(first.add(at).read_unaligned()));
                found.extend(taken);
            }
            header = libc::CMSG_NXTHDR(message, control);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn file() -> OwnedFd {
        rustix::fs::memfd_create(c"test", rustix::fs::MemfdFlags::CLOEXEC).unwrap()
    }

    fn inode(descriptor: &OwnedFd) -> u64 {
        rustix::fs::fstat(descriptor).unwrap().st_ino
    }

    fn read(receiver: &Passing, socket: &UnixStream) -> Result<(Vec<u8>, bool)> {
        let mut target = [MaybeUninit::new(0); 64];
        let (count, has_descriptors) = receiver.read(socket, &mut target)?;
        // SAFETY: all were initialised.
        Ok((target[..count].iter().map(|byte| unsafe { byte.assume_init() }).collect(), has_descriptors))
    }

    #[test]
    fn descriptors_are_there_with_the_bytes_and_found_by_their_inodes() {
        let (here, there) = UnixStream::pair().unwrap();
        let (sender, receiver) = (Passing::default(), Passing::default());
        let files: Vec<_> = (0..3).map(|_| file()).collect();
        let inodes: Vec<_> = files.iter().map(inode).collect();
        files.into_iter().for_each(|file| sender.send(file));
        assert!(sender.is_leaving());
        assert_eq!(sender.write(here.as_fd(), &[IoSlice::new(b"ab"), IoSlice::new(b"c")]).unwrap(), 3);
        assert!(!sender.is_leaving());
        assert_eq!(read(&receiver, &there).unwrap(), (b"abc".to_vec(), true));
        for number in inodes.iter().rev() {
            assert_eq!(inode(&receiver.take(*number).unwrap()), *number);
            assert!(receiver.take(*number).is_none(), "it was taken");
        }
        assert_eq!(sender.write(here.as_fd(), &[IoSlice::new(b"d")]).unwrap(), 1);
        assert_eq!(read(&receiver, &there).unwrap(), (b"d".to_vec(), false));
    }

    #[test]
    fn more_descriptors_than_one_write_takes_have_come_before_the_last_byte() {
        let (here, there) = UnixStream::pair().unwrap();
        let (sender, receiver) = (Passing::default(), Passing::default());
        (0..2 * AT_ONCE + 1).for_each(|_| sender.send(file()));
        let mut rest: &[u8] = b"abcde";
        for (written, come) in [(1, AT_ONCE), (1, 2 * AT_ONCE), (3, 2 * AT_ONCE + 1)] {
            let parts = [IoSlice::new(&[]), IoSlice::new(&rest[..1]), IoSlice::new(&rest[1..])];
            assert_eq!(sender.write(here.as_fd(), &parts).unwrap(), written);
            assert_eq!(read(&receiver, &there).unwrap(), (rest[..written].to_vec(), true));
            assert_eq!(receiver.arrived.lock().len(), come);
            rest = &rest[written..];
        }
        assert!(rest.is_empty() && !sender.is_leaving());
    }

    #[test]
    fn an_end_reserves_no_more_than_the_other_takes() {
        let passing = Passing::default();
        assert_eq!((0..100).filter(|_| passing.reserve()).count(), MAX_UNCLAIMED);
        passing.release();
        assert!(passing.reserve() && !passing.reserve());
    }

    #[test]
    fn a_flood_of_descriptors_ends_the_connection() {
        let (here, there) = UnixStream::pair().unwrap();
        let (sender, receiver) = (Passing::default(), Passing::default());
        let rounds = MAX_UNCLAIMED / AT_ONCE;
        for round in 0..=rounds {
            (0..AT_ONCE).for_each(|_| sender.send(file()));
            sender.write(here.as_fd(), &[IoSlice::new(b"a")]).unwrap();
            let result = read(&receiver, &there);
            assert_eq!(result.is_err(), round == rounds, "{result:?}");
        }
        assert_eq!(receiver.arrived.lock().len(), MAX_UNCLAIMED);
    }
}
