//! `reverb._rust.DrawsHere`.

use super::StatsClock;
use crate::array_out::{columns_to_python, columns_to_tensors, infos, weights};
use crate::client::Client;
use crate::dlpack::TensorMaker;
use crate::draw::Draw;
use crate::errors::PyReverbResult;
use parking_lot::Mutex;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};
use reverb_core::gather::{BatchColumn, BatchLayout};
use reverb_transport::DrawRequest;
use reverb_transport::client::{Batch, BatchRequest, sample_copied};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

static SAMPLE_INFO: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static BATCH: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// Batches of one table of a server of this process, drawn by the thread that asks for one.
#[pyclass(frozen, module = "reverb._rust")]
pub struct DrawsHere {
    clock: Py<StatsClock>,
    open: Mutex<Option<Open>>,
}

struct Open {
    way: Arc<Way>,
    /// Batches that may be drawn.
    left: u64,
    /// Batches that were.
    drawn: u64,
    /// One that must be waited for, which is not done here.
    pending: Option<Draw>,
}

/// `reverb.loaders.here.Plan`, which says what the fields are.
#[derive(FromPyObject)]
struct Plan {
    client: Py<Client>,
    table: String,
    batch_size: usize,
    token: u64,
    squeeze_time: bool,
    takes_all: bool,
    maker: Option<Py<TensorMaker>>,
    to_leaves: Option<Py<PyAny>>,
    columns: Option<Vec<usize>>,
    names: Py<PyList>,
    keys: Option<Vec<(Py<PyAny>, usize)>>,
    pack: Option<Py<PyAny>>,
    beta: Option<Py<PyAny>>,
    convert: Option<Py<PyAny>>,
}

/// A plan and what is asked of its table.
struct Way {
    plan: Plan,
    request: BatchRequest,
    /// Of the last batch: the next one is likely to have the same.
    layout: Mutex<Option<BatchLayout>>,
}

#[pymethods]
impl DrawsHere {
    #[new]
    fn new(clock: Py<StatsClock>) -> Self {
        Self { clock, open: Mutex::new(None) }
    }

    fn open(&self, plan: Plan, left: Option<u64>) {
        let draw = DrawRequest::exactly(plan.batch_size);
        let request = BatchRequest { table: plan.table.clone(), draw, squeeze_time: plan.squeeze_time };
        let open = Open {
            way: Arc::new(Way { plan, request, layout: Mutex::default() }),
            left: left.unwrap_or(u64::MAX),
            drawn: 0,
            pending: None,
        };
        // What was open is dropped without the lock.
        let before = self.open.lock().replace(open);
        drop(before);
    }

    fn close(&self) -> (u64, Option<Draw>) {
        let open = self.open.lock().take();
        open.map_or((0, None), |open| (open.drawn, open.pending))
    }
}

impl DrawsHere {
    /// A batch as a loader gives it; none if that cannot be had without waiting, or there is to be none.
    pub fn take<'py>(&self, py: Python<'py>) -> PyReverbResult<Option<Bound<'py, PyAny>>> {
        let Some(way) = self.begin() else { return Ok(None) };
        let (pending, result) = match way.take(py, self.clock.get()) {
            Ok(Taken::Batch(batch)) => return Ok(Some(batch)),
            Ok(Taken::Pending(draw)) => (Some(*draw), Ok(None)),
            Ok(Taken::Nothing) => (None, Ok(None)),
            Err(error) => (None, Err(error)),
        };
        self.end(&way, pending);
        result
    }

    /// Counts a batch before it is drawn, since other threads may ask meanwhile.
    fn begin(&self) -> Option<Arc<Way>> {
        let mut open = self.open.lock();
        let open = open.as_mut().filter(|open| open.pending.is_none())?;
        open.left = open.left.checked_sub(1)?;
        open.drawn += 1;
        Some(open.way.clone())
    }

    /// There was no batch. A draw that nobody takes over goes back.
    fn end(&self, way: &Arc<Way>, pending: Option<Draw>) {
        if let Some(open) = self.open.lock().as_mut()
            && Arc::ptr_eq(&open.way, way)
        {
            open.left += 1;
            open.drawn -= 1;
            if open.pending.is_none() {
                open.pending = pending;
            }
        }
    }
}

/// What came of a draw.
enum Taken<'py> {
    Batch(Bound<'py, PyAny>),
    /// It must be waited for.
    Pending(Box<Draw>),
    /// The server is elsewhere, or the table's signature is another one.
    Nothing,
}

impl Way {
    fn take<'py>(&self, py: Python<'py>, clock: &StatsClock) -> PyReverbResult<Taken<'py>> {
        let Self { plan, request, .. } = self;
        let asked = Instant::now();
        // A function of the caller's may raise, and must do that before anything is drawn.
        let beta = match &plan.beta {
            Some(beta) => Some(beta.bind(py).call1((clock.batches(),))?.extract::<f64>()?),
            None => None,
        };
        let client = plan.client.get();
        let Some(replay) = client.same_process() else { return Ok(Taken::Nothing) };
        let table = replay.table(&request.table)?;
        if table.signature_token() != plan.token {
            return Ok(Taken::Nothing);
        }
        // What the conversion cannot refuse does without a lease.
        let copied = match plan.takes_all {
            true => {
                let used = self.layout.lock().take();
                py.detach(|| sample_copied(table, request, used))
            }
            false => None,
        };
        let (batch, draw) = match copied {
            Some(batch) => (batch, None),
            None => {
                let draw = client.begin_locally(py, &replay, request, None, true)?;
                let Some(batch) = draw.try_result()? else { return Ok(Taken::Pending(Box::new(draw))) };
                (batch, Some(draw))
            }
        };
        let arrived = Instant::now();
        // A draw that is not received goes back.
        let (batch, layout) = plan.make(py, batch, beta)?;
        if let Some(draw) = draw {
            draw.received(py)?;
        }
        *self.layout.lock() = Some(layout);
        clock.at_once(asked, arrived, plan.batch_size);
        Ok(Taken::Batch(batch))
    }
}

impl Plan {
    /// What a loader gives, and the layout it had.
    fn make<'py>(
        &self,
        py: Python<'py>,
        batch: Batch,
        beta: Option<f64>,
    ) -> PyResult<(Bound<'py, PyAny>, BatchLayout)> {
        let Batch { info, layout, buffer, .. } = batch;
        let columns = self.chosen(&layout);
        let num_columns = columns.len();
        let (leaves, are_made) = match &self.maker {
            Some(maker) => columns_to_tensors(py, &columns, buffer, maker.get())?,
            None => (columns_to_python(py, &columns, buffer)?, false),
        };
        let leaves = match &self.to_leaves {
            Some(to_leaves) if !are_made => {
                let leaves = to_leaves.bind(py).call1((leaves, self.names(py, num_columns)?))?;
                leaves.try_iter()?.collect::<PyResult<_>>()?
            }
            _ => leaves,
        };
        let data = self.nest(py, leaves)?;
        let weights = match beta {
            Some(beta) => weights(py, &info, beta).into_any(),
            None => py.None().into_bound(py),
        };
        let none = || py.None().into_bound(py);
        let info = named(&SAMPLE_INFO, ("reverb.replay_sample", "SampleInfo"), infos(py, info)?)?;
        let fields = PyTuple::new(py, [info, data, weights, none(), none()])?;
        let batch = named(&BATCH, ("reverb.loaders.batch", "Batch"), fields)?;
        let batch = match &self.convert {
            Some(convert) => convert.bind(py).call1((batch,))?,
            None => batch,
        };
        Ok((batch, layout))
    }

    fn nest<'py>(&self, py: Python<'py>, leaves: Vec<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(keys) = &self.keys {
            let data = PyDict::new(py);
            for (key, leaf) in keys {
                data.set_item(key, &leaves[*leaf])?;
            }
            return Ok(data.into_any());
        }
        let leaves = PyList::new(py, leaves)?;
        match &self.pack {
            Some(pack) => pack.bind(py).call1((leaves,)),
            None => Ok(leaves.into_any()),
        }
    }

    fn chosen<'a>(&self, layout: &'a BatchLayout) -> Cow<'a, [BatchColumn]> {
        match &self.columns {
            Some(numbers) => numbers.iter().map(|&number| layout.columns[number].clone()).collect(),
            None => Cow::Borrowed(&layout.columns),
        }
    }

    /// Without a signature a batch may have another number of columns than the one that the plan was made for.
    fn names<'py>(&self, py: Python<'py>, num_columns: usize) -> PyResult<Bound<'py, PyList>> {
        let names = self.names.bind(py);
        match names.len() == num_columns {
            true => Ok(names.clone()),
            false => PyList::new(py, (0..num_columns).map(|number| number.to_string())),
        }
    }
}

/// Makes a named tuple as `tuple.__new__` does, without its own constructor, which is written in Python.
fn named<'py>(
    class: &'static PyOnceLock<Py<PyType>>,
    (module, name): (&str, &str),
    values: Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = values.py();
    let class = class.import(py, module, name)?;
    let arguments = PyTuple::new(py, [values])?;
    // SAFETY: the slot of `tuple` is there and is a `newfunc`, which may be called for subclasses that add nothing to the
    // layout, as named tuples are; it returns a new reference, or null with an exception set.
    unsafe {
        let slot = ffi::PyType_GetSlot(&raw mut ffi::PyTuple_Type, ffi::Py_tp_new);
        let new: ffi::newfunc = std::mem::transmute(slot);
        let tuple = new(class.as_ptr().cast(), arguments.as_ptr(), std::ptr::null_mut());
        Bound::from_owned_ptr_or_err(py, tuple)
    }
}
