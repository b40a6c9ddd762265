//! Returns freed memory to the system.

/// Returns freed memory to the system. The allocator of glibc keeps free memory between blocks in use until it is asked
/// to return it. Other allocators return it on their own.
pub fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the call may be made at any time, from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}
