//! The streams of a connection that no call uses.

use parking_lot::Mutex;
use reverb_core::fork;

// limit (Beside dm-reverb): open insert streams, and as many sample streams, without a call, to a server of dm-reverb
// | {} | closed
/// Maximum number of streams that stay open for later calls.
const MAX_IDLE: usize = 16;

/// The streams of one kind that no call uses. A stream serves one call at a time, since the server reads no further from
/// a stream whose request waits.
#[derive(Debug)]
pub struct IdleStreams<S> {
    generation: u32,
    idle: Mutex<Vec<S>>,
}

impl<S> Default for IdleStreams<S> {
    fn default() -> Self {
        Self { generation: fork::generation(), idle: Mutex::default() }
    }
}

impl<S> Drop for IdleStreams<S> {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            // The streams belong to the parent process. A thread that exists only there may have locked their connection.
            std::mem::forget(std::mem::take(self.idle.get_mut()));
        }
    }
}

impl<S> IdleStreams<S> {
    /// Takes a stream that can be used for another call.
    pub fn take(&self, is_idle: impl Fn(&mut S) -> bool) -> Option<S> {
        loop {
            let mut stream = self.idle.lock().pop()?;
            if is_idle(&mut stream) {
                return Some(stream);
            }
        }
    }

    /// Keeps a stream whose call is complete.
    pub fn give_back(&self, stream: S) {
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE {
            idle.push(stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    /// A stream that counts how many were closed.
    struct Counted(Arc<AtomicU32>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn a_forked_child_closes_no_stream_of_its_parent() {
        let closed = Arc::new(AtomicU32::new(0));
        let streams = IdleStreams::default();
        for _ in 0..=MAX_IDLE {
            streams.give_back(Counted(closed.clone()));
        }
        assert_eq!(closed.load(Relaxed), 1, "one too many");
        // SAFETY: the child only frees memory, and ends without the handlers of the parent.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop(streams);
            let status = i32::from(closed.load(Relaxed) != 1);
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(status) };
        }
        let mut status = -1;
        // SAFETY: the child exists, and the pointer is valid.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child has closed streams");
        assert!(streams.take(|_| true).is_some());
        drop(streams);
        assert_eq!(closed.load(Relaxed), MAX_IDLE as u32 + 1);
    }

    #[test]
    fn a_stream_that_has_ended_is_not_used_again() {
        let streams = IdleStreams::default();
        for number in 0..3 {
            streams.give_back(number);
        }
        assert_eq!(streams.take(|number| *number < 2), Some(1));
        assert_eq!(streams.take(|_| true), Some(0));
        assert_eq!(streams.take(|_| true), None);
    }
}
