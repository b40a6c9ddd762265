//! A runtime that is driven by the threads that wait for calls, and by its own thread between calls.
//!
//! With separate runtime threads, each call would wake one of them and be woken by it, which is half of the cost of a
//! short call. So connections can live on a single-threaded runtime, driven by the thread that waits for a call. If
//! several threads wait, one of them drives the runtime for all, and hands it to the next when its own call is done.
//!
//! Between calls, pings must still be answered and a lost connection noticed. The idle driver, a thread of the process,
//! drives the runtimes of all clients when no call has begun for a while, and leaves one when its next call begins.

use super::driven_runtime::DrivenRuntime;
use super::idle_driver::IdleDriver;
use arc_swap::ArcSwapOption;
use reverb_core::{Error, Result, fork};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// A call that begins within this time after the last one does not first process the data that arrived in between.
const MOMENT: Duration = Duration::from_millis(1);

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
    runtime: Arc<DrivenRuntime>,
    idle_driver: Arc<IdleDriver>,
}

impl CallerDrivenRuntime {
    /// Begins to drive the runtime for one call.
    ///
    /// # Errors
    /// [`Error::Internal`] if the runtime cannot be made.
    pub fn drive(&self) -> Result<Driving> {
        Ok(Driving::begin(&*self.running()?))
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
        // The old runtime belongs to the parent process, and must not be shut down here.
        std::mem::forget(before.clone());
        Ok(made)
    }
}

impl Running {
    fn start() -> Result<Self> {
        let failed = |error: std::io::Error| Error::Internal(format!("cannot start a runtime: {error}"));
        let runtime = Arc::new(DrivenRuntime::new().map_err(failed)?);
        let idle_driver = IdleDriver::of_this_process().map_err(failed)?;
        idle_driver.add(runtime.clone());
        Ok(Self { generation: fork::generation(), runtime, idle_driver })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            // The runtime belongs to the parent process, whose idle driver still uses it. It must not be ended here.
            return;
        }
        self.runtime.end();
        self.idle_driver.wake_after(Duration::MAX);
    }
}

/// A call that drives the runtime while it waits.
pub struct Driving {
    runtime: Arc<DrivenRuntime>,
    /// Whether another call drove the runtime shortly before.
    was_driven: bool,
}

impl Driving {
    fn begin(running: &Running) -> Self {
        let runtime = running.runtime.clone();
        let idle_time = runtime.idle_time();
        runtime.begin_call();
        running.idle_driver.wake_after(idle_time);
        Self { runtime, was_driven: idle_time < MOMENT }
    }

    /// Returns the runtime on which to await the call.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime.runtime
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
        self.runtime().block_on(flush());
    }
}

impl Drop for Driving {
    fn drop(&mut self) {
        self.runtime.end_call();
    }
}
