//! A runtime that is driven by the threads that wait for calls, and by its own thread between calls.
//!
//! With separate runtime threads, each call would wake one of them and be woken by it, which is half of the cost of a
//! short call. So connections can live on a single-threaded runtime, driven by the thread that waits for a call. If
//! several threads wait, one of them drives the runtime for all, and hands it to the next when its own call is done.
//!
//! Between calls, pings must still be answered and a lost connection noticed. The idle driver, a thread of the runtime,
//! drives it when no call has begun for a while, and stops when the next call begins.

use arc_swap::ArcSwapOption;
use reverb_core::{Error, Result, fork};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::Thread;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

/// Time after a call before the idle driver starts. Data of a server that arrives in between waits until then.
const LINGER: Duration = Duration::from_millis(50);
/// A call that begins within this time after the last one does not first process the data that came in between.
const MOMENT: Duration = Duration::from_millis(1);
/// Maximum time for connections to close after the runtime is dropped.
const CLOSE_TIME: Duration = Duration::from_secs(1);
/// Maximum number of threads that look up host names.
const MAX_BLOCKING_THREADS: usize = 2;

/// Runs every task of the runtime once, so that data that is ready is sent.
pub async fn flush() {
    tokio::task::yield_now().await;
}

/// A runtime that its callers drive, for any number of connections. It is made when it is first needed. See the
/// documentation of this module.
#[derive(Default)]
pub struct CallerDrivenRuntime(ArcSwapOption<Running>);

struct Running {
    generation: u32,
    shared: Arc<SharedRuntime>,
    idle_driver: Thread,
}

struct SharedRuntime {
    runtime: Runtime,
    /// Number of waiting calls. Each drives the runtime, or waits for its turn to drive it.
    active: AtomicU64,
    /// Number of calls since the runtime was made.
    calls: AtomicU64,
    made: Instant,
    /// Time when the last call ended, in nanoseconds since `made`.
    last_end: AtomicU64,
    /// Whether the idle driver drives the runtime.
    is_idle_driven: AtomicBool,
    /// Asks the idle driver to stop driving.
    wanted: Notify,
    ended: AtomicBool,
}

impl CallerDrivenRuntime {
    /// Begins to drive the runtime for one call.
    ///
    /// # Errors
    /// [`Error::Internal`] if the runtime cannot be made.
    pub fn drive(&self) -> Result<Driving> {
        Ok(Driving::begin(self.running()?.shared.clone()))
    }

    /// Returns the runtime. A runtime that was made before a fork belongs to the parent process; a child makes its own.
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
        // The old runtime belongs to the parent process. Its idle driver does not exist here, so it must not be shut
        // down.
        std::mem::forget(before.clone());
        Ok(made)
    }
}

impl Running {
    fn start() -> Result<Self> {
        let failed = |error: std::io::Error| Error::Internal(format!("cannot start a runtime: {error}"));
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(MAX_BLOCKING_THREADS)
            .thread_name("reverb-client")
            .build()
            .map_err(failed)?;
        let shared = Arc::new(SharedRuntime {
            runtime,
            active: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            made: Instant::now(),
            last_end: AtomicU64::new(0),
            is_idle_driven: AtomicBool::new(false),
            wanted: Notify::new(),
            ended: AtomicBool::new(false),
        });
        let driven = shared.clone();
        let idle_driver =
            std::thread::Builder::new().name("reverb-idle".into()).spawn(move || driven.drive_when_idle());
        Ok(Self { generation: fork::generation(), shared, idle_driver: idle_driver.map_err(failed)?.thread().clone() })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            // The runtime belongs to the parent process, whose idle driver still uses it. It must not be ended here.
            return;
        }
        self.shared.ended.store(true, SeqCst);
        self.shared.wanted.notify_one();
        self.idle_driver.unpark();
    }
}

impl SharedRuntime {
    /// Whether a call drove the runtime within the last [`MOMENT`].
    fn was_driven(&self) -> bool {
        let now = self.made.elapsed();
        now.saturating_sub(Duration::from_nanos(self.last_end.load(SeqCst))) < MOMENT
    }

    /// The loop of the idle driver. It ends when the runtime is dropped, and then closes the connections.
    fn drive_when_idle(&self) {
        while !self.ended.load(SeqCst) {
            let before = self.calls.load(SeqCst);
            std::thread::park_timeout(LINGER);
            if self.calls.load(SeqCst) != before || self.active.load(SeqCst) > 0 {
                continue;
            }
            self.is_idle_driven.store(true, SeqCst);
            // A call that began before the flag was set has not seen the flag.
            if self.active.load(SeqCst) == 0 && !self.ended.load(SeqCst) {
                self.runtime.block_on(self.wanted.notified());
            }
            self.is_idle_driven.store(false, SeqCst);
        }
        // Connections are closed in order, so that no data they have sent is lost.
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

/// A call that drives the runtime while it waits.
pub struct Driving {
    shared: Arc<SharedRuntime>,
    /// Whether another call drove the runtime shortly before.
    was_driven: bool,
}

impl Driving {
    fn begin(shared: Arc<SharedRuntime>) -> Self {
        shared.active.fetch_add(1, SeqCst);
        shared.calls.fetch_add(1, SeqCst);
        if shared.is_idle_driven.swap(false, SeqCst) {
            shared.wanted.notify_one();
        }
        let was_driven = shared.was_driven();
        Self { shared, was_driven }
    }

    /// Returns the runtime on which to await the call.
    pub fn runtime(&self) -> &Runtime {
        &self.shared.runtime
    }

    /// Awaits a call after data that arrived earlier was processed, above all the end of the connection.
    pub async fn hear_then<T>(&self, call: impl Future<Output = T>) -> T {
        if !self.was_driven {
            flush().await;
            flush().await;
        }
        call.await
    }

    /// Sends data that is ready, such as the cancellation of a call.
    pub fn flush(&self) {
        self.shared.runtime.block_on(flush());
    }
}

impl Drop for Driving {
    fn drop(&mut self) {
        self.shared.last_end.store(self.shared.made.elapsed().as_nanos() as u64, SeqCst);
        self.shared.active.fetch_sub(1, SeqCst);
    }
}
