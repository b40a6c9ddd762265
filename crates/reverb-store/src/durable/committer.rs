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
            let (result, bytes) = commit();
            let mut state = self.state.lock();
            state.commits -= 1;
            state.is_large = bytes >= LARGE_BYTES;
            drop(state);
            for kept in asked {
                // A panic was reported where it occurred. The others are told all the same.
                let _panicked = catch_unwind(AssertUnwindSafe(|| kept(result.clone())));
            }
        }
    }
}
