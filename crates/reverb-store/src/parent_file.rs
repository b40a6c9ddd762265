//! Files that stay with the process that opened them: a forked child closes its copies.
//!
//! A lock of an open file lasts until all processes that share the open file have closed it. Without this module, a
//! forked child would keep the locks of its parent.

use parking_lot::Mutex;
use reverb_core::fork;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Once;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

/// Whether a thread is in a fork, or opens or closes a file of [`DESCRIPTORS`]. This is not a mutex, because the forked
/// child must be able to release it, and mutexes do not promise that.
static IS_BUSY: AtomicBool = AtomicBool::new(false);
/// Descriptors that a forked child closes. Only used while [`IS_BUSY`] is held, so its mutex is free in the child.
static DESCRIPTORS: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

static INSTALL: Once = Once::new();

extern "C" fn wait_until_free() {
    while IS_BUSY.compare_exchange_weak(false, true, Acquire, Relaxed).is_err() {
        std::thread::sleep(Duration::from_micros(100));
    }
}

extern "C" fn release() {
    IS_BUSY.store(false, Release);
}

extern "C" fn in_child() {
    // Only what is safe in a signal handler is allowed here, so nothing is allocated or freed.
    if let Some(mut descriptors) = DESCRIPTORS.try_lock() {
        for descriptor in descriptors.drain(..) {
            // SAFETY: the copy of the parent's `ParentFile` knows that it must not use the descriptor in this process.
            unsafe { libc::close(descriptor) };
        }
    }
    release();
}

/// Calls `change` with the list of descriptors. No other thread forks meanwhile.
fn without_forks<T>(change: impl FnOnce(&mut Vec<RawFd>) -> T) -> T {
    struct Release;
    impl Drop for Release {
        fn drop(&mut self) {
            release();
        }
    }
    // SAFETY: the handlers may run at any time after this. They use only static values and the system.
    INSTALL.call_once(|| unsafe {
        libc::pthread_atfork(Some(wait_until_free), Some(release), Some(in_child));
    });
    wait_until_free();
    let _release = Release;
    change(&mut DESCRIPTORS.lock())
}

/// An open file of the process that has opened it. In a forked child it is closed, and dropping the child's copy does
/// nothing.
#[derive(Debug)]
pub struct ParentFile {
    file: ManuallyDrop<File>,
    generation: u32,
}

impl ParentFile {
    /// Opens a file with `open`. Forks of other threads wait for it.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn open(open: impl FnOnce() -> io::Result<File>) -> io::Result<Self> {
        let generation = fork::generation();
        without_forks(|descriptors| {
            let file = open()?;
            descriptors.push(file.as_raw_fd());
            Ok(Self { file: ManuallyDrop::new(file), generation })
        })
    }

    /// Returns the file. `None` in a forked child.
    pub fn get(&self) -> Option<&File> {
        (self.generation == fork::generation()).then_some(&*self.file)
    }
}

impl Drop for ParentFile {
    fn drop(&mut self) {
        let Some(descriptor) = self.get().map(AsRawFd::as_raw_fd) else { return };
        without_forks(|descriptors| {
            descriptors.retain(|&other| other != descriptor);
            // SAFETY: the file is open in this process, and nothing uses it after this.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        });
    }
}
