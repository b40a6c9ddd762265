//! Memory that two processes of one host share: a file without a name, sealed so that it keeps its size.
//!
//! One end makes it and writes to it. The other maps it privately: what that writes it keeps for itself, and it sees changes
//! of the first only in pages that it has not written to. Nothing is left of it when both have ended, however they end.

use reverb_core::{Error, Result};
use rustix::fs::{Mode, OFlags, fstat};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::iter::once;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};

/// Size of a page in bytes.
const PAGE: usize = 4096;
/// Size of an entry of the page map in bytes.
const ENTRY: usize = 8;

/// What Linux alone has.
#[cfg(target_os = "linux")]
mod system {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create};
    use rustix::io::Result;
    use rustix::mm::{Advice, madvise};
    use std::os::fd::OwnedFd;

    /// Makes a file without a name.
    pub fn make(len: usize) -> Result<OwnedFd> {
        let file = memfd_create(c"reverb", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, len as u64).map(|()| file)
    }

    /// Seals a file: its size never changes, and it is written to only where it is mapped for that already.
    pub fn seal(file: &OwnedFd) -> Result<()> {
        fcntl_add_seals(file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL)
    }

    /// Whether a file can never shrink, which would end whoever reads it there.
    pub fn is_sealed(file: &OwnedFd) -> bool {
        fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK))
    }

    /// Maps the pages before they are read: each would cost a fault. Older kernels do not know this.
    pub fn populate(first: *mut u8, len: usize) {
        // SAFETY: it changes no byte.
        let _unknown = unsafe { madvise(first.cast(), len, Advice::LinuxPopulateRead) };
    }

    /// Gives up the own copies of pages.
    ///
    /// # Safety
    /// Nobody uses the bytes, which are those of the mapped file again at the next use.
    pub unsafe fn forget(first: *mut u8, len: usize) {
        // SAFETY: as above.
        let _forgotten = unsafe { madvise(first.cast(), len, Advice::LinuxDontNeed) };
    }
}

/// Other systems share no memory.
#[cfg(not(target_os = "linux"))]
mod system {
    use rustix::io::{Errno, Result};
    use std::os::fd::OwnedFd;

    pub fn make(_: usize) -> Result<OwnedFd> {
        Err(Errno::NOSYS)
    }

    pub fn seal(_: &OwnedFd) -> Result<()> {
        Err(Errno::NOSYS)
    }

    pub fn is_sealed(_: &OwnedFd) -> bool {
        false
    }

    pub fn populate(_: *mut u8, _: usize) {}

    pub unsafe fn forget(_: *mut u8, _: usize) {}
}

/// Reading and writing.
const BOTH: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);
/// Unit in which the system counts the bytes of a file that are there.
const BLOCK: u64 = 512;

/// Bytes that are mapped until this is dropped.
#[derive(Debug)]
struct Mapped {
    first: *mut u8,
    len: usize,
}

// SAFETY: it is plain memory, which its owner alone uses.
unsafe impl Send for Mapped {}
// SAFETY: a shared reference gives nothing but the address.
unsafe impl Sync for Mapped {}

impl Mapped {
    fn new(file: impl AsFd, len: usize, flags: MapFlags, access: ProtFlags) -> rustix::io::Result<Self> {
        // SAFETY: the kernel chooses the address, so nothing else is there.
        let first = unsafe { mmap(std::ptr::null_mut(), len, access, flags, file, 0) }?;
        Ok(Self { first: first.cast(), len })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it was mapped by this value, and nobody uses it any more.
        let _unmapped = unsafe { munmap(self.first.cast(), self.len) };
    }
}

/// A segment at the end that writes.
#[derive(Debug)]
pub struct Segment {
    /// Its number, which the other end finds it by.
    pub inode: u64,
    mapped: Mapped,
}

impl Segment {
    /// Makes a segment. Returns it with the descriptor for the other end, which cannot write through it, nor change its size.
    ///
    /// # Errors
    /// Those of the system, which may have no memory or no descriptor left.
    pub fn new(len: usize) -> std::io::Result<(Self, OwnedFd)> {
        let file = system::make(len)?;
        let mapped = Mapped::new(&file, len, MapFlags::SHARED, BOTH)?;
        system::seal(&file)?;
        let inode = fstat(&file)?.st_ino;
        Ok((Self { inode, mapped }, file))
    }

    /// Whether this process can make segments.
    pub fn is_available() -> bool {
        Self::new(PAGE).is_ok()
    }

    /// Number of its bytes.
    pub fn len(&self) -> usize {
        self.mapped.len
    }

    /// Its bytes, for writing. The other end may read them at the same time.
    pub fn bytes(&mut self) -> &mut [std::mem::MaybeUninit<u8>] {
        // SAFETY: the mapping has so many bytes, and this end reads none of them.
        unsafe { std::slice::from_raw_parts_mut(self.mapped.first.cast(), self.mapped.len) }
    }
}

/// A segment at the end that reads.
#[derive(Debug)]
pub struct Received {
    mapped: Mapped,
}

impl Received {
    /// Maps a segment that has arrived.
    ///
    /// # Errors
    /// [`Error::DataLoss`] if it could shrink, or has not from `least` to `most` bytes. [`Error::ResourceExhausted`] if it
    /// cannot be mapped.
    pub fn new(file: &OwnedFd, (least, most): (usize, usize)) -> Result<Self> {
        let is_sealed = system::is_sealed(file);
        let len = fstat(file).ok().and_then(|stat| usize::try_from(stat.st_size).ok()).unwrap_or(0);
        if !is_sealed || !(least..=most).contains(&len) {
            return Err(Error::DataLoss(format!(
                "expected a sealed segment of shared memory of {least} to {most} bytes, got {len} bytes, sealed: {is_sealed}"
            )));
        }
        let mapped = Mapped::new(file, len, MapFlags::PRIVATE, BOTH)
            .map_err(|error| Error::ResourceExhausted(format!("cannot map {len} bytes of shared memory: {error}")))?;
        system::populate(mapped.first, len);
        Ok(Self { mapped })
    }

    /// Number of its bytes.
    pub fn len(&self) -> usize {
        self.mapped.len
    }

    /// Gives up what this process has written to its copy, so that it sees again what the other end writes. Without knowledge
    /// of the pages, it gives up all of them, and each costs a fault at its next use.
    pub fn forget_own_writes(&self, pages: Option<&Pages>) {
        let (first, all) = (self.mapped.first, self.mapped.len.div_ceil(PAGE));
        let own = pages.and_then(|pages| pages.own(first as usize, all)).unwrap_or_else(|| once(0..all).collect());
        for Range { start, end } in own {
            // SAFETY: it is within the mapping, and the batch that was there is gone.
            unsafe { system::forget(first.add(start * PAGE), (end - start) * PAGE) };
        }
    }

    /// Address and number of the bytes.
    pub fn bytes(&self) -> (*mut u8, usize) {
        (self.mapped.first, self.mapped.len)
    }
}

/// A segment that has arrived, for reading alone. The other end may write to it at any time.
#[derive(Debug)]
pub struct Seen {
    mapped: Mapped,
}

impl Seen {
    /// Number of bytes of a file that is a segment with at least `least` bytes.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if it is none, or has fewer bytes or pages.
    pub fn check(file: &OwnedFd, least: usize) -> Result<usize> {
        let is_sealed = system::is_sealed(file);
        let stat = fstat(file).ok();
        let len = stat.as_ref().and_then(|stat| usize::try_from(stat.st_size).ok()).unwrap_or(0);
        // Reading pages that were never written would make them.
        let written = stat.and_then(|stat| u64::try_from(stat.st_blocks).ok()).unwrap_or(0).saturating_mul(BLOCK);
        if !is_sealed || len < least || written < least as u64 {
            return Err(Error::invalid(format!(
                "expected a sealed segment of shared memory of at least {least} bytes, got {len} bytes, {written} of them \
                 written, sealed: {is_sealed}"
            )));
        }
        Ok(len)
    }

    /// Maps the first bytes of a file that was checked.
    ///
    /// # Errors
    /// [`Error::ResourceExhausted`] if it cannot be mapped.
    pub fn new(file: &OwnedFd, len: usize) -> Result<Self> {
        let mapped = Mapped::new(file, len, MapFlags::SHARED, ProtFlags::READ);
        let mapped = mapped.map_err(|error| {
            Error::ResourceExhausted(format!("cannot map {len} bytes of shared memory of a client: {error}"))
        })?;
        Ok(Self { mapped })
    }

    /// Number of its bytes.
    pub fn len(&self) -> usize {
        self.mapped.len
    }

    /// Copies bytes from `start` on into all of `target`.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn copy(&self, start: usize, target: &mut [std::mem::MaybeUninit<u8>]) {
        assert!(start <= self.len() && target.len() <= self.len() - start, "bytes of a segment");
        // SAFETY: both have so many bytes. What the other end writes meanwhile changes no more than the copy.
        unsafe {
            std::ptr::copy_nonoverlapping(self.mapped.first.add(start), target.as_mut_ptr().cast(), target.len())
        };
    }
}

/// What the system tells of the pages of this process.
#[derive(Debug)]
pub struct Pages(OwnedFd);

impl Pages {
    /// Asks for it. `None` if the system does not tell.
    pub fn open() -> Option<Self> {
        // The numbers that it has are for smaller pages elsewhere.
        if rustix::param::page_size() != PAGE {
            return None;
        }
        rustix::fs::open(c"/proc/self/pagemap", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok().map(Self)
    }

    /// Returns those of `count` pages that this process has written to, as runs, by their places. `None` if the system does
    /// not tell.
    fn own(&self, first: usize, count: usize) -> Option<Vec<Range<usize>>> {
        let mut entries = vec![0_u64; count];
        // SAFETY: any bytes are numbers.
        let bytes = unsafe { std::slice::from_raw_parts_mut(entries.as_mut_ptr().cast::<u8>(), count * ENTRY) };
        let read = rustix::io::pread(&self.0, bytes, (first / PAGE * ENTRY) as u64).ok()?;
        let mut own: Vec<Range<usize>> = Vec::new();
        for place in (read == count * ENTRY).then_some(0..count)?.filter(|&place| is_own(entries[place])) {
            match own.last_mut().filter(|last| last.end == place) {
                Some(last) => last.end += 1,
                None => own.push(place..place + 1),
            }
        }
        Some(own)
    }
}

/// Whether an entry of the page map is that of a page that is not one of a file: it is in memory and no file's, or swapped.
fn is_own(entry: u64) -> bool {
    const IN_MEMORY: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    const OF_FILE: u64 = 1 << 61;
    entry & OF_FILE == 0 && entry & (IN_MEMORY | SWAPPED) != 0
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    use std::mem::MaybeUninit;

    const LEN: usize = 64 * PAGE;

    #[expect(clippy::mut_from_ref, reason = "the memory is not that of the value")]
    fn bytes(received: &Received) -> &mut [u8] {
        let (first, len) = received.bytes();
        // SAFETY: it is mapped as long as `received` lives, and each test has one such slice at a time.
        unsafe { std::slice::from_raw_parts_mut(first, len) }
    }

    /// A segment whose bytes are all 1, and its other end.
    fn both_ends() -> (Segment, Received, OwnedFd) {
        let (mut segment, file) = Segment::new(LEN).unwrap();
        segment.bytes().fill(MaybeUninit::new(1));
        let received = Received::new(&file, (LEN, LEN)).unwrap();
        (segment, received, file)
    }

    #[test]
    fn what_one_end_writes_is_seen_at_the_other_until_that_writes() {
        let (mut segment, received, _) = both_ends();
        assert!(bytes(&received).iter().all(|byte| *byte == 1));
        segment.bytes().fill(MaybeUninit::new(2));
        assert!(bytes(&received).iter().all(|byte| *byte == 2));
        bytes(&received)[PAGE] = 7;
        segment.bytes().fill(MaybeUninit::new(3));
        assert_eq!((bytes(&received)[0], bytes(&received)[PAGE], bytes(&received)[PAGE + 1]), (3, 7, 2));
    }

    #[test]
    fn own_writes_are_forgotten_with_knowledge_of_the_pages_and_without() {
        let known = Pages::open();
        for pages in [known.as_ref(), None] {
            let (mut segment, received, _) = both_ends();
            // The first page, the last, and neighbours.
            for page in [0, 5, 6, 7, 40, 63] {
                bytes(&received)[page * PAGE + 9] = 7;
            }
            received.forget_own_writes(pages);
            assert!(bytes(&received).iter().all(|byte| *byte == 1));
            segment.bytes().fill(MaybeUninit::new(2));
            assert!(bytes(&received).iter().all(|byte| *byte == 2));
        }
    }

    #[test]
    fn only_pages_that_were_written_to_are_own() {
        let Some(pages) = Pages::open() else { return };
        let (_segment, received, _) = both_ends();
        let first = received.bytes().0 as usize;
        assert_eq!(pages.own(first, LEN / PAGE), Some(Vec::new()));
        for page in [3, 4, 9] {
            bytes(&received)[page * PAGE] = 7;
        }
        assert_eq!(pages.own(first, LEN / PAGE), Some(vec![3..5, 9..10]));
    }

    #[test]
    fn the_other_end_cannot_change_a_segment() {
        let (_segment, _received, file) = both_ends();
        assert!(Mapped::new(&file, LEN, MapFlags::SHARED, BOTH).is_err(), "it can be mapped for writing");
        assert!(rustix::io::pwrite(&file, b"x", 0).is_err(), "it can be written");
        for size in [0, 2 * LEN as u64] {
            assert!(ftruncate(&file, size).is_err(), "its size can be {size}");
        }
        assert!(fcntl_add_seals(&file, SealFlags::WRITE).is_err(), "it can be sealed further");
    }

    #[test]
    fn a_file_that_may_shrink_or_has_another_size_is_refused() {
        let open = memfd_create(c"test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&open, LEN as u64).unwrap();
        let (_segment, _received, sealed) = both_ends();
        for (file, sizes) in [(&open, (LEN, LEN)), (&sealed, (LEN + 1, usize::MAX)), (&sealed, (1, LEN - 1))] {
            let refused = Received::new(file, sizes).unwrap_err();
            assert!(matches!(&refused, Error::DataLoss(text) if text.contains("sealed segment")), "{refused}");
        }
        let null = rustix::fs::open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
        assert!(matches!(Received::new(&null, (0, LEN)), Err(Error::DataLoss(_))));
    }
}
