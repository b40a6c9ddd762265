//! `reverb._rust.Client`.

use crate::array_in::{Layouts, batch_chunk, step_chunk};
use crate::array_out::{Sampled, to_python};
use crate::draw::Draw;
use crate::errors::PyReverbResult;
use crate::lane::{Lane, flush};
use crate::runtime::{deadline, runtime, wait};
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArray1};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyMapping, PyString};
use reverb_core::{Chunk, Error, Result};
use reverb_transport::client::{
    BatchRequest, Client as CoreClient, PendingDraw, RowInsert, begin_insert, gather, info_bytes, sample_copied,
    status_bytes, warn,
};
use reverb_transport::{Call, DrawRequest, Replay, wait_for_inserts};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// A client of one server.
#[pyclass(frozen, module = "reverb._rust")]
pub struct Client {
    address: String,
    client: CoreClient,
    /// Dropped after the client, whose connection it closes.
    lane: Arc<Lane>,
    /// Whether the last batch that was drawn ahead had more bytes than [`LARGE_BATCH`].
    draws_large: Arc<AtomicBool>,
    /// For what goes on while no call waits: its connection lives on the runtime of the process.
    background: Arc<CoreClient>,
    layouts: Layouts,
}

#[pymethods]
impl Client {
    #[new]
    fn new(address: String) -> Self {
        Self {
            client: CoreClient::new(&address),
            lane: Arc::default(),
            draws_large: Arc::default(),
            background: Arc::new(CoreClient::new(&address)),
            address,
            layouts: Layouts::default(),
        }
    }

    #[getter]
    fn address(&self) -> &str {
        &self.address
    }

    #[getter]
    fn road(&self) -> &'static str {
        match self.client.road_name() {
            // Draws that were begun may have gone by the other client only.
            "unconnected" => self.background.road_name(),
            road => road,
        }
    }

    fn insert(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        priorities: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyReverbResult<()> {
        let tables = table_priorities(priorities, 1)?;
        let chunk = step_chunk(data, &self.layouts)?;
        self.insert_rows(py, chunk, tables, timeout)
    }

    fn insert_batch(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        priorities: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyReverbResult<()> {
        match batch_chunk(data, &self.layouts)? {
            Some(chunk) => {
                let tables = table_priorities(priorities, chunk.rows() as usize)?;
                self.insert_rows(py, chunk, tables, timeout)
            }
            // A batch of nothing is checked as far as it goes.
            None => table_priorities(priorities, 0).map(drop),
        }
    }

    #[pyo3(signature = (table, at_least, at_most, ahead, timeout, squeeze_time))]
    #[expect(clippy::too_many_arguments, reason = "the Python methods above it have fewer")]
    fn sample<'py>(
        &self,
        py: Python<'py>,
        table: String,
        at_least: usize,
        at_most: usize,
        ahead: usize,
        timeout: Option<f64>,
        squeeze_time: bool,
    ) -> PyReverbResult<Sampled<'py>> {
        let draw = DrawRequest { at_least, at_most, ahead };
        let request = BatchRequest { table, draw, squeeze_time };
        let deadline = deadline(timeout)?;
        // In the same process, a draw that need not wait is done on this thread.
        let batch = match self.client.same_process() {
            None => {
                let sample = async {
                    let batch = self.client.sample(&request, deadline).await?;
                    if !batch.receipt_may_wait {
                        flush().await;
                    }
                    Ok(batch)
                };
                self.lane.wait(py, sample)?
            }
            Some(replay) => {
                let table = replay.table(&request.table)?;
                let call = py.detach(|| match sample_copied(table, &request, None) {
                    Some(batch) => Ok(Ok(batch)),
                    None => match table.sample(draw) {
                        Call::Done(drawn) => Ok(drawn.and_then(|drawn| gather(table, drawn, &request))),
                        Call::Waiting(waiting) => Err(waiting),
                    },
                });
                match call {
                    Ok(batch) => batch?,
                    Err(waiting) => {
                        let drawn = wait(py, waiting.result(deadline, warn))?;
                        py.detach(|| gather(table, drawn, &request))?
                    }
                }
            }
        };
        Ok(to_python(py, batch)?)
    }

    #[pyo3(signature = (table, counts, timeout, squeeze_time, connect_timeout=None, by_caller=false, at_once=false))]
    #[expect(clippy::too_many_arguments, reason = "the Python methods above it have fewer")]
    fn begin_sample(
        &self,
        py: Python<'_>,
        table: String,
        counts: (usize, usize),
        timeout: Option<f64>,
        squeeze_time: bool,
        connect_timeout: Option<f64>,
        by_caller: bool,
        at_once: bool,
    ) -> PyReverbResult<Draw> {
        let (at_least, at_most) = counts;
        let request = BatchRequest { table, draw: DrawRequest { at_least, at_most, ahead: 0 }, squeeze_time };
        let (deadline, connect_by) = (deadline(timeout)?, deadline(connect_timeout)?);
        let pending = match self.client.same_process() {
            Some(replay) => return self.begin_locally(py, &replay, &request, deadline, at_once),
            // What comes between calls waits in the connection, which has not room for much.
            None if by_caller && !self.draws_large.load(Relaxed) => {
                let begin = async {
                    let pending = self.client.begin_sample(&request, deadline, connect_by).await?;
                    flush().await;
                    Ok(pending)
                };
                let pending = self.lane.wait(py, begin)?;
                return Ok(Draw::new(pending, Some(self.lane.clone()), self.draws_large.clone()));
            }
            None => wait(py, self.background.begin_sample(&request, deadline, connect_by))?,
        };
        Ok(Draw::new(pending, None, self.draws_large.clone()))
    }

    fn mutate_priorities(
        &self,
        py: Python<'_>,
        table: &str,
        updates: Vec<(u64, f64)>,
        deletes: Vec<u64>,
        timeout: Option<f64>,
    ) -> PyReverbResult<()> {
        self.mutate(py, table, &updates, &deletes, timeout)
    }

    fn update_priorities(
        &self,
        py: Python<'_>,
        table: &str,
        keys: PyReadonlyArray1<'_, u64>,
        priorities: PyReadonlyArray1<'_, f64>,
        timeout: Option<f64>,
    ) -> PyReverbResult<()> {
        let (keys, priorities) = (keys.as_array(), priorities.as_array());
        if keys.len() != priorities.len() {
            return Err(Error::invalid(format!(
                "expected as many priorities as keys, got {} keys and {} priorities",
                keys.len(),
                priorities.len()
            ))
            .into());
        }
        let updates: Vec<_> = keys.iter().copied().zip(priorities.iter().copied()).collect();
        self.mutate(py, table, &updates, &[], timeout)
    }

    fn reset(&self, py: Python<'_>, table: &str, timeout: Option<f64>) -> PyReverbResult<()> {
        self.wait(py, self.client.reset(table, deadline(timeout)?))
    }

    fn checkpoint(&self, py: Python<'_>, timeout: Option<f64>) -> PyReverbResult<String> {
        self.wait(py, self.client.checkpoint(deadline(timeout)?))
    }

    fn peek<'py>(
        &self,
        py: Python<'py>,
        table: &str,
        count: u32,
        newest: bool,
        timeout: Option<f64>,
    ) -> PyReverbResult<Vec<(Sampled<'py>, u64)>> {
        let items = self.wait(py, self.client.peek(table, count, newest, deadline(timeout)?))?;
        items.into_iter().map(|item| Ok((to_python(py, item.batch)?, item.inserted_at))).collect()
    }

    fn table_statuses<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyReverbResult<Vec<Bound<'py, PyBytes>>> {
        let tables = self.wait(py, self.client.info(deadline(timeout)?))?;
        Ok(tables.iter().map(|table| PyBytes::new(py, &status_bytes(table))).collect())
    }

    fn server_info<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyReverbResult<Vec<(Bound<'py, PyBytes>, u64)>> {
        let tables = self.wait(py, self.client.info(deadline(timeout)?))?;
        Ok(tables.iter().map(|table| (PyBytes::new(py, &info_bytes(table)), table.undelivered_samples)).collect())
    }
}

impl Client {
    /// For what goes on while no call waits.
    pub fn background(&self) -> &Arc<CoreClient> {
        &self.background
    }

    /// The server, if it is in this process.
    pub fn same_process(&self) -> Option<Arc<Replay>> {
        self.client.same_process()
    }

    /// Begins a draw from a server of this process; see [`PendingDraw::local`].
    pub fn begin_locally(
        &self,
        py: Python<'_>,
        replay: &Replay,
        request: &BatchRequest,
        deadline: Option<Instant>,
        at_once: bool,
    ) -> PyReverbResult<Draw> {
        let runtime = runtime()?;
        let pending = py.detach(|| {
            let _context = runtime.1.enter();
            PendingDraw::local(replay, request, deadline, at_once)
        })?;
        Ok(Draw::new(pending, None, self.draws_large.clone()))
    }

    /// Waits for a call on whichever road it goes.
    fn wait<T: Send>(&self, py: Python<'_>, call: impl Future<Output = Result<T>> + Send) -> PyReverbResult<T> {
        match self.client.same_process() {
            Some(_) => wait(py, call),
            None => self.lane.wait(py, call),
        }
    }

    fn insert_rows(
        &self,
        py: Python<'_>,
        chunk: Chunk,
        tables: Vec<(String, Vec<f64>)>,
        timeout: Option<f64>,
    ) -> PyReverbResult<()> {
        let insert = RowInsert { chunk: Arc::new(chunk), rows_per_item: 1, tables };
        let deadline = deadline(timeout)?;
        // In the same process, an insert that need not wait is done on this thread.
        let Some(replay) = self.client.same_process() else {
            return self.lane.wait(py, self.client.insert(insert, deadline));
        };
        let calls = py.detach(|| begin_insert(&replay, &insert))?;
        if calls.iter().all(|call| matches!(call, Call::Done(Ok(())))) {
            return Ok(());
        }
        wait(py, wait_for_inserts(calls, deadline, warn))
    }

    fn mutate(
        &self,
        py: Python<'_>,
        table: &str,
        updates: &[(u64, f64)],
        deletes: &[u64],
        timeout: Option<f64>,
    ) -> PyReverbResult<()> {
        match self.client.same_process() {
            Some(replay) => Ok(py.detach(|| replay.table(table)?.mutate(updates, deletes))?),
            None => self.lane.wait(py, self.client.mutate(table, updates, deletes, deadline(timeout)?)),
        }
    }
}

/// The tables of an insert, each with one priority for all rows or one for each.
fn table_priorities(priorities: &Bound<'_, PyAny>, rows: usize) -> PyReverbResult<Vec<(String, Vec<f64>)>> {
    let mut tables = Vec::with_capacity(1);
    let mut add = |table: Bound<'_, PyAny>, value: Bound<'_, PyAny>| -> PyReverbResult<()> {
        let table = table_name(&table)?;
        let values = priority_values(&table, &value, rows)?;
        tables.push((table, values));
        Ok(())
    };
    if let Ok(dict) = priorities.cast_exact::<PyDict>() {
        dict.iter().try_for_each(|(table, value)| add(table, value))?;
    } else {
        let mapping = priorities.cast::<PyMapping>().map_err(|_| {
            let kind = priorities.get_type();
            PyTypeError::new_err(format!("priorities: expected a dict of priorities by table, got {kind}"))
        })?;
        for pair in mapping.items()?.iter() {
            let (table, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
            add(table, value)?;
        }
    }
    if tables.is_empty() {
        return Err(Error::invalid("priorities must contain at least one item").into());
    }
    Ok(tables)
}

fn table_name(name: &Bound<'_, PyAny>) -> PyReverbResult<String> {
    if let Ok(name) = name.cast::<PyString>() {
        return Ok(name.to_cow()?.into_owned());
    }
    if let Ok(name) = name.cast::<PyBytes>() {
        return Ok(String::from_utf8_lossy(name.as_bytes()).into_owned());
    }
    Err(PyTypeError::new_err(format!("priorities: expected names of tables, got {}", name.get_type())).into())
}

fn priority_values(table: &str, value: &Bound<'_, PyAny>, rows: usize) -> PyReverbResult<Vec<f64>> {
    if let Ok(number) = value.cast_exact::<PyFloat>() {
        return Ok(vec![number.value()]);
    }
    if let Ok(array) = value.cast_exact::<PyArray1<f64>>()
        && array.len()? == rows
    {
        return Ok(array.to_owned_array().to_vec());
    }
    let py = value.py();
    let numpy = py.import("numpy")?;
    let array = numpy.call_method1("asarray", (value, "float64")).map_err(|error| {
        let kind = value.get_type();
        PyTypeError::new_err(format!("priorities of table `{table}`: expected numbers, got {kind} ({error})"))
    })?;
    let shape: Vec<usize> = array.getattr("shape")?.extract()?;
    let flat = array.call_method0("ravel")?;
    let flat = flat.cast::<PyArray1<f64>>()?.to_owned_array().to_vec();
    if shape.len() > 1 && flat.len() != 1 || flat.len() != 1 && flat.len() != rows {
        return Err(Error::invalid(format!(
            "priorities of table `{table}`: expected one number or an array of shape [{rows}], got shape {shape:?}"
        ))
        .into());
    }
    Ok(flat)
}
