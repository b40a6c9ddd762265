//! Buffers for a length that a peer chose, in a process whose memory is nearly used up.

use reverb_core::Buffer;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Size in bytes from which allocations are large.
const LARGE: usize = 1 << 30;

/// Number of large allocations that succeed before all others fail.
static LEFT: AtomicUsize = AtomicUsize::new(0);

struct Scarce;

#[global_allocator]
static ALLOCATOR: Scarce = Scarce;

// SAFETY: all calls are forwarded to the allocator of the system, or fail.
unsafe impl GlobalAlloc for Scarce {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let take = |left: usize| left.checked_sub(1);
        if layout.size() >= LARGE && LEFT.fetch_update(SeqCst, SeqCst, take).is_err() {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller upholds the contract of the trait.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of the trait.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[test]
fn a_buffer_takes_the_memory_that_it_has_asked_for() {
    assert!(Buffer::try_new(LARGE).is_none());
    assert!(Buffer::try_new(usize::MAX - 64).is_none());
    LEFT.store(1, SeqCst);
    // A second allocation would abort the process.
    let buffer = Buffer::try_new(LARGE).expect("there is memory for one buffer");
    assert_eq!((buffer.len(), buffer.as_ptr() as usize % 64), (LARGE, 0));
    assert!(Buffer::try_new(0).is_some_and(|buffer| buffer.is_empty()));
}
