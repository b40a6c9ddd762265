//! `reverb._rust.LocalDraws`.

use super::clock::StatsClock;
use crate::array_out::InfoMemory;
use crate::batch_maker::BatchMaker;
use crate::client::Client;
use crate::draw::Draw;
use crate::errors::PyReverbResult;
use crate::without_gil::without_gil_unless;
use parking_lot::Mutex;
use pyo3::prelude::*;
use reverb_core::gather::BatchLayout;
use reverb_service::local::sample_copied;
use reverb_service::{Batch, BatchRequest, DrawRequest};
use std::sync::Arc;
use std::time::Instant;

/// Draws batches of one table of a server of this process, on the thread that asks for one.
#[pyclass(frozen, module = "reverb._rust")]
pub struct LocalDraws {
    source: Source,
    open: Mutex<Option<Open>>,
}

/// The table, and how it is sampled.
struct Source {
    client: Py<Client>,
    request: BatchRequest,
    batch_size: usize,
    takes_all: bool,
    clock: Py<StatsClock>,
    /// The layout of the last batch, which the next one is likely to have.
    layout: Mutex<Option<BatchLayout>>,
}

struct Open {
    plan: Arc<Plan>,
    /// Batches that may still be drawn.
    left: u64,
    /// Batches that were drawn.
    drawn: u64,
    /// A draw that must be waited for, which is not done here.
    pending: Option<Draw>,
}

/// How the batches are made.
struct Plan {
    maker: Py<BatchMaker>,
    beta: Option<Py<PyAny>>,
}

#[pymethods]
impl LocalDraws {
    #[new]
    #[pyo3(signature = (*, client, table, batch_size, squeeze_time, takes_all, clock))]
    fn new(
        client: Py<Client>,
        table: String,
        batch_size: usize,
        squeeze_time: bool,
        takes_all: bool,
        clock: Py<StatsClock>,
    ) -> Self {
        let request = BatchRequest { table, draw: DrawRequest::exactly(batch_size), squeeze_time };
        let source = Source { client, request, batch_size, takes_all, clock, layout: Mutex::default() };
        Self { source, open: Mutex::new(None) }
    }

    #[pyo3(signature = (maker, *, beta, left))]
    fn open(&self, maker: Py<BatchMaker>, beta: Option<Py<PyAny>>, left: Option<u64>) {
        let plan = Arc::new(Plan { maker, beta });
        let open = Open { plan, left: left.unwrap_or(u64::MAX), drawn: 0, pending: None };
        // The state before is dropped after the lock is released.
        let before = self.open.lock().replace(open);
        drop(before);
    }

    fn close(&self) -> (u64, Option<Draw>) {
        let open = self.open.lock().take();
        open.map_or((0, None), |open| (open.drawn, open.pending))
    }
}

impl LocalDraws {
    /// A batch as a loader gives it; `None` if that would need a wait, or if no batch is left.
    pub fn take<'py>(&self, py: Python<'py>) -> PyReverbResult<Option<Bound<'py, PyAny>>> {
        let Some(plan) = self.begin() else { return Ok(None) };
        let (pending, result) = match self.source.take(py, &plan) {
            Ok(Taken::Batch(batch)) => return Ok(Some(batch)),
            Ok(Taken::Pending(draw)) => (Some(*draw), Ok(None)),
            Ok(Taken::Nothing) => (None, Ok(None)),
            Err(error) => (None, Err(error)),
        };
        self.end(&plan, pending);
        result
    }

    /// Counts a batch before it is drawn, since other threads may ask for one meanwhile.
    fn begin(&self) -> Option<Arc<Plan>> {
        let mut open = self.open.lock();
        let open = open.as_mut().filter(|open| open.pending.is_none())?;
        open.left = open.left.checked_sub(1)?;
        open.drawn += 1;
        Some(open.plan.clone())
    }

    /// Undoes `begin` where there was no batch. The samples of a draw that is not kept go back to the table.
    fn end(&self, plan: &Arc<Plan>, pending: Option<Draw>) {
        if let Some(open) = self.open.lock().as_mut()
            && Arc::ptr_eq(&open.plan, plan)
        {
            open.left += 1;
            open.drawn -= 1;
            if open.pending.is_none() {
                open.pending = pending;
            }
        }
    }
}

/// The outcome of a draw.
enum Taken<'py> {
    Batch(Bound<'py, PyAny>),
    /// It must be waited for.
    Pending(Box<Draw>),
    /// The server is not in this process, or the table has another signature.
    Nothing,
}

impl Source {
    fn take<'py>(&self, py: Python<'py>, plan: &Plan) -> PyReverbResult<Taken<'py>> {
        let asked = Instant::now();
        let (maker, clock, request) = (plan.maker.get(), self.clock.get(), &self.request);
        // The function belongs to the caller and may raise, which must happen before anything is drawn.
        let beta = match &plan.beta {
            Some(beta) => Some(beta.bind(py).call1((clock.batches(),))?.extract::<f64>()?),
            None => None,
        };
        let client = self.client.get();
        let Some(replay) = client.local_service() else { return Ok(Taken::Nothing) };
        let table = replay.table(&request.table)?;
        if table.signature_token() != maker.signature_token {
            return Ok(Taken::Nothing);
        }
        // A batch that the conversion cannot refuse needs no lease.
        let copied = match self.takes_all {
            true => {
                let used = self.layout.lock().take();
                without_gil_unless(py, table.is_quiet(), || sample_copied(&replay, table, request, used))
            }
            false => None,
        };
        let (batch, draw) = match copied {
            Some(batch) => (batch, None),
            None => {
                let Some(draw) = client.begin_locally(py, request)? else { return Ok(Taken::Nothing) };
                let Some(batch) = draw.try_result()? else { return Ok(Taken::Pending(Box::new(draw))) };
                (batch, Some(draw))
            }
        };
        let arrived = Instant::now();
        let Batch { info, layout, buffer, .. } = batch;
        let infos = Bound::new(py, InfoMemory(info))?;
        // If this fails, the draw is dropped, and its samples go back to the table.
        let batch = maker.batch_of(&infos, &layout, &Arc::new(buffer), beta, None)?;
        // The server may have been stopped meanwhile, which the caller handles.
        if draw.is_some_and(|draw| draw.received(py, false).is_err()) {
            return Ok(Taken::Nothing);
        }
        *self.layout.lock() = Some(layout);
        clock.at_once(asked, arrived, self.batch_size);
        Ok(Taken::Batch(batch))
    }
}
