//! Commits for those who are told of the result later. Threads make them, so that no task of a runtime waits for the disk,
//! and what comes meanwhile is one group.

use parking_lot::{Condvar, Mutex};
use reverb_core::{Error, Result, fork};
use reverb_service::Kept;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Number of threads. While groups are large, one writes while the disk syncs what the other has written.
const THREADS: usize = 2;
/// Size in bytes from which a group is large. Small ones are made one after another, so that they are fewer.
const LARGE_BYTES: u64 = 1 << 20;

/// Threads that commit. They end after this is dropped. A forked child has none of them, and one may have held a lock.
pub struct Committer {
    queue: Arc<Queue>,
    /// The generation of forks to which the threads belong.
    generation: u32,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    asked: Vec<Kept>,
    /// Number of commits under way.
    commits: usize,
    /// Whether the last group was large.
    is_large: bool,
    is_ended: bool,
}

impl Committer {
    /// Starts the threads, which make commits by `commit`. It returns the size of the group that was written last, too.
    ///
    /// # Errors
    /// [`Error::Internal`] if a thread does not start.
    pub fn start(commit: impl Fn() -> (Result<()>, u64) + Send + Sync + 'static) -> Result<Self> {
        let committer = Self { queue: Arc::default(), generation: fork::generation() };
        let commit = Arc::new(commit);
        for _ in 0..THREADS {
            let (queue, commit) = (committer.queue.clone(), commit.clone());
            let thread = std::thread::Builder::new().name("reverb-commit".into()).spawn(move || queue.run(&*commit));
            thread.map_err(|error| Error::Internal(format!("cannot start a thread: {error}")))?;
        }
        Ok(committer)
    }

    /// Whether the threads belong to this process.
    pub fn is_ours(&self) -> bool {
        self.generation == fork::generation()
    }

    /// Calls `kept` with the result of a commit that begins after this call.
    pub fn ask(&self, kept: Kept) {
        let mut state = self.queue.state.lock();
        state.asked.push(kept);
        let wakes = state.asked.len() == 1 && state.may_begin();
        drop(state);
        if wakes {
            self.queue.wake.notify_one();
        }
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        if self.is_ours() {
            self.queue.state.lock().is_ended = true;
            self.queue.wake.notify_all();
        }
    }
}

impl State {
    /// Whether a thread may begin a commit, if somebody asks for one.
    fn may_begin(&self) -> bool {
        self.commits == 0 || self.is_large
    }
}

impl Queue {
    fn run(&self, commit: &dyn Fn() -> (Result<()>, u64)) {
        loop {
            let mut state = self.state.lock();
            while !state.is_ended && (state.asked.is_empty() || !state.may_begin()) {
                self.wake.wait(&mut state);
            }
            let asked = std::mem::take(&mut state.asked);
            if asked.is_empty() {
                return;
            }
            state.commits += 1;
            drop(state);
            // A panic has closed the log, and was reported where it occurred. Here, too, all are told.
            let panicked = || Error::Internal("a thread panicked while it committed".into());
            let (result, bytes) = catch_unwind(AssertUnwindSafe(commit)).unwrap_or_else(|_| (Err(panicked()), 0));
            let mut state = self.state.lock();
            state.commits -= 1;
            state.is_large = bytes >= LARGE_BYTES;
            drop(state);
            for kept in asked {
                // The others are told all the same.
                let _panicked = catch_unwind(AssertUnwindSafe(|| kept(result.clone())));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::sync::mpsc::{Receiver, channel};

    fn ask(committer: &Committer) -> Receiver<Result<()>> {
        let (told, result) = channel();
        committer.ask(Box::new(move |kept| drop(told.send(kept))));
        result
    }

    #[test]
    fn a_panic_in_a_commit_is_told_and_the_next_commits_are_made() {
        let is_first = AtomicBool::new(true);
        let commit = move || (if is_first.swap(false, Relaxed) { panic!("the first commit") } else { Ok(()) }, 0);
        let committer = Committer::start(commit).unwrap();
        assert!(matches!(ask(&committer).recv(), Ok(Err(Error::Internal(_)))));
        for _ in 0..2 * THREADS {
            assert_eq!(ask(&committer).recv(), Ok(Ok(())));
        }
    }

    #[test]
    fn a_panic_of_one_that_is_told_keeps_no_other_from_being_told() {
        let ((begun, begins), (go_on, goes_on)) = (channel(), channel::<()>());
        let gate = Mutex::new((begun, goes_on));
        let wait = move || {
            let (begun, goes_on) = &*gate.lock();
            // The test may have ended.
            let _ended = (begun.send(()), goes_on.recv());
            (Ok(()), 0)
        };
        let committer = Committer::start(wait).unwrap();
        for _ in 0..2 * THREADS {
            let first = ask(&committer);
            begins.recv().unwrap();
            // These two are a group.
            committer.ask(Box::new(|_| panic!("one that is told")));
            let other = ask(&committer);
            go_on.send(()).unwrap();
            begins.recv().unwrap();
            go_on.send(()).unwrap();
            assert_eq!((first.recv(), other.recv()), (Ok(Ok(())), Ok(Ok(()))));
        }
    }
}
