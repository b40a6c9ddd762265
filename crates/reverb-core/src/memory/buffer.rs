//! Large buffers, pooled: a batch of megabytes does not cause page faults each time.
//!
//! All arrays of a batch share one buffer, which returns to the pool when the last of them is dropped. The pool is
//! small, because a larger one would be resident memory of every learner, and lends a block of at most twice the
//! requested size. Its lock is only tried, so that a forked child cannot wait for it forever.

use bytes::Bytes;
use std::mem::MaybeUninit;
use std::sync::Mutex;

/// Buffers below this size in bytes are not pooled, because the allocator is as fast.
const POOLED_BYTES: usize = 64 * 1024;
// limit (Processes): memory of the buffer pool | {:bytes} | freed
/// Maximum size of the pool in bytes.
const POOL_LIMIT: usize = 64 * 1024 * 1024;

type Words = Box<[MaybeUninit<Word>]>;

/// Alignment of the columns of a batch in bytes, so that readers may use the widest loads.
pub const ALIGN: usize = 64;

#[repr(align(64))]
#[derive(Clone, Copy)]
struct Word(#[expect(dead_code, reason = "gives the size; read through pointers to its bytes only")] [u8; ALIGN]);

static POOL: Mutex<Pool> = Mutex::new(Pool { free: Vec::new(), bytes: 0 });

struct Pool {
    free: Vec<Words>,
    bytes: usize,
}

/// A block of bytes, aligned to 64 bytes. A new one is not initialised, and returns to a pool of the process when dropped.
pub struct Buffer {
    memory: Memory,
    len: usize,
}

/// Where the bytes of a [`Buffer`] are.
enum Memory {
    Words(Words),
    Lent(Box<dyn LentMemory>),
}

/// Memory that somebody else manages, and that returns to them when dropped.
///
/// # Safety
/// [`LentMemory::bytes`] always returns the same bytes: initialised, aligned to [`ALIGN`], writable, and accessible by nobody
/// else as long as the value lives.
pub unsafe trait LentMemory: Send + Sync {
    /// Address and number of the bytes.
    fn bytes(&self) -> (*mut u8, usize);
}

impl Buffer {
    /// Creates a buffer of `len` bytes with arbitrary content.
    pub fn new(len: usize) -> Self {
        let words = len.div_ceil(ALIGN);
        Self { memory: Memory::Words(pooled(len).unwrap_or_else(|| Box::new_uninit_slice(words))), len }
    }

    /// As [`Buffer::new`], for a length that a peer chose: `None` if there is not enough memory.
    pub fn try_new(len: usize) -> Option<Self> {
        if let Some(words) = pooled(len) {
            return Some(Self { memory: Memory::Words(words), len });
        }
        let count = len.div_ceil(ALIGN);
        let mut words = Vec::new();
        words.try_reserve_exact(count).ok()?;
        // SAFETY: the capacity was reserved, and uninitialised words have no invalid value.
        unsafe { words.set_len(count) };
        Some(Self { memory: Memory::Words(words.into_boxed_slice()), len })
    }

    /// Makes a buffer of the first `len` bytes of lent memory, which has at least as many.
    pub fn lent(memory: Box<dyn LentMemory>, len: usize) -> Self {
        assert!(len <= memory.bytes().1, "a buffer of {len} bytes in {} bytes of lent memory", memory.bytes().1);
        Self { memory: Memory::Lent(memory), len }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the buffer has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of the first byte.
    pub fn as_ptr(&self) -> *const u8 {
        match &self.memory {
            Memory::Words(words) => words.as_ptr().cast(),
            Memory::Lent(memory) => memory.bytes().0,
        }
    }

    /// Returns a copy of the bytes.
    ///
    /// # Safety
    /// All bytes were written since [`Buffer::new`]. This holds for a gathered batch, including gaps between columns.
    pub unsafe fn to_vec(&self) -> Vec<u8> {
        // SAFETY: the caller guarantees the same.
        unsafe { self.as_bytes() }.to_vec()
    }

    /// Returns the bytes.
    ///
    /// # Safety
    /// As for [`Buffer::to_vec`].
    pub(crate) unsafe fn as_bytes(&self) -> &[u8] {
        // SAFETY: the buffer owns the bytes, and the caller guarantees that they were written.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len) }
    }

    /// Makes bytes of it, which are not copied.
    ///
    /// # Safety
    /// As for [`Buffer::to_vec`].
    pub unsafe fn into_bytes(self) -> Bytes {
        Bytes::from_owner(Written(self))
    }

    /// The bytes of lent memory, which are initialised.
    pub(crate) fn initialised_mut(&mut self) -> &mut [u8] {
        assert!(matches!(self.memory, Memory::Lent(_)), "a buffer may not be initialised");
        let bytes = self.as_uninit_mut();
        // SAFETY: who lends memory has initialised it.
        unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len()) }
    }

    /// The bytes, for writing.
    pub fn as_uninit_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        let first = match &mut self.memory {
            Memory::Words(words) => words.as_mut_ptr().cast(),
            Memory::Lent(memory) => memory.bytes().0.cast(),
        };
        // SAFETY: the memory has at least `len` bytes, and uninitialised bytes have no invalid value.
        unsafe { std::slice::from_raw_parts_mut(first, self.len) }
    }
}

/// A buffer whose bytes were written.
struct Written(Buffer);

impl AsRef<[u8]> for Written {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: it is made of such buffers only.
        unsafe { self.0.as_bytes() }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Memory::Words(words) = &mut self.memory else { return };
        let bytes = words.len() * ALIGN;
        if bytes < POOLED_BYTES {
            return;
        }
        // In a process that was forked while another thread held the lock, the lock is never released, so this only
        // tries it.
        if let Ok(mut pool) = POOL.try_lock()
            && pool.bytes + bytes <= POOL_LIMIT
        {
            pool.bytes += bytes;
            pool.free.push(std::mem::take(words));
        }
    }
}

/// Returns the size in bytes of the free blocks in the pool; 0 while another thread uses it.
pub fn pooled_bytes() -> usize {
    POOL.try_lock().map_or(0, |pool| pool.bytes)
}

/// A free block for `len` bytes, if the pool has one.
fn pooled(len: usize) -> Option<Words> {
    if len >= POOLED_BYTES { take(len.div_ceil(ALIGN)) } else { None }
}

/// The smallest free block that holds `words`, unless it is more than twice as large.
fn take(words: usize) -> Option<Words> {
    let mut pool = POOL.try_lock().ok()?;
    let fits = |block: &Words| block.len() >= words && block.len() <= 2 * words;
    let (index, _) =
        pool.free.iter().enumerate().filter(|(_, block)| fits(block)).min_by_key(|(_, block)| block.len())?;
    let block = pool.free.swap_remove(index);
    pool.bytes -= block.len() * ALIGN;
    Some(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_buffer_is_used_again_and_aligned() {
        let first = Buffer::new(300_000);
        let address = first.as_ptr();
        assert_eq!(address as usize % ALIGN, 0);
        drop(first);
        assert!(pooled_bytes() >= 300_000);
        assert_eq!(Buffer::new(290_000).as_ptr(), address);
    }
}
