//! Memory directly from the system, for the data of large chunks.
//!
//! The global allocator would call the system for each large chunk separately, and threads wait for each other in these
//! calls. A [`Block`] of addresses is mapped at once and divided into [`Pages`], one for each chunk. The memory of a
//! chunk returns to the system when its pages are dropped, and the addresses of a block with its last pages.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Total size of all [`Pages`] in bytes.
static MAPPED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of bytes of large chunks in this process, which the global allocator does not count.
pub fn mapped_bytes() -> usize {
    MAPPED_BYTES.load(Relaxed)
}

/// Number of bytes that are faulted ahead at a time. Other threads cannot map memory meanwhile.
const FAULTED_BYTES: usize = 256 << 10;

/// A range of mapped addresses, unmapped when dropped.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is not bound to a thread, and its memory is accessed only through `Pages`, which do not overlap.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(len: usize) -> Option<Self> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANON);
        // SAFETY: a new mapping at addresses that the system chooses does not affect memory in use.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        let start = NonNull::new(start.cast()).filter(|_| start != libc::MAP_FAILED)?;
        Some(Self { start, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value owns the addresses, and no `Pages` that refer to them are left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// A mapping that is divided into [`Pages`]. Its unused part occupies memory only after [`Block::fault`].
#[derive(Debug)]
pub struct Block {
    mapping: Arc<Mapping>,
    used: usize,
    /// Whether the system has provided its memory already.
    is_faulted: bool,
}

impl Block {
    /// Maps addresses for at least `len` bytes. `None` if the system refuses.
    pub fn new(len: usize) -> Option<Self> {
        let mapping = Mapping::new(len.checked_next_multiple_of(page_bytes())?)?;
        Some(Self { mapping: Arc::new(mapping), used: 0, is_faulted: false })
    }

    /// Takes the next `len` bytes, rounded up to whole pages. `None` if not enough are left.
    pub fn cut(&mut self, len: usize) -> Option<Pages> {
        let size = len.checked_next_multiple_of(page_bytes())?;
        if size > self.mapping.len - self.used {
            return None;
        }
        // SAFETY: `used` is at most the length of the mapping.
        let start = unsafe { self.mapping.start.add(self.used) };
        self.used += size;
        MAPPED_BYTES.fetch_add(size, Relaxed);
        Some(Pages { start, len, size, is_faulted: self.is_faulted, _mapping: self.mapping.clone() })
    }

    /// Has the system provide memory for all addresses ahead of need.
    pub fn fault(&mut self) {
        assert_eq!(self.used, 0, "pages of the block are in use");
        for start in (0..self.mapping.len).step_by(FAULTED_BYTES) {
            // SAFETY: the addresses are in the mapping, and nobody uses them yet.
            unsafe { fault(self.mapping.start.add(start), FAULTED_BYTES.min(self.mapping.len - start)) };
        }
        self.is_faulted = true;
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // Pages in front may stay in use for long. SAFETY: `used` is at most the length of the mapping, and nobody uses what
        // is behind it.
        unsafe { give_back(self.mapping.start.add(self.used), self.mapping.len - self.used) };
    }
}

/// Has the system provide memory for pages in one call. Page faults at the first write to each of them would take 1.5
/// times as long. On a system without this call, they provide the memory.
///
/// # Safety
/// The pages belong to a mapping, and nobody else refers to them.
unsafe fn fault(start: NonNull<u8>, size: usize) {
    #[cfg(target_os = "linux")]
    // SAFETY: the caller guarantees it; the call does not change their content.
    unsafe {
        libc::madvise(start.as_ptr().cast(), size, libc::MADV_POPULATE_WRITE);
    }
    #[cfg(not(target_os = "linux"))]
    let _untouched = (start, size);
}

/// Gives the memory of pages back to the system. The addresses stay mapped, and are zero when they are read again: a
/// hole would split the mapping, and the number of mappings of a process is limited.
///
/// # Safety
/// The pages belong to a mapping, and nobody refers to them.
unsafe fn give_back(start: NonNull<u8>, size: usize) {
    // SAFETY: the caller guarantees it.
    unsafe { libc::madvise(start.as_ptr().cast(), size, libc::MADV_DONTNEED) };
}

/// Bytes on separate pages, which the system has zeroed. Their memory returns to the system when they are dropped, even
/// while the rest of the block is in use.
#[derive(Debug)]
pub struct Pages {
    start: NonNull<u8>,
    /// Number of usable bytes.
    len: usize,
    /// Total size of the pages in bytes.
    size: usize,
    is_faulted: bool,
    _mapping: Arc<Mapping>,
}

// SAFETY: this value alone owns the pages, and they are not bound to a thread.
unsafe impl Send for Pages {}
// SAFETY: as above; a shared reference only reads.
unsafe impl Sync for Pages {}

impl Pages {
    /// Total size of the pages in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Address of the first byte, of which this value owns [`Pages::size`].
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Has the system provide memory for all pages at once, unless it has done so.
    pub fn fault(&mut self) {
        if !std::mem::replace(&mut self.is_faulted, true) {
            // SAFETY: this value owns the pages.
            unsafe { fault(self.start, self.size) };
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        MAPPED_BYTES.fetch_sub(self.size, Relaxed);
        // SAFETY: this value owns the pages, and no references to them are left.
        unsafe { give_back(self.start, self.size) };
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: this value owns the pages. They are mapped, and the system has zeroed them.
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

/// Returns the size of a page in bytes.
pub fn page_bytes() -> usize {
    // SAFETY: the call only reads a constant of the system.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).expect("every system has a page size")
}
