//! The runtime of the process, and the functions through which every Python call waits.

use crate::errors::PyReverbResult;
use arc_swap::ArcSwapOption;
use pyo3::prelude::*;
use reverb_core::{Error, Result, fork};
use reverb_net::caller_driven::CallerDrivenRuntime;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// How often a waiting call checks for Ctrl-C.
const SIGNAL_PERIOD: Duration = Duration::from_millis(100);
/// The maximum number of threads of the runtime.
const MAX_THREADS: usize = 8;

static RUNTIME: ArcSwapOption<(u32, Runtime)> = ArcSwapOption::const_empty();

/// The runtime of this process. The threads of a runtime do not survive a fork, so a child process makes its own.
pub fn runtime() -> Result<Arc<(u32, Runtime)>> {
    let generation = fork::generation();
    if let Some(current) = &*RUNTIME.load()
        && current.0 == generation
    {
        return Ok(current.clone());
    }
    // The runtime only moves data, and leaves the processors to the programs that make and use the data. With one
    // thread per processor, a thread that takes a request also wakes another one to look for more, and that thread
    // takes the processor of the client: on two processors a short call took half as long again.
    let threads = (std::thread::available_parallelism().map_or(1, usize::from) / 2).clamp(1, MAX_THREADS);
    let made = Builder::new_multi_thread()
        .worker_threads(threads)
        .max_blocking_threads(16)
        .thread_name("reverb")
        .enable_all()
        .build()
        .map_err(|error| Error::Internal(format!("cannot start a runtime: {error}")))?;
    let made = Arc::new((generation, made));
    let seen = RUNTIME.load();
    // Several threads may come here at once. One of them wins; the others drop their runtimes and use that one.
    let before = RUNTIME.compare_and_swap(&seen, Some(made.clone()));
    if before.as_ref().map(Arc::as_ptr) == seen.as_ref().map(Arc::as_ptr) {
        // This is the parent's runtime. Its threads do not exist here, so it must not be shut down.
        std::mem::forget(before.clone());
        return Ok(made);
    }
    runtime()
}

/// Waits for work that this process does itself. Work that needs the network is waited for by [`wait_driving`].
pub fn wait<T: Send>(py: Python<'_>, work: impl Future<Output = Result<T>> + Send) -> PyReverbResult<T> {
    wait_on(py, &runtime()?.1, work)
}

/// Waits for work that needs a connection, and moves its data meanwhile.
pub fn wait_driving<T: Send>(
    py: Python<'_>,
    driver: &CallerDrivenRuntime,
    work: impl Future<Output = Result<T>> + Send,
) -> PyReverbResult<T> {
    let driving = driver.drive()?;
    let result = wait_on(py, driving.runtime(), driving.hear_then(work));
    if result.is_err() {
        // Tells the server that the call was withdrawn.
        py.detach(|| driving.flush());
    }
    result
}

/// Waits for `work` without the GIL, and reacts to Ctrl-C. Interrupted work is dropped, which withdraws it.
pub fn wait_on<T: Send>(
    py: Python<'_>,
    runtime: &Runtime,
    work: impl Future<Output = Result<T>> + Send,
) -> PyReverbResult<T> {
    let mut work = std::pin::pin!(work);
    loop {
        let turn = py.detach(|| {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    result = work.as_mut() => Some(result),
                    () = tokio::time::sleep(SIGNAL_PERIOD) => None,
                }
            })
        });
        match turn {
            Some(result) => return Ok(result?),
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
