//! What moves the data of one client: the thread that waits for a call, and between calls a keeper.
//!
//! If other threads moved the data, each call would wake one of them and be woken by it: half of what a short call
//! costs. So a client has a runtime of one thread, and that thread is whoever waits. Of several who wait, one drives the
//! runtime for all and hands it to the next when its own call is done.
//!
//! Between calls somebody must still answer pings and see that the server went away. The keeper, a thread of the client,
//! takes the runtime once no call has begun for a while, and gives it back to the next call.

use crate::errors::PyReverbResult;
use crate::runtime::wait_on;
use arc_swap::ArcSwapOption;
use pyo3::prelude::*;
use reverb_core::{Error, Result, fork};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::Thread;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

/// How long after a call the keeper leaves the runtime alone. What a server says meanwhile waits as long.
const LINGER: Duration = Duration::from_millis(50);
/// Calls that follow each other within this time do not look first for what came in between.
const MOMENT: Duration = Duration::from_millis(1);
/// How long the connection of a client that is gone may take to end.
const CLOSE_TIME: Duration = Duration::from_secs(1);
/// Threads that look up the names of hosts.
const MAX_BLOCKING_THREADS: usize = 2;

/// Lets all tasks of a lane go on once: what is ready to be sent is sent.
pub async fn flush() {
    tokio::task::yield_now().await;
}

/// The runtime of a client, made when it is first needed.
#[derive(Default)]
pub struct Lane(ArcSwapOption<Running>);

struct Running {
    generation: u32,
    shared: Arc<Shared>,
    keeper: Thread,
}

struct Shared {
    runtime: Runtime,
    /// Calls that wait now, each of which drives the runtime or waits for its turn to.
    active: AtomicU64,
    /// Calls since the beginning.
    calls: AtomicU64,
    made: Instant,
    /// When the last call ended, in nanoseconds since `made`.
    last_end: AtomicU64,
    /// Whether the keeper drives.
    keeping: AtomicBool,
    /// Asks the keeper to stop driving.
    wanted: Notify,
    ended: AtomicBool,
}

impl Lane {
    /// Waits for `work` without the GIL, and hears Ctrl-C. Work that is interrupted is dropped, which withdraws it.
    pub fn wait<T: Send>(&self, py: Python<'_>, work: impl Future<Output = Result<T>> + Send) -> PyReverbResult<T> {
        let running = self.running()?;
        let driving = Driving::begin(&running.shared);
        let driven = driving.0.was_driven();
        let runtime = &running.shared.runtime;
        let result = wait_on(py, runtime, async {
            if !driven {
                // What came meanwhile is heard first: that the server went away, above all.
                flush().await;
                flush().await;
            }
            work.await
        });
        if result.is_err() {
            // The server hears that the call was withdrawn.
            py.detach(|| runtime.block_on(flush()));
        }
        result
    }

    /// The runtime; one from before a fork belongs to the parent, and a child makes its own.
    fn running(&self) -> Result<Arc<Running>> {
        let current = self.0.load();
        if let Some(running) = &*current
            && running.generation == fork::generation()
        {
            return Ok(running.clone());
        }
        let made = Arc::new(Running::start()?);
        let before = self.0.compare_and_swap(&current, Some(made.clone()));
        if before.as_ref().map(Arc::as_ptr) != current.as_ref().map(Arc::as_ptr) {
            return self.running();
        }
        // The parent's: its keeper is not here, so it must not be shut down.
        std::mem::forget(before.clone());
        Ok(made)
    }
}

impl Running {
    fn start() -> Result<Self> {
        let failed = |error: std::io::Error| Error::Internal(format!("no runtime can be made: {error}"));
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(MAX_BLOCKING_THREADS)
            .thread_name("reverb-client")
            .build()
            .map_err(failed)?;
        let shared = Arc::new(Shared {
            runtime,
            active: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            made: Instant::now(),
            last_end: AtomicU64::new(0),
            keeping: AtomicBool::new(false),
            wanted: Notify::new(),
            ended: AtomicBool::new(false),
        });
        let kept = shared.clone();
        let keeper = std::thread::Builder::new().name("reverb-keeper".into()).spawn(move || kept.keep());
        Ok(Self { generation: fork::generation(), shared, keeper: keeper.map_err(failed)?.thread().clone() })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            // The parent's, whose keeper still holds the runtime: nothing of it ends here.
            return;
        }
        self.shared.ended.store(true, SeqCst);
        self.shared.wanted.notify_one();
        self.keeper.unpark();
    }
}

impl Shared {
    /// Whether somebody drove the runtime a moment ago.
    fn was_driven(&self) -> bool {
        let now = self.made.elapsed();
        now.saturating_sub(Duration::from_nanos(self.last_end.load(SeqCst))) < MOMENT
    }

    /// The keeper's life. It ends with the client, whose connection it closes.
    fn keep(&self) {
        while !self.ended.load(SeqCst) {
            let before = self.calls.load(SeqCst);
            std::thread::park_timeout(LINGER);
            if self.calls.load(SeqCst) != before || self.active.load(SeqCst) > 0 {
                continue;
            }
            self.keeping.store(true, SeqCst);
            // A call that began before the flag was set has not seen it.
            if self.active.load(SeqCst) == 0 && !self.ended.load(SeqCst) {
                self.runtime.block_on(self.wanted.notified());
            }
            self.keeping.store(false, SeqCst);
        }
        // The connection ends in order, so that nothing it has said is lost.
        self.runtime.block_on(async {
            let all_end = async {
                while self.runtime.metrics().num_alive_tasks() > 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            let _unheard = tokio::time::timeout(CLOSE_TIME, all_end).await;
        });
    }
}

/// A call that waits.
struct Driving<'a>(&'a Shared);

impl<'a> Driving<'a> {
    fn begin(shared: &'a Shared) -> Self {
        shared.active.fetch_add(1, SeqCst);
        shared.calls.fetch_add(1, SeqCst);
        if shared.keeping.swap(false, SeqCst) {
            shared.wanted.notify_one();
        }
        Self(shared)
    }
}

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        self.0.last_end.store(self.0.made.elapsed().as_nanos() as u64, SeqCst);
        self.0.active.fetch_sub(1, SeqCst);
    }
}
