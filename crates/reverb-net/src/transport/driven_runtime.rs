//! A runtime without a thread of its own, and how long nobody has driven it.

use super::socket::reads_of_this_thread;
use std::io::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

/// Maximum number of threads that look up host names.
const MAX_BLOCKING_THREADS: usize = 2;
/// Number of times that the idle driver runs all tasks of a runtime before it looks whether data has arrived: the first
/// finds sockets that are ready, the second reads them.
const IDLE_ROUNDS: usize = 2;
/// Time without data after which the idle driver leaves a runtime.
const QUIET: Duration = Duration::from_millis(1);
/// Maximum time for which the idle driver stays with one runtime.
const LONGEST_STAY: Duration = Duration::from_millis(100);

/// A runtime that callers drive while they wait, and the idle driver between calls.
pub struct DrivenRuntime {
    /// The runtime.
    pub runtime: Runtime,
    /// Number of waiting calls. Each drives the runtime, or waits for its turn to drive it.
    active: AtomicU64,
    made: Instant,
    /// Time when the last call ended, in nanoseconds since `made`.
    last_end: AtomicU64,
    /// Whether the idle driver drives the runtime.
    is_idle_driven: AtomicBool,
    /// Asks the idle driver to stop driving.
    wanted: Notify,
    ended: AtomicBool,
}

impl DrivenRuntime {
    /// Makes a runtime.
    ///
    /// # Errors
    /// The error of the system, which has no more memory or descriptors.
    pub fn new() -> Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(MAX_BLOCKING_THREADS)
            .thread_name("reverb-client")
            .build()?;
        Ok(Self {
            runtime,
            active: AtomicU64::new(0),
            made: Instant::now(),
            last_end: AtomicU64::new(0),
            is_idle_driven: AtomicBool::new(false),
            wanted: Notify::new(),
            ended: AtomicBool::new(false),
        })
    }

    /// Counts a call that is about to drive the runtime. The idle driver stops.
    pub fn begin_call(&self) {
        self.active.fetch_add(1, SeqCst);
        if self.is_idle_driven.swap(false, SeqCst) {
            self.wanted.notify_one();
        }
    }

    /// Ends what [`DrivenRuntime::begin_call`] began.
    pub fn end_call(&self) {
        self.last_end.store(self.made.elapsed().as_nanos() as u64, SeqCst);
        self.active.fetch_sub(1, SeqCst);
    }

    /// Time since a call last drove the runtime; zero while one does, or if it was never driven since it was made.
    pub fn idle_time(&self) -> Duration {
        match self.active.load(SeqCst) {
            0 => self.made.elapsed().saturating_sub(Duration::from_nanos(self.last_end.load(SeqCst))),
            _ => Duration::ZERO,
        }
    }

    /// Marks the runtime as one that no call will drive again.
    pub fn end(&self) {
        self.ended.store(true, SeqCst);
    }

    /// Whether [`DrivenRuntime::end`] was called.
    pub fn has_ended(&self) -> bool {
        self.ended.load(SeqCst)
    }

    /// Drives the runtime until no more data arrives, or a call begins.
    pub fn drive_idle(&self) {
        self.is_idle_driven.store(true, SeqCst);
        // A call that began before the flag was set has not seen the flag.
        if self.active.load(SeqCst) == 0 {
            self.runtime.block_on(async {
                tokio::select! {
                    () = self.wanted.notified() => {}
                    () = run_until_quiet() => {}
                }
            });
        }
        self.is_idle_driven.store(false, SeqCst);
    }

    /// Whether all connections have ended.
    pub fn is_done(&self) -> bool {
        self.runtime.metrics().num_alive_tasks() == 0
    }

    /// Ends a runtime that has ended, with all its connections. Returns it if a call still drives it.
    pub fn shut_down(self: Arc<Self>) -> Option<Arc<Self>> {
        match Arc::try_unwrap(self) {
            Ok(this) => {
                this.runtime.shutdown_background();
                None
            }
            Err(this) => Some(this),
        }
    }
}

async fn run_until_quiet() {
    let begun = Instant::now();
    let mut before = reads_of_this_thread();
    for _ in 0..IDLE_ROUNDS {
        tokio::task::yield_now().await;
    }
    while reads_of_this_thread() != before && begun.elapsed() < LONGEST_STAY {
        before = reads_of_this_thread();
        tokio::time::sleep(QUIET).await;
    }
}
