//! `reverb._rust.Draw`.

use crate::aio::call::Call;
use crate::errors::PyReverbResult;
use crate::runtime::{runtime, wait, wait_driving};
use crate::sampled_batch::SampledBatch;
use crate::without_gil::{BRIEF_ITEMS, without_gil, without_gil_unless};
use parking_lot::Mutex;
use pyo3::prelude::*;
use reverb_core::{Error, Result};
use reverb_net::client::PendingDraw;
use reverb_net::transport::caller_driven::{CallerDrivenRuntime, flush};
use reverb_service::Batch;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The size of a batch, in bytes, that a connection can hold while nobody reads it.
const LARGE_BATCH: usize = 512 << 10;

/// A draw in progress. Its samples count as undelivered until `received` is called. If it never is, they go back to
/// their table.
#[pyclass(frozen, module = "reverb._rust")]
pub struct Draw {
    state: Arc<State>,
    /// Seconds that the draw waited for its table, and seconds that it took in all. Zero before the batch has arrived.
    times: Mutex<(f64, f64)>,
    /// The runtime that moves its data, if the waiting thread drives that.
    driver: Option<Arc<CallerDrivenRuntime>>,
    /// Set to whether the batch was large. All draws of a client share it.
    is_large: Arc<AtomicBool>,
}

/// What a draw shares with the task that waits for its batch.
struct State {
    pending: Mutex<Option<PendingDraw>>,
    /// The result, if it was awaited by [`Draw::arrival`].
    arrived: Mutex<Option<Result<Batch>>>,
}

impl State {
    /// Waits for the batch, and keeps it. Ends at once if the draw has ended.
    fn poll_arrival(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut pending = self.pending.lock();
        let mut arrived = self.arrived.lock();
        if let (Some(pending), None) = (pending.as_mut(), &*arrived) {
            // The future may be dropped, since another one goes on.
            let result = std::task::ready!(std::pin::pin!(pending.result()).poll(context));
            *arrived = Some(result);
        }
        Poll::Ready(())
    }
}

impl Draw {
    pub fn new(pending: PendingDraw, driver: Option<Arc<CallerDrivenRuntime>>, is_large: Arc<AtomicBool>) -> Self {
        let state = State { pending: Mutex::new(Some(pending)), arrived: Mutex::default() };
        Self { state: Arc::new(state), times: Mutex::new((0.0, 0.0)), driver, is_large }
    }

    /// The batch, if it has arrived. It is returned once.
    pub fn try_result(&self) -> Result<Option<Batch>> {
        let mut pending = self.take()?;
        let result = pending.try_result().transpose();
        if let Ok(Some(batch)) = &result {
            self.note(batch, pending.begun);
        }
        *self.state.pending.lock() = Some(pending);
        result
    }

    /// Records the times and the size of a batch that has arrived, before it is given to Python.
    fn note(&self, batch: &Batch, begun: Instant) {
        let total = batch.arrived.saturating_duration_since(begun);
        self.is_large.store(batch.buffer.len() > LARGE_BATCH, Relaxed);
        *self.times.lock() = (batch.waited.min(total).as_secs_f64(), total.as_secs_f64());
    }

    fn take(&self) -> Result<PendingDraw> {
        let over = || Error::Cancelled("the draw has ended, or another thread is waiting for it".into());
        self.state.pending.lock().take().ok_or_else(over)
    }
}

#[pymethods]
impl Draw {
    /// The batch, or None if it is not here after `timeout` seconds.
    fn result(&self, py: Python<'_>, timeout: Option<f64>) -> PyReverbResult<Option<SampledBatch>> {
        let mut pending = self.take()?;
        let arrived = self.state.arrived.lock().take();
        let result = match arrived.or_else(|| pending.try_result()) {
            Some(result) => Some(result.map_err(Into::into)),
            None => match &self.driver {
                Some(driver) => wait_driving(py, driver, wait_for(&mut pending, timeout)),
                None => wait(py, wait_for(&mut pending, timeout)),
            }
            .transpose(),
        };
        if let Some(Ok(batch)) = &result {
            self.note(batch, pending.begun);
        }
        *self.state.pending.lock() = Some(pending);
        match result.transpose()? {
            Some(batch) => Ok(Some(SampledBatch::new(py, batch)?)),
            None => Ok(None),
        }
    }

    fn is_ready(&self) -> bool {
        self.state.pending.lock().as_ref().is_some_and(PendingDraw::is_ready) || self.state.arrived.lock().is_some()
    }

    /// A call that ends when `result` would return at once, or after `timeout` seconds. Nothing is lost if it is
    /// withdrawn.
    fn arrival(&self, timeout: Option<f64>) -> PyReverbResult<Call> {
        if self.driver.is_some() {
            return Err(Error::Internal("the thread that waits for this draw reads its connection".into()).into());
        }
        let state = self.state.clone();
        let arrives = std::future::poll_fn(move |context| state.poll_arrival(context));
        let arrived = async move {
            let limit = timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            let _late = tokio::time::timeout(limit.unwrap_or(Duration::MAX), arrives).await;
            Ok(())
        };
        Call::spawn(arrived, |py, arrived| Ok(arrived.map(|()| py.None())?))
    }

    #[pyo3(signature = (waits = false))]
    pub fn received(&self, py: Python<'_>, waits: bool) -> PyReverbResult<()> {
        let Some(mut pending) = self.state.pending.lock().take() else { return Ok(()) };
        // The receipt of a draw from elsewhere leaves some time after this. The GIL is kept until then, because another
        // thread could keep it for longer before the caller has the batch.
        let has_gil = !pending.is_local() || pending.is_brief(BRIEF_ITEMS);
        let received = without_gil_unless(py, has_gil, || pending.received(waits));
        *self.state.pending.lock() = Some(pending);
        Ok(received?)
    }

    fn is_lost(&self) -> bool {
        self.state.pending.lock().as_ref().is_some_and(PendingDraw::is_lost)
    }

    pub fn give_back(&self, py: Python<'_>) -> PyReverbResult<()> {
        let Some(pending) = self.state.pending.lock().take() else { return Ok(()) };
        if let Some(driver) = &self.driver {
            return wait_driving(py, driver, async {
                pending.give_back().await;
                flush().await;
                Ok(())
            });
        }
        let runtime = runtime()?;
        without_gil(py, || runtime.1.block_on(pending.give_back()));
        Ok(())
    }

    fn times(&self) -> (f64, f64) {
        *self.times.lock()
    }
}

async fn wait_for(pending: &mut PendingDraw, timeout: Option<f64>) -> Result<Option<Batch>> {
    let Some(limit) = timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) else {
        return pending.result().await.map(Some);
    };
    match tokio::time::timeout(limit, pending.result()).await {
        Ok(result) => result.map(Some),
        Err(_) => Ok(None),
    }
}
