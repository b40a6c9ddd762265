//! Work without the GIL, and brief work with it.
//!
//! A thread that has let go of the GIL gets it back after up to 5 ms where another computes in Python, and threads that let
//! go of it all the time mostly wait for each other. So what takes some tens of microseconds is done with the GIL, but only
//! while nobody holds what it needs. Nobody waits for a disk or a network with the GIL, and for the lock of a table only if
//! another thread takes it after that look, for one turn.
//!
//! After work without the GIL, a thread comes back only if the interpreter is not about to end. CPython up to 3.13 ends a
//! thread that asks for the GIL while the interpreter ends: within the call that asks, and so amid frames of Rust, which
//! crashes. From 3.14 on, such a thread never comes back. Here none does once [`end_threads`] was called, as the last of what
//! this package does at the end; and that waits for those which were on their way already.

use pyo3::prelude::*;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// Work on at most so many bytes is brief: a batch of a table that is copied under its lock, or a chunk.
pub const BRIEF_BYTES: usize = 128 << 10;
/// Work on at most so many items is brief.
pub const BRIEF_ITEMS: usize = 256;

/// Time for which the end of the interpreter waits for threads on their way. In a forked child, there may be fewer than are
/// counted.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(1);

/// Number of threads that ask for the GIL.
static COMING_BACK: AtomicUsize = AtomicUsize::new(0);
/// The thread that ends the interpreter, by a number of its own. 0 before the end.
static ENDING: AtomicU64 = AtomicU64::new(0);

/// A thread that asks for the GIL.
struct ComingBack;

impl ComingBack {
    /// Never returns if the interpreter ends, unless this thread ends it.
    fn begin() -> Self {
        COMING_BACK.fetch_add(1, SeqCst);
        let coming = Self;
        let ending = ENDING.load(SeqCst);
        if ending != 0 && ending != own_number() {
            drop(coming);
            loop {
                thread::sleep(Duration::MAX);
            }
        }
        coming
    }
}

impl Drop for ComingBack {
    fn drop(&mut self) {
        COMING_BACK.fetch_sub(1, SeqCst);
    }
}

/// Does work without the GIL. Of a thread that is not that of the interpreter's end, it never returns after that has begun.
pub fn without_gil<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    let (result, _has_come) = py.detach(|| (work(), ComingBack::begin()));
    result
}

/// Does work with the GIL if it is brief, and without it otherwise; see the top of this file.
pub fn without_gil_unless<T: Send>(py: Python<'_>, is_brief: bool, work: impl FnOnce() -> T + Send) -> T {
    if is_brief { work() } else { without_gil(py, work) }
}

/// Keeps other threads from coming back from now on.
#[pyfunction]
pub fn end_threads(py: Python<'_>) {
    ENDING.store(own_number(), SeqCst);
    let until = Instant::now() + PATIENCE;
    while COMING_BACK.load(SeqCst) > 0 && Instant::now() < until {
        py.detach(|| thread::sleep(LOOK));
    }
}

/// A number of this thread, above 0.
fn own_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    thread_local!(static OWN: u64 = LAST.fetch_add(1, SeqCst) + 1);
    OWN.with(|own| *own)
}
