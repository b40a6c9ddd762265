//! `reverb._rust.Client`.

use crate::array_in::{self, Layouts, NestSteps};
use crate::draw::Draw;
use crate::endpoint::PyEndpoint;
use crate::errors::{self, PyReverbError, PyReverbResult};
use crate::key_check::{self, KnownKeys, KnownSignatures, LeafOrder, compare_keys, explain};
use crate::nest::has_list;
use crate::priorities::{swapped, table_name, table_priorities};
use crate::runtime::{deadline, runtime, wait, wait_driving};
use crate::sampled_batch::SampledBatch;
use crate::table::limiter_config;
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use reverb_core::{Chunk, Error, ItemKeys, Signature, TableChanges};
use reverb_formats::definitions::info_bytes;
use reverb_net::client::writer::note_drawn;
use reverb_net::client::{
    Checkpoint, Client as CoreClient, Configure, DEFAULT_PENDING_BYTES, Get, Info, Mutate, Newer, Observe, Peek,
    PendingDraw, Reset, Sampled, Started, ToAll, WaitsFor,
};
use reverb_net::status_bytes;
use reverb_net::transport::caller_driven::CallerDrivenRuntime;
use reverb_service::get::Found;
use reverb_service::{BatchRequest, DrawRequest, Priorities, Replay, RowInsert, Transport};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Time that a server has beyond the deadline of an insert to describe its tables.
const INFO_TIME: Duration = Duration::from_secs(2);

/// Places of keys among those that were asked for, and the items of these keys.
type Part<'py> = (Bound<'py, PyArray1<u32>>, SampledBatch);

/// Waits for clients that were dropped: their servers have then processed the receipts of all their batches.
#[pyfunction]
pub fn wait_for_streams(py: Python<'_>, timeout: f64) {
    let limit = Duration::try_from_secs_f64(timeout).unwrap_or_default();
    py.detach(|| reverb_net::client::wait_for_streams(Instant::now() + limit));
}

/// A client of one server.
#[pyclass(frozen, module = "reverb._rust")]
pub struct Client {
    client: CoreClient,
    /// Dropped after the client, whose connection it closes.
    driver: Arc<CallerDrivenRuntime>,
    /// Whether the last batch that was drawn ahead had more bytes than [`LARGE_BATCH`].
    draws_large: Arc<AtomicBool>,
    /// For what goes on while no call waits: its connection lives on the runtime of the process.
    background: Arc<CoreClient>,
    layouts: Layouts,
    /// The structures that were inserted.
    keys: KnownKeys,
    signatures: KnownSignatures,
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (endpoint, max_pending_bytes = DEFAULT_PENDING_BYTES))]
    fn new(py: Python<'_>, endpoint: PyEndpoint, max_pending_bytes: usize) -> PyResult<Self> {
        // Writers may be used in a `__del__` after the interpreter has begun to end.
        errors::prepare(py)?;
        array_in::prepare(py)?;
        key_check::prepare(py)?;
        let client = CoreClient::new(endpoint);
        Ok(Self {
            background: Arc::new(client.beside(max_pending_bytes)),
            client,
            driver: Arc::default(),
            draws_large: Arc::default(),
            layouts: Layouts::default(),
            keys: KnownKeys::default(),
            signatures: KnownSignatures::default(),
        })
    }

    #[getter]
    fn address(&self) -> &str {
        self.client.address()
    }

    /// Notes that this process draws from a table, for the reports of writers that wait.
    fn note_drawn(&self, table: &str) {
        note_drawn(self.client.address(), table);
    }

    #[getter]
    fn road(&self) -> String {
        // Draws ahead may have connected only the other client.
        self.client.road_name().or_else(|| self.background.road_name()).unwrap_or_else(|| "unconnected".into())
    }

    #[getter]
    fn is_remote(&self) -> bool {
        // Draws ahead may have connected only the other client.
        let transport = self.client.transport().or_else(|| self.background.transport());
        transport.is_some_and(|transport| transport != Transport::SameProcess)
    }

    fn insert(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        priorities: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyReverbResult<u64> {
        let insert = || {
            let tables = table_priorities(priorities, 1)?;
            let steps = NestSteps::one(data)?;
            let known = self.known_order(steps.structure, &tables);
            self.insert_steps(py, data, (steps, known), tables, timeout)
        };
        let keys = insert().map_err(|error| self.explain(py, error, data, priorities, false))?;
        Ok(keys[0])
    }

    fn insert_batch<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'_, PyAny>,
        priorities: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyReverbResult<Bound<'py, PyArray1<u64>>> {
        let read = |data| -> PyReverbResult<_> {
            let steps = NestSteps::stacked(data)?;
            let tables = table_priorities(priorities, steps.count())?;
            Ok((steps, tables))
        };
        let (mut data, mut batch) = (data.clone(), read(data));
        let known = batch.as_ref().ok().and_then(|(steps, tables)| self.known_order(steps.structure, tables));
        if known.is_none() {
            let without_lists = self.without_lists(py, &data, priorities, timeout)?;
            if !without_lists.is(&data) {
                batch = read(&without_lists);
                data = without_lists;
            }
        }
        let (steps, tables) = batch.map_err(|error| self.explain(py, error, &data, priorities, true))?;
        // A batch of nothing is checked as far as it goes.
        if steps.count() == 0 {
            return Ok(PyArray1::from_vec(py, Vec::new()));
        }
        let inserted = self.insert_steps(py, &data, (steps, known), tables, timeout);
        let keys = inserted.map_err(|error| self.explain(py, error, &data, priorities, true))?;
        Ok(PyArray1::from_slice(py, &keys))
    }

    #[pyo3(signature = (table, at_least, at_most, ahead, timeout, squeeze_time, reconnect_timeout=None))]
    #[expect(clippy::too_many_arguments, reason = "the Python methods above it have fewer")]
    fn sample(
        &self,
        py: Python<'_>,
        table: String,
        at_least: usize,
        at_most: usize,
        ahead: usize,
        timeout: Option<f64>,
        squeeze_time: bool,
        reconnect_timeout: Option<f64>,
    ) -> PyReverbResult<(SampledBatch, Option<Draw>)> {
        let draw = DrawRequest { at_least, at_most, ahead };
        let request = BatchRequest { table, draw, squeeze_time };
        let deadline = deadline(timeout)?;
        let sample = || match reconnect_timeout {
            None => self.client.sample(&request, deadline),
            Some(seconds) => {
                // Infinity, or more seconds than a Duration can hold, means no limit.
                let reconnect = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
                self.client.sample_persistently(&request, deadline, reconnect)
            }
        };
        let Sampled { batch, draw } = self.call(py, sample)?;
        let draw = draw.map(|draw| {
            let driver = (!draw.is_local()).then(|| self.driver.clone());
            self.draw(draw, driver)
        });
        Ok((SampledBatch::new(py, batch)?, draw))
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
        // What arrives between calls waits in the connection, which has little room.
        let by_caller = by_caller && !self.draws_large.load(Relaxed);
        let client = if by_caller { &self.client } else { &*self.background };
        let pending = match begin(py, client, &request, (deadline, connect_by), at_once)? {
            Started::Done(pending) => return Ok(self.draw(pending?, None)),
            Started::Waiting(WaitsFor::Connection, pending) if by_caller => {
                return Ok(self.draw(wait_driving(py, &self.driver, pending)?, Some(self.driver.clone())));
            }
            Started::Waiting(_, pending) => wait(py, pending)?,
        };
        Ok(self.draw(pending, None))
    }

    fn mutate_priorities(
        &self,
        py: Python<'_>,
        table: &str,
        updates: Vec<(u64, f64)>,
        deletes: Vec<u64>,
        timeout: Option<f64>,
    ) -> PyReverbResult<Option<u64>> {
        self.ask(py, Mutate::new(table, &updates, &deletes), timeout)
    }

    fn update_priorities(
        &self,
        py: Python<'_>,
        table: &str,
        keys: PyReadonlyArray1<'_, u64>,
        priorities: PyReadonlyArray1<'_, f64>,
        timeout: Option<f64>,
    ) -> PyReverbResult<Option<u64>> {
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
        self.ask(py, Mutate::new(table, &updates, &[]), timeout)
    }

    /// Compares the keys of a nest with those of a table's signature. Returns the leaf of each column; nothing if leaves are
    /// matched by position.
    fn check_keys(&self, py: Python<'_>, table: &str, data: &Bound<'_, PyAny>) -> PyReverbResult<Vec<usize>> {
        // Writers use the connection of the background client.
        let tables = wait(py, async { self.background.call(Info, None).await })?;
        let Some(status) = tables.iter().find(|status| status.info.config.name == table) else {
            return Ok(Vec::new());
        };
        let signature = status.info.config.signature.as_deref();
        if let Some(differences) = compare_keys(table, data, signature)? {
            return Err(Error::SignatureMismatch(differences).into());
        }
        let order = signature.map_or(Ok(None), |signature| self.keys.order(None, data, signature))?;
        Ok(order.map_or_else(Vec::new, |order| order.to_vec()))
    }

    /// A `max_bytes` of 0 removes the limit.
    #[expect(clippy::too_many_arguments, reason = "the Python class above it gathers them")]
    fn configure_table(
        &self,
        py: Python<'_>,
        table: &str,
        max_size: Option<u64>,
        max_bytes: Option<u64>,
        max_times_sampled: Option<i32>,
        rate_limiter: Option<(f64, i64, f64, f64)>,
        timeout: Option<f64>,
    ) -> PyReverbResult<()> {
        let changes = TableChanges {
            max_size,
            max_bytes: max_bytes.map(|limit| Some(limit).filter(|&limit| limit > 0)),
            max_times_sampled,
            rate_limiter: rate_limiter.map(limiter_config),
        };
        self.ask(py, Configure { table, changes: &changes }, timeout)
    }

    fn reset(&self, py: Python<'_>, table: &str, timeout: Option<f64>) -> PyReverbResult<()> {
        self.ask(py, Reset { table }, timeout)
    }

    fn checkpoint(&self, py: Python<'_>, timeout: Option<f64>) -> PyReverbResult<String> {
        self.ask(py, Checkpoint, timeout)
    }

    fn peek(
        &self,
        py: Python<'_>,
        table: &str,
        count: u32,
        newest: bool,
        timeout: Option<f64>,
    ) -> PyReverbResult<Vec<SampledBatch>> {
        let items = self.ask(py, Peek { table, count, newest }, timeout)?;
        items.into_iter().map(|item| Ok(SampledBatch::stored(py, item.batch, vec![item.inserted_at])?)).collect()
    }

    /// Reads items by their keys. Of several servers, or of much data, the items come in parts.
    fn get<'py>(
        &self,
        py: Python<'py>,
        table: &str,
        keys: PyReadonlyArray1<'_, u64>,
        columns: Vec<u32>,
        timeout: Option<f64>,
    ) -> PyReverbResult<Vec<Part<'py>>> {
        let keys = keys.as_array().to_vec();
        let found = self.ask(py, Get { table, keys: &keys, columns: &columns }, timeout)?;
        let part = |found: Found| Ok((PyArray1::from_vec(py, found.places), SampledBatch::new(py, found.batch)?));
        found.into_iter().map(part).collect()
    }

    /// Waits until the newest item of a table has another key than `seen`. Returns it as a batch of one.
    fn newer(
        &self,
        py: Python<'_>,
        table: &str,
        seen: Option<u64>,
        timeout: Option<f64>,
    ) -> PyReverbResult<SampledBatch> {
        Ok(SampledBatch::new(py, self.ask(py, Newer { table, seen }, timeout)?)?)
    }

    fn observe<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyReverbResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.ask(py, Observe, timeout)?))
    }

    /// Waits until the servers have processed the receipts of the batches that the program has, for `timeout` seconds at
    /// most.
    fn settle(&self, py: Python<'_>, timeout: f64) -> PyReverbResult<()> {
        let deadline = Instant::now() + Duration::try_from_secs_f64(timeout).unwrap_or_default();
        let settle = async |client: &CoreClient| {
            client.settle(deadline).await;
            Ok(())
        };
        if self.client.is_unsettled() {
            wait_driving(py, &self.driver, settle(&self.client))?;
        }
        if self.background.is_unsettled() {
            wait(py, settle(&self.background))?;
        }
        Ok(())
    }

    fn table_statuses<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyReverbResult<Vec<Bound<'py, PyBytes>>> {
        let tables = self.ask(py, Info, timeout)?;
        Ok(tables.iter().map(|table| PyBytes::new(py, &status_bytes(table))).collect())
    }

    fn server_info<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyReverbResult<Vec<Bound<'py, PyBytes>>> {
        let tables = self.ask(py, Info, timeout)?;
        Ok(tables.iter().map(|table| PyBytes::new(py, &info_bytes(&table.info))).collect())
    }
}

impl Client {
    /// For what goes on while no call waits.
    pub fn background(&self) -> &Arc<CoreClient> {
        &self.background
    }

    /// The service of a server of this process; `None` if the server is elsewhere.
    pub fn local_service(&self) -> Option<Arc<Replay>> {
        self.client.local_service()
    }

    /// Begins a draw from a server of this process, whose batch is copied at once if it can be had; `None` if the
    /// server is elsewhere.
    pub fn begin_locally(&self, py: Python<'_>, request: &BatchRequest) -> PyReverbResult<Option<Draw>> {
        match begin(py, &self.client, request, (None, None), true)? {
            Started::Done(pending) => Ok(Some(self.draw(pending?, None))),
            Started::Waiting(..) => Ok(None),
        }
    }

    fn draw(&self, pending: PendingDraw, driver: Option<Arc<CallerDrivenRuntime>>) -> Draw {
        Draw::new(pending, driver, self.draws_large.clone())
    }

    /// Makes a call, and waits for the rest of it on the runtime on which it goes on.
    fn call<'a, T: Send + 'a>(
        &self,
        py: Python<'_>,
        start: impl FnOnce() -> Started<'a, T> + Send,
    ) -> PyReverbResult<T> {
        // Over a connection nothing is done yet, and the GIL is let go once, to wait.
        let started = if self.client.is_near() { py.detach(start) } else { start() };
        match started {
            Started::Done(result) => Ok(result?),
            Started::Waiting(WaitsFor::ThisProcess, rest) => wait(py, rest),
            Started::Waiting(WaitsFor::Connection, rest) => wait_driving(py, &self.driver, rest),
        }
    }

    /// Makes a call with one request and one answer.
    fn ask<C: ToAll>(&self, py: Python<'_>, call: C, timeout: Option<f64>) -> PyReverbResult<C::Answer> {
        let deadline = deadline(timeout)?;
        self.call(py, || self.client.call(call, deadline))
    }

    /// Inserts steps in the order of leaves that is known for their tables; if none is, keys are compared.
    fn insert_steps(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        (mut steps, known): (NestSteps<'_>, Option<LeafOrder>),
        tables: Vec<(String, Priorities)>,
        timeout: Option<f64>,
    ) -> PyReverbResult<ItemKeys> {
        let deadline = deadline(timeout)?;
        let (structure, is_new) = (steps.structure, known.is_none());
        let order = match known {
            Some(order) => order,
            None => self.new_order(py, data, structure, &tables, deadline)?,
        };
        steps.reorder(&order)?;
        let (chunk, more) = steps.into_chunks(py, &self.layouts)?;
        if is_new {
            for (table, _) in &tables {
                self.check_new_keys(py, data, (&chunk, structure, &order), table, deadline)?;
            }
        }
        let insert = RowInsert { chunk, more, rows_per_item: 1, tables };
        self.call(py, || self.client.insert(insert, deadline))
    }

    /// The order of the leaves of a structure, if its keys have been compared with those of these tables.
    fn known_order(&self, structure: Option<u64>, tables: &[(String, Priorities)]) -> Option<LeafOrder> {
        let (structure, server) = structure.zip(self.client.connection())?;
        self.keys.find(tables.iter().map(|(table, _)| KnownKeys::id(structure, table, server)))
    }

    /// The order of the leaves of a structure that was not compared yet.
    ///
    /// # Errors
    /// [`Error::SignatureMismatch`] if the tables have the leaves in different orders.
    #[cold]
    fn new_order(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        structure: Option<u64>,
        tables: &[(String, Priorities)],
        deadline: Option<Instant>,
    ) -> PyReverbResult<LeafOrder> {
        let mut orders = Vec::with_capacity(tables.len());
        for (table, _) in tables {
            // The insert itself reports a table that does not exist. Without a signature, leaves have no names.
            let Some(signature) = self.signature(py, table, deadline)? else { continue };
            let id = structure.zip(self.client.connection());
            let id = id.map(|(structure, server)| KnownKeys::id(structure, table, server));
            let order = signature.map_or(Ok(None), |signature| self.keys.order(id, data, &signature))?;
            orders.push((table, order));
        }
        let Some((first, order)) = orders.pop() else { return Ok(None) };
        let Some((other, others)) = orders.into_iter().find(|other| other.1 != order) else { return Ok(order) };
        let (named, other) = if order.is_some() { (first, other) } else { (other, first) };
        let is_named = order.is_some() && others.is_some();
        let how = if is_named { "in another order" } else { "by position" };
        Err(Error::SignatureMismatch(format!(
            "table \"{named}\" takes the fields of the data by name, table \"{other}\" {how}: one insert each"
        ))
        .into())
    }

    /// The data of `insert_batch`, with lists of arrays where the signature of its table has arrays of open length as one
    /// `reverb.Ragged` each.
    fn without_lists<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyAny>,
        priorities: &Bound<'py, PyAny>,
        timeout: Option<f64>,
    ) -> PyReverbResult<Bound<'py, PyAny>> {
        if !has_list(data) {
            return Ok(data.clone());
        }
        for table in priorities.try_iter()? {
            if let Some(Some(signature)) = self.signature(py, &table_name(&table?)?, deadline(timeout)?)? {
                return key_check::lists_to_ragged(data, &signature);
            }
        }
        Ok(data.clone())
    }

    /// Compares the keys of a nest with those of the signature that the server has for a table.
    #[cold]
    fn check_new_keys(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        (chunk, structure, order): (&Chunk, Option<u64>, &LeafOrder),
        table: &str,
        deadline: Option<Instant>,
    ) -> PyReverbResult<()> {
        // The insert itself reports a table that does not exist.
        let Some(signature) = self.signature(py, table, deadline)? else { return Ok(()) };
        let signature = signature.as_deref();
        let known = structure.zip(self.client.connection());
        let id = known.map(|(structure, server)| KnownKeys::id(structure, table, server));
        let misfit = || signature.and_then(|signature| signature.check_rows(table, chunk.columns(), 1).err());
        self.keys.check((id, order), table, data, signature, misfit)
    }

    /// The signature of a table, if it has one; `None` if there is no such table.
    fn signature(
        &self,
        py: Python<'_>,
        table: &str,
        deadline: Option<Instant>,
    ) -> PyReverbResult<Option<Option<Arc<Signature>>>> {
        if let Some(server) = self.client.connection()
            && let Some(known) = self.signatures.find(table, server)
        {
            return Ok(Some(known));
        }
        let answer_by = deadline.and_then(|deadline| deadline.checked_add(INFO_TIME));
        let tables = self.call(py, || self.client.call_later(Info, deadline, answer_by))?;
        let server = self.client.connection().unwrap_or_default();
        self.signatures.set(tables, server);
        Ok(self.signatures.find(table, server))
    }

    /// Adds to the error of an insert what the caller probably did wrong.
    #[cold]
    fn explain(
        &self,
        py: Python<'_>,
        error: PyReverbError,
        data: &Bound<'_, PyAny>,
        priorities: &Bound<'_, PyAny>,
        is_batch: bool,
    ) -> PyReverbError {
        let is_of_arguments = match &error {
            PyReverbError::Core(error) => matches!(error, Error::InvalidArgument(_) | Error::SignatureMismatch(_)),
            PyReverbError::Python(error) => error.is_instance_of::<PyTypeError>(py),
        };
        if is_of_arguments && let Some(text) = swapped(data, priorities, is_batch) {
            return Error::invalid(text).into();
        }
        let PyReverbError::Core(error @ Error::SignatureMismatch(_)) = error else { return error };
        let names: Vec<_> = priorities.try_iter().into_iter().flatten().flatten().collect();
        let names = names.iter().filter_map(|name| table_name(name).ok());
        names
            .fold(error, |error, table| match self.signature(py, &table, Some(Instant::now())) {
                Ok(Some(signature)) => explain(error, data, signature.as_deref(), is_batch),
                _ => error,
            })
            .into()
    }
}

/// Begins a draw, which gives up at the first of the two moments, or at the second if there is no connection by then.
fn begin<'a>(
    py: Python<'_>,
    client: &'a CoreClient,
    request: &'a BatchRequest,
    (deadline, connect_by): (Option<Instant>, Option<Instant>),
    at_once: bool,
) -> PyReverbResult<Started<'a, PendingDraw>> {
    let start = || client.begin_sample(request, deadline, connect_by, at_once);
    if !client.is_near() {
        return Ok(start());
    }
    let runtime = runtime()?;
    Ok(py.detach(|| {
        let _context = runtime.1.enter();
        start()
    }))
}
