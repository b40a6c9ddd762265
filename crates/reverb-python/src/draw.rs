//! `reverb._rust.Draw`.

use crate::array_out::{Sampled, to_python};
use crate::errors::PyReverbResult;
use crate::lane::{Lane, flush};
use crate::runtime::{runtime, wait};
use parking_lot::Mutex;
use pyo3::prelude::*;
use reverb_core::{Error, Result};
use reverb_transport::client::{Batch, PendingDraw};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Bytes of a batch that the connection holds while nobody reads it.
const LARGE_BATCH: usize = 512 << 10;

/// A draw under way. Its samples count as undelivered until `received`, and go back to their table if that never comes.
#[pyclass(frozen, module = "reverb._rust")]
pub struct Draw {
    pending: Mutex<Option<PendingDraw>>,
    /// Seconds that the draw waited for its table, and that it took in all; known with the batch.
    times: Mutex<(f64, f64)>,
    /// What moves its data, if that is whoever waits for it.
    lane: Option<Arc<Lane>>,
    /// Where it notes whether the batch was large.
    is_large: Arc<AtomicBool>,
    /// Whether the server needs to hear soon that the batch is received.
    receipt_is_urgent: AtomicBool,
}

impl Draw {
    pub fn new(pending: PendingDraw, lane: Option<Arc<Lane>>, is_large: Arc<AtomicBool>) -> Self {
        Self {
            pending: Mutex::new(Some(pending)),
            times: Mutex::new((0.0, 0.0)),
            lane,
            is_large,
            receipt_is_urgent: AtomicBool::new(false),
        }
    }

    /// The batch, if it is here already. It can be had once.
    pub fn try_result(&self) -> Result<Option<Batch>> {
        let mut pending = self.take()?;
        let result = pending.try_result().transpose();
        if let Ok(Some(batch)) = &result {
            self.note(batch, pending.begun);
        }
        *self.pending.lock() = Some(pending);
        result
    }

    /// What is to be known of a batch that has come, when it is Python's.
    fn note(&self, batch: &Batch, begun: Instant) {
        let total = batch.arrived.saturating_duration_since(begun);
        self.is_large.store(batch.buffer.len() > LARGE_BATCH, Relaxed);
        self.receipt_is_urgent.store(!batch.receipt_may_wait, Relaxed);
        *self.times.lock() = (batch.waited.min(total).as_secs_f64(), total.as_secs_f64());
    }

    fn take(&self) -> Result<PendingDraw> {
        let over = || Error::Cancelled("the draw is over, or another thread waits for it".into());
        self.pending.lock().take().ok_or_else(over)
    }
}

#[pymethods]
impl Draw {
    /// The batch, or None if it is not here after `timeout` seconds.
    fn result<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyReverbResult<Option<Sampled<'py>>> {
        let mut pending = self.take()?;
        let result = match pending.try_result() {
            Some(result) => Some(result.map_err(Into::into)),
            None => match &self.lane {
                Some(lane) => lane.wait(py, wait_for(&mut pending, timeout)),
                None => wait(py, wait_for(&mut pending, timeout)),
            }
            .transpose(),
        };
        if let Some(Ok(batch)) = &result {
            self.note(batch, pending.begun);
        }
        *self.pending.lock() = Some(pending);
        match result.transpose()? {
            Some(batch) => Ok(Some(to_python(py, batch)?)),
            None => Ok(None),
        }
    }

    fn is_ready(&self) -> bool {
        self.pending.lock().as_ref().is_some_and(PendingDraw::is_ready)
    }

    pub fn received(&self, py: Python<'_>) -> PyReverbResult<()> {
        if let Some(mut pending) = self.pending.lock().take() {
            pending.received();
        }
        match &self.lane {
            Some(lane) if self.receipt_is_urgent.load(Relaxed) => lane.wait(py, async {
                flush().await;
                Ok(())
            }),
            _ => Ok(()),
        }
    }

    fn give_back(&self, py: Python<'_>) -> PyReverbResult<()> {
        let Some(pending) = self.pending.lock().take() else { return Ok(()) };
        if let Some(lane) = &self.lane {
            return lane.wait(py, async {
                pending.give_back().await;
                flush().await;
                Ok(())
            });
        }
        let runtime = runtime()?;
        py.detach(|| runtime.1.block_on(pending.give_back()));
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
