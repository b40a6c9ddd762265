//! Whether this process is a child of the one that made something.
//!
//! Asking the kernel for the process id costs as much as inserting an item, so a handler counts forks instead.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

static GENERATION: AtomicU32 = AtomicU32::new(0);
static INSTALL: Once = Once::new();

extern "C" fn in_child() {
    // All that may be done here is what a signal handler may do.
    GENERATION.fetch_add(1, Relaxed);
}

/// How many forks lie between this process and the first that asked. What was made in another generation belongs to a
/// parent: its threads are not here.
#[inline]
pub fn generation() -> u32 {
    if !INSTALL.is_completed() {
        install();
    }
    GENERATION.load(Relaxed)
}

#[cold]
fn install() {
    INSTALL.call_once(|| {
        // SAFETY: the handler only adds to an atomic number. It fails only without memory; then forks are not seen.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}
