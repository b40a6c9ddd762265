//! A global allocator that has pages for large memory, which are used again.
//!
//! In glibc, threads have arenas of their own for what they allocate, and an arena keeps what it has once held. A message
//! of megabytes is received by one thread, the next one by another, and small memory that lives longer comes to lie in
//! between: arenas would grow for hours. Pages are for all threads, and those that nobody needs go back to the system.

use super::ALIGN;
use super::pages::Pages;
use super::stock::{self, MOST_UNDER_LOCK};
use std::alloc::{GlobalAlloc, Layout, System};

/// Smallest memory in bytes that gets pages.
const LEAST_BYTES: usize = MOST_UNDER_LOCK;
/// Largest memory in bytes that gets pages. The system's allocator grows larger memory without a copy, and gives it back.
const MOST_BYTES: usize = 8 << 20;
/// Distance of memory from its header.
const HEADER_BYTES: usize = ALIGN;

/// Where memory comes from; none for the system's allocator.
type Header = Option<Pages>;

const _: () = assert!(size_of::<Header>() <= HEADER_BYTES);

/// The allocator of the system, except for memory of 256 KiB to 8 MiB, which gets pages.
#[derive(Debug, Clone, Copy)]
pub struct Allocator;

// SAFETY: the system's allocator keeps the contract. Memory with a header begins `HEADER_BYTES` behind the start of pages,
// or of memory of the system, that this value alone owns, and is aligned as these and `HEADER_BYTES` are.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !has_header(layout) {
            // SAFETY: the caller guarantees the same.
            return unsafe { System.alloc(layout) };
        }
        match stock::pages(layout.size() + HEADER_BYTES) {
            // SAFETY: the pages are that large.
            Some(pages) => unsafe { behind_header(pages.as_mut_ptr(), Some(pages)) },
            // SAFETY: the layout is not empty, and its memory is that large.
            None => unsafe { behind_header(System.alloc(with_header(layout)), None) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !has_header(layout) {
            // SAFETY: the caller guarantees the same.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: as above.
        unsafe { behind_header(System.alloc_zeroed(with_header(layout)), None) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if !has_header(layout) {
            // SAFETY: the caller guarantees the same.
            return unsafe { System.dealloc(memory, layout) };
        }
        // SAFETY: memory of this layout has a header, which is not read again.
        match unsafe { header(memory).read() } {
            Some(pages) => stock::put(pages),
            // SAFETY: it was allocated so.
            None => unsafe { System.dealloc(memory.sub(HEADER_BYTES), with_header(layout)) },
        }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees that the size is valid for this alignment.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        let (has, will) = (has_header(layout), has_header(new));
        if !has && !will {
            // SAFETY: the caller guarantees the same.
            return unsafe { System.realloc(memory, layout, size) };
        }
        // SAFETY: memory of this layout has a header if `has`.
        if has && will && unsafe { (*header(memory)).as_ref() }.is_some_and(|pages| suits(pages, size)) {
            return memory;
        }
        // SAFETY: the new memory is another one, and both have the bytes that are copied. The old one is as the caller says.
        unsafe {
            let moved = self.alloc(new);
            if !moved.is_null() {
                moved.copy_from_nonoverlapping(memory, size.min(layout.size()));
                self.dealloc(memory, layout);
            }
            moved
        }
    }
}

/// Whether memory has a header in front.
fn has_header(layout: Layout) -> bool {
    (LEAST_BYTES..=MOST_BYTES).contains(&layout.size()) && layout.align() <= HEADER_BYTES
}

/// The layout of memory and its header.
fn with_header(layout: Layout) -> Layout {
    let align = layout.align().max(align_of::<Header>());
    // SAFETY: the size is at most `MOST_BYTES` and a header, and the greater of two powers of two is one.
    unsafe { Layout::from_size_align_unchecked(layout.size() + HEADER_BYTES, align) }
}

/// Whether pages hold `size` bytes behind a header, and are not much larger.
fn suits(pages: &Pages, size: usize) -> bool {
    let room = pages.size() - HEADER_BYTES;
    (room / 2..=room).contains(&size)
}

/// Writes a header. Returns the address behind it, or null for null.
///
/// # Safety
/// The memory is null, or is aligned for a header, larger than `HEADER_BYTES` and not in use.
unsafe fn behind_header(start: *mut u8, header: Header) -> *mut u8 {
    if start.is_null() {
        return start;
    }
    // SAFETY: the caller guarantees it.
    unsafe {
        start.cast::<Header>().write(header);
        start.add(HEADER_BYTES)
    }
}

/// Returns the address of the header of memory.
///
/// # Safety
/// The memory has a header.
unsafe fn header(memory: *mut u8) -> *mut Header {
    // SAFETY: the caller guarantees that it is in front.
    unsafe { memory.sub(HEADER_BYTES) }.cast()
}
