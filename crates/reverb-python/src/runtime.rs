//! The runtime of servers, and the one door through which Python waits.

use crate::errors::PyReverbResult;
use arc_swap::ArcSwapOption;
use pyo3::prelude::*;
use reverb_core::{Error, Result, fork};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// How often a waiting call looks for Ctrl-C.
const SIGNAL_PERIOD: Duration = Duration::from_millis(100);
/// Threads of the runtime at most.
const MAX_THREADS: usize = 8;

static RUNTIME: ArcSwapOption<(u32, Runtime)> = ArcSwapOption::const_empty();

/// The runtime of this process. One that was made before a fork is dead in the child, and replaced there.
pub fn runtime() -> Result<Arc<(u32, Runtime)>> {
    let generation = fork::generation();
    if let Some(current) = &*RUNTIME.load()
        && current.0 == generation
    {
        return Ok(current.clone());
    }
    // It only moves data, and leaves the processors to the programs that make and use them. With a thread for each
    // processor, one that takes a request up also wakes another to look for more, where that one takes the processor of
    // the client: on two processors a short call took half as long again.
    let threads = (std::thread::available_parallelism().map_or(1, usize::from) / 2).clamp(1, MAX_THREADS);
    let made = Builder::new_multi_thread()
        .worker_threads(threads)
        .max_blocking_threads(16)
        .thread_name("reverb")
        .enable_all()
        .build()
        .map_err(|error| Error::Internal(format!("no runtime can be made: {error}")))?;
    let made = Arc::new((generation, made));
    let seen = RUNTIME.load();
    // Threads may come here together; all but one find the winner's and drop their own.
    let before = RUNTIME.compare_and_swap(&seen, Some(made.clone()));
    if before.as_ref().map(Arc::as_ptr) == seen.as_ref().map(Arc::as_ptr) {
        // The parent's runtime: its threads are not here, so it must not be shut down.
        std::mem::forget(before.clone());
        return Ok(made);
    }
    runtime()
}

/// Waits for what this process itself will do. What must come over a network is waited for in a [`crate::lane::Lane`].
pub fn wait<T: Send>(py: Python<'_>, work: impl Future<Output = Result<T>> + Send) -> PyReverbResult<T> {
    wait_on(py, &runtime()?.1, work)
}

/// Waits for `work` without the GIL, and hears Ctrl-C. Work that is interrupted is dropped, which withdraws it.
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

/// The moment at which a call with this timeout, in seconds, gives up.
pub fn deadline(timeout: Option<f64>) -> Result<Option<Instant>> {
    let Some(timeout) = timeout else { return Ok(None) };
    if timeout.is_nan() || timeout < 0.0 {
        return Err(Error::invalid(format!("timeout must be None or a number of seconds >= 0, got {timeout}")));
    }
    // What does not fit (years) is no deadline.
    Ok(Duration::try_from_secs_f64(timeout).ok().and_then(|timeout| Instant::now().checked_add(timeout)))
}
