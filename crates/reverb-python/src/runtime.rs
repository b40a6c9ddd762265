//! The runtime of the process, and the functions through which every Python call waits.

use crate::errors::PyReverbResult;
use crate::without_gil::without_gil;
use arc_swap::ArcSwapOption;
use pyo3::prelude::*;
use reverb_core::{Error, Result, fork};
use reverb_net::transport::caller_driven::CallerDrivenRuntime;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// How often a waiting call checks for Ctrl-C.
const SIGNAL_PERIOD: Duration = Duration::from_millis(100);
// limit (Processes): threads that serve | half the processors, from one to {}; one more for HTTP |
/// The maximum number of threads of the runtime.
const MAX_THREADS: usize = 8;

static RUNTIME: OfProcess = OfProcess::new(|| {
    // Half of the processors, because the runtime only moves data and leaves the others to the programs that make and
    // use it. With one thread for each, a thread that takes a request also wakes another one to look for more, which
    // takes the processor of the client: on two processors a short call took half as long again.
    let threads = (std::thread::available_parallelism().map_or(1, usize::from) / 2).clamp(1, MAX_THREADS);
    build("reverb", threads, 16)
});
/// Serves HTTP, so that no request there delays one of gRPC, and none of gRPC an answer about health.
static HTTP_RUNTIME: OfProcess = OfProcess::new(|| build("reverb-http", 1, 8));

fn build(name: &str, threads: usize, blocking_threads: usize) -> std::io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(threads)
        .max_blocking_threads(blocking_threads)
        .thread_name(name)
        .enable_all()
        .build()
}

/// A runtime and the process to which it belongs, as a number of forks.
type Made = Arc<(u32, Runtime)>;

/// The runtime of this process. The threads of a runtime do not survive a fork, so a child process makes its own.
pub fn runtime() -> Result<Made> {
    RUNTIME.get()
}

/// The runtime on which the servers of this process serve HTTP.
pub fn http_runtime() -> Result<Made> {
    HTTP_RUNTIME.get()
}

/// A runtime that each process makes when it first needs it.
struct OfProcess {
    current: ArcSwapOption<(u32, Runtime)>,
    make: fn() -> std::io::Result<Runtime>,
}

impl OfProcess {
    const fn new(make: fn() -> std::io::Result<Runtime>) -> Self {
        Self { current: ArcSwapOption::const_empty(), make }
    }

    fn get(&self) -> Result<Made> {
        let generation = fork::generation();
        if let Some(current) = &*self.current.load()
            && current.0 == generation
        {
            return Ok(current.clone());
        }
        let made = (self.make)().map_err(|error| Error::Internal(format!("cannot start a runtime: {error}")))?;
        let made = Arc::new((generation, made));
        let seen = self.current.load();
        // Several threads may get here at once. One of them wins; the others drop their runtimes and use that one.
        let before = self.current.compare_and_swap(&seen, Some(made.clone()));
        if before.as_ref().map(Arc::as_ptr) == seen.as_ref().map(Arc::as_ptr) {
            // This is the parent's runtime. Its threads do not exist here, so it must not be shut down.
            std::mem::forget(before.clone());
            return Ok(made);
        }
        self.get()
    }
}

/// Waits for work that this process does itself. Work that needs the network is waited for by [`wait_driving`].
pub fn wait<T: Send>(py: Python<'_>, work: impl Future<Output = Result<T>> + Send) -> PyReverbResult<T> {
    let runtime = runtime()?;
    let mut work = std::pin::pin!(work);
    wait_in_turns(py, || runtime.1.block_on(turn(work.as_mut())))
}

/// Waits for work that needs a connection, and moves its data meanwhile.
///
/// A thread stops driving the runtime before it waits for the GIL, which another thread may hold for long. The idle
/// driver then answers the pings of the server.
pub fn wait_driving<T: Send>(
    py: Python<'_>,
    driver: &CallerDrivenRuntime,
    work: impl Future<Output = Result<T>> + Send,
) -> PyReverbResult<T> {
    let result = {
        let mut work = std::pin::pin!(work);
        wait_in_turns(py, || {
            let driving = driver.drive()?;
            driving.runtime().block_on(driving.hear_then(turn(work.as_mut())))
        })
    };
    if result.is_err() {
        // Tells the server that the call was withdrawn.
        without_gil(py, || driver.drive().map(|driving| driving.flush()))?;
    }
    result
}

/// A turn of a wait: the result of the work, or an interruption to look for Ctrl-C.
async fn turn<T>(work: impl Future<Output = Result<T>>) -> Result<Option<T>> {
    tokio::select! {
        biased;
        result = work => result.map(Some),
        () = tokio::time::sleep(SIGNAL_PERIOD) => Ok(None),
    }
}

/// Waits without the GIL, turn by turn, and reacts to Ctrl-C between two of them.
fn wait_in_turns<T: Send>(py: Python<'_>, mut turn: impl FnMut() -> Result<Option<T>> + Send) -> PyReverbResult<T> {
    loop {
        match without_gil(py, &mut turn)? {
            Some(result) => return Ok(result),
            None => py.check_signals()?,
        }
    }
}

/// The moment at which a call with this timeout, in seconds, fails.
pub fn deadline(timeout: Option<f64>) -> Result<Option<Instant>> {
    let Some(timeout) = timeout else { return Ok(None) };
    if timeout.is_nan() || timeout < 0.0 {
        return Err(Error::invalid(format!("timeout must be None or a number of seconds >= 0, got {timeout}")));
    }
    // A timeout too long for an `Instant` (many years) is treated as no deadline.
    Ok(Duration::try_from_secs_f64(timeout).ok().and_then(|timeout| Instant::now().checked_add(timeout)))
}
