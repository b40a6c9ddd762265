//! Detects forks: whether this process is a child of the process that created a value.
//!
//! What was made before a fork (runtimes, connections, locks) must not be used in the child, so every insert has to
//! ask. A fork handler counts generations; asking the kernel for the process id took a third of an insert's time.
//! `os.register_at_fork` of Python does not see forks in native code.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// Time for which a static lock is tried. A thread of the parent may have held it when the child was forked, and then
/// nobody ever unlocks it there.
pub const LOCK_TIME: Duration = Duration::from_millis(100);

static GENERATION: AtomicU32 = AtomicU32::new(0);
static COUNT: AtomicU32 = AtomicU32::new(0);
static INSTALL: Once = Once::new();

extern "C" fn before() {
    COUNT.fetch_add(1, Relaxed);
}

extern "C" fn in_child() {
    // Only what is safe in a signal handler is allowed here.
    GENERATION.fetch_add(1, Relaxed);
}

/// Returns the number of forks between this process and the first process that called this function. A value that was
/// created in another generation belongs to a parent process, whose threads do not exist here.
#[inline]
pub fn generation() -> u32 {
    if !INSTALL.is_completed() {
        install();
    }
    GENERATION.load(Relaxed)
}

/// Returns the number of forks since the first call, in parent and child alike. Memory that was mapped at a lower number may
/// be mapped in a child, too.
pub fn count() -> u32 {
    if !INSTALL.is_completed() {
        install();
    }
    COUNT.load(Relaxed)
}

#[cold]
fn install() {
    INSTALL.call_once(|| {
        // SAFETY: the handlers only add to atomic numbers. The call fails only without memory, and then forks go
        // unnoticed.
        unsafe { libc::pthread_atfork(Some(before), None, Some(in_child)) };
    });
}
