//! Memory straight from the system, for the data of large chunks.
//!
//! The allocator would ask the system for each large chunk alone, and threads that ask wait for each other.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes of all [`Pages`].
static HELD: AtomicUsize = AtomicUsize::new(0);

/// Bytes of large chunks' data in this process, which the allocator does not know of.
pub fn held() -> usize {
    HELD.load(Relaxed)
}

/// Addresses that the system has given us, until this is dropped.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: addresses are bound to no thread; what lies there is reached through `Pages` only, which do not overlap.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(len: usize) -> Option<Self> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANON);
        // SAFETY: a new mapping, at addresses that the system chooses, touches no memory that is in use.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        let start = NonNull::new(start.cast()).filter(|_| start != libc::MAP_FAILED)?;
        Some(Self { start, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the addresses are ours, and no `Pages` are left that could refer to them.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Addresses of which pages are cut. They have no memory yet.
#[derive(Debug)]
pub struct Block {
    mapping: Arc<Mapping>,
    used: usize,
}

impl Block {
    /// Room for at least `len` bytes; `None` if the system has not so much.
    pub fn new(len: usize) -> Option<Self> {
        let mapping = Mapping::new(len.checked_next_multiple_of(page_bytes())?)?;
        Some(Self { mapping: Arc::new(mapping), used: 0 })
    }

    /// Takes the next `len` bytes, on whole pages; `None` if they are not there.
    pub fn cut(&mut self, len: usize) -> Option<Pages> {
        let size = len.checked_next_multiple_of(page_bytes())?;
        if size > self.mapping.len - self.used {
            return None;
        }
        // SAFETY: `used` is within the mapping, or just behind it.
        let start = unsafe { self.mapping.start.add(self.used) };
        self.used += size;
        HELD.fetch_add(size, Relaxed);
        let mut pages = Pages { start, len, size, _mapping: self.mapping.clone() };
        pages.populate();
        Some(pages)
    }
}

/// Zeroed bytes on pages of their own. Their memory goes back to the system when they are dropped, whatever becomes of the
/// rest of their block.
#[derive(Debug)]
pub struct Pages {
    start: NonNull<u8>,
    /// Bytes that are used.
    len: usize,
    /// Bytes of the pages.
    size: usize,
    _mapping: Arc<Mapping>,
}

// SAFETY: the pages belong to this value alone, and nothing about them is bound to a thread.
unsafe impl Send for Pages {}
// SAFETY: as above; a shared reference only reads.
unsafe impl Sync for Pages {}

impl Pages {
    /// Asks the system for all memory of the pages in one call. One by one, as they are written to, they take half as long
    /// again. Where the system does not know the call, they come one by one.
    fn populate(&mut self) {
        #[cfg(target_os = "linux")]
        // SAFETY: the pages are ours, and the call changes no content.
        unsafe {
            libc::madvise(self.start.as_ptr().cast(), self.size, libc::MADV_POPULATE_WRITE);
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        HELD.fetch_sub(self.size, Relaxed);
        // The addresses stay: a hole would be a mapping more, and a process has only so many.
        // SAFETY: the pages are ours, and nobody can refer to them any more.
        unsafe { libc::madvise(self.start.as_ptr().cast(), self.size, libc::MADV_DONTNEED) };
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the pages are ours and mapped; the system has zeroed them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the borrow is unique.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for Pages {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Bytes of a page.
pub fn page_bytes() -> usize {
    // SAFETY: the call reads a constant of the system.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).expect("every system has a page size")
}
