//! `reverb._rust.Client`.

use crate::array_in;
use crate::closing::Closing;
use crate::draw::Draw;
use crate::endpoint::PyEndpoint;
use crate::errors::{self, PyReverbResult};
use crate::inserts::{Inserts, Purpose, Target};
use crate::key_check::{self, KnownKeys, compare_keys};
use crate::runtime::{deadline, runtime, wait, wait_driving};
use crate::sampled_batch::SampledBatch;
use crate::table::limiter_config;
use crate::without_gil::{BRIEF_BYTES, BRIEF_ITEMS, without_gil, without_gil_unless};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use reverb_core::{Error, ItemKeys, TableChanges};
use reverb_formats::definitions::info_bytes;
use reverb_net::client::writer::note_drawn;
use reverb_net::client::{
    Checkpoint, Client as CoreClient, ClusterCounts, Configure, DEFAULT_PENDING_BYTES, Get, Info, Mutate, Newer,
    Observe, Peek, PendingDraw, Reset, Sampled, Started, ToAll, WaitsFor,
};
use reverb_net::status_bytes;
use reverb_net::transport::caller_driven::CallerDrivenRuntime;
use reverb_service::get::Found;
use reverb_service::{BatchRequest, DrawRequest, Replay, RowInsert, TableStatus, Transport};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Time that a server has beyond the deadline of an insert to describe its tables.
const INFO_TIME: Duration = Duration::from_secs(2);

/// Places of keys among those that were asked for, and the items of these keys.
pub type Part<'py> = (Bound<'py, PyArray1<u32>>, SampledBatch);

/// The id of a shard, if it was ever reached, its address, and its description, if it answers.
type ListedShard<'py> = (Option<u32>, String, Option<Bound<'py, PyBytes>>);

/// Converts what was found for keys.
pub fn parts(py: Python<'_>, found: Vec<Found>) -> PyReverbResult<Vec<Part<'_>>> {
    let part = |found: Found| Ok((PyArray1::from_vec(py, found.places), SampledBatch::new(py, found.batch)?));
    found.into_iter().map(part).collect()
}

/// Waits for clients that were dropped: their servers have then processed the receipts of all their batches.
#[pyfunction]
pub fn wait_for_streams(py: Python<'_>, timeout: f64) {
    let limit = Duration::try_from_secs_f64(timeout).unwrap_or_default();
    without_gil(py, || reverb_net::client::wait_for_streams(Instant::now() + limit));
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
    inserts: Inserts,
    closing: Arc<Closing>,
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
            inserts: Inserts::default(),
            closing: Arc::default(),
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
        let deadline = deadline(timeout)?;
        let send = |rows| self.send(py, rows, deadline);
        self.with_target(py, deadline, |to| Ok(self.inserts.one(to, data, priorities, send)?[0]))
    }

    fn insert_batch<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'_, PyAny>,
        priorities: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyReverbResult<Bound<'py, PyArray1<u64>>> {
        let deadline = deadline(timeout)?;
        let send = |rows| self.send(py, rows, deadline);
        let keys = self.with_target(py, deadline, |to| self.inserts.batch(to, data, priorities, send))?;
        Ok(keys.map_or_else(|| PyArray1::from_vec(py, Vec::new()), |keys| PyArray1::from_slice(py, &keys)))
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
        let draw = DrawRequest { at_least, at_most, ahead, is_ahead: false };
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
        // With the GIL; see `without_gil.rs`.
        let at_once = if self.closing.is_closed() { None } else { self.client.sample_at_once(&request) };
        let Sampled { batch, draw } = at_once.map_or_else(|| self.call(py, false, sample), Ok)?;
        let draw = draw.map(|draw| {
            let driver = (!draw.is_local()).then(|| self.driver.clone());
            self.draw(draw, driver)
        });
        Ok((SampledBatch::new(py, batch)?, draw))
    }

    #[pyo3(signature = (table, counts, timeout, squeeze_time, connect_timeout=None, by_caller=false, at_once=false, is_ahead=false))]
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
        is_ahead: bool,
    ) -> PyReverbResult<Draw> {
        self.closing.check(py)?;
        let (at_least, at_most) = counts;
        let draw = DrawRequest { at_least, at_most, ahead: 0, is_ahead };
        let request = BatchRequest { table, draw, squeeze_time };
        let (deadline, connect_by) = (deadline(timeout)?, deadline(connect_timeout)?);
        // What arrives between calls waits in the connection, which has little room.
        let by_caller = by_caller && !self.draws_large.load(Relaxed);
        let client = if by_caller { &self.client } else { &*self.background };
        let pending = match begin(py, client, &request, (deadline, connect_by), at_once)? {
            Started::Done(pending) => return Ok(self.draw(pending?, None)),
            Started::Waiting(WaitsFor::Connection, pending) if by_caller => {
                let pending = wait_driving(py, &self.driver, self.closing.or(pending))?;
                return Ok(self.draw(pending, Some(self.driver.clone())));
            }
            Started::Waiting(_, pending) => wait(py, self.closing.or(pending))?,
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
        // What is deleted may be large, and then takes long to free.
        let is_brief = deletes.is_empty() && updates.len() <= BRIEF_ITEMS;
        self.ask_briefly(py, is_brief, Mutate::new(table, &updates, &deletes), timeout)
    }

    fn update_priorities(
        &self,
        py: Python<'_>,
        table: &str,
        keys: PyReadonlyArray1<'_, u64>,
        priorities: PyReadonlyArray1<'_, f64>,
        timeout: Option<f64>,
    ) -> PyReverbResult<Option<u64>> {
        let updates = pairs(&keys, &priorities)?;
        self.ask_briefly(py, updates.len() <= BRIEF_ITEMS, Mutate::new(table, &updates, &[]), timeout)
    }

    /// Compares the keys of a nest with those of a table's signature. Returns the leaf of each column; nothing if leaves are
    /// matched by position.
    fn check_keys(&self, py: Python<'_>, table: &str, data: &Bound<'_, PyAny>) -> PyReverbResult<Vec<usize>> {
        // Writers use the connection of the background client.
        leaf_order(&wait(py, async { self.background.call(Info, None).await })?, table, data)
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
        parts(py, self.ask(py, Get { table, keys: &keys, columns: &columns }, timeout)?)
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

    /// The id, the address and the description of each shard of a cluster. A missing shard has no description.
    fn shards<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyReverbResult<Vec<ListedShard<'py>>> {
        let deadline = deadline(timeout)?;
        let shards = wait_driving(py, &self.driver, self.closing.or(self.client.shards(deadline)))?;
        let listed = shards.into_iter().map(|shard| {
            let observed = match shard.observed {
                Ok(json) => Some(PyBytes::new(py, &json)),
                Err(error) if error.is_transient() || error.is_for_good() => None,
                Err(error) => return Err(error.into()),
            };
            Ok((shard.id, shard.address.to_string(), observed))
        });
        listed.collect()
    }

    /// Takes the shards that an endpoint lists beyond those of this client.
    fn add_shards(&self, py: Python<'_>, endpoint: PyEndpoint) -> PyReverbResult<()> {
        self.client.add_shards(&endpoint.into())?;
        let tried = async |client: &CoreClient| {
            client.try_shards().await;
            Ok(())
        };
        wait_driving(py, &self.driver, self.closing.or(tried(&self.client)))?;
        wait(py, self.closing.or(tried(&self.background)))
    }

    /// The rounds and spare arrivals of all draws from a cluster, the missing and the slow shards, and the number of keys
    /// that were passed over.
    fn cluster_counts(&self) -> (u64, u64, Vec<String>, Vec<String>, u64) {
        let both = [&self.client, &*self.background].map(|client| client.cluster_counts().unwrap_or_default());
        let all = |of: fn(&ClusterCounts) -> &[Arc<str>]| {
            let all: BTreeSet<_> = both.iter().flat_map(of).map(|peer| peer.to_string()).collect();
            all.into_iter().collect()
        };
        let sum = |of: fn(&ClusterCounts) -> u64| both.iter().map(of).sum();
        let (rounds, spare) = (sum(|counts| counts.rounds), sum(|counts| counts.spare_arrivals));
        let (missing, slow) = (all(|counts| &counts.missing), all(|counts| &counts.slow));
        (rounds, spare, missing, slow, self.client.keys_passed_over())
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

    /// Ends the client: waits as `settle` does, then closes its connections. Calls of other threads that wait are
    /// withdrawn, and later ones refused. Writers that are open go on.
    fn close(&self, py: Python<'_>, timeout: f64) -> PyReverbResult<()> {
        if !self.closing.close() {
            return Ok(());
        }
        let settled = self.settle(py, timeout);
        self.disconnect(py)?;
        settled
    }

    /// As `close` for calls of `Calls`, which settles itself.
    fn disconnect(&self, py: Python<'_>) -> PyReverbResult<()> {
        self.closing.close();
        let is_driven = self.client.transport().is_some_and(|transport| transport != Transport::SameProcess);
        without_gil(py, || {
            self.client.disconnect();
            self.background.disconnect();
            // Tells the server at once that the connection has ended.
            if is_driven { self.driver.drive().map(|driving| driving.flush()) } else { Ok(()) }
        })?;
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

    /// Says whether the client was closed.
    pub fn closing(&self) -> &Arc<Closing> {
        &self.closing
    }

    /// The service of a server of this process; `None` if the server is elsewhere.
    pub fn local_service(&self) -> Option<Arc<Replay>> {
        // What a closed client does not do here fails elsewhere.
        if self.closing.is_closed() { None } else { self.client.local_service() }
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

    /// Makes a call, and waits for the rest of it on the runtime on which it goes on. `is_brief` tells whether little is to
    /// be done until then.
    fn call<'a, T: Send + 'a>(
        &self,
        py: Python<'_>,
        is_brief: bool,
        start: impl FnOnce() -> Started<'a, T> + Send,
    ) -> PyReverbResult<T> {
        self.closing.check(py)?;
        // Over a connection nothing is done yet, and the GIL is let go once, to wait.
        let has_gil = !self.client.is_near() || (is_brief && self.client.is_quiet());
        let started = without_gil_unless(py, has_gil, start);
        match started {
            Started::Done(result) => Ok(result?),
            Started::Waiting(WaitsFor::ThisProcess, rest) => wait(py, self.closing.or(rest)),
            Started::Waiting(WaitsFor::Connection, rest) => wait_driving(py, &self.driver, self.closing.or(rest)),
        }
    }

    /// Makes a call with one request and one answer.
    fn ask<C: ToAll>(&self, py: Python<'_>, call: C, timeout: Option<f64>) -> PyReverbResult<C::Answer> {
        self.ask_briefly(py, false, call, timeout)
    }

    /// As `ask`, with what [`Client::call`] is told.
    fn ask_briefly<C: ToAll>(
        &self,
        py: Python<'_>,
        is_brief: bool,
        call: C,
        timeout: Option<f64>,
    ) -> PyReverbResult<C::Answer> {
        let deadline = deadline(timeout)?;
        self.call(py, is_brief, || self.client.call(call, deadline))
    }

    /// Calls `insert` with the server of an insert, which the calling thread asks for its tables.
    fn with_target<T>(
        &self,
        py: Python<'_>,
        deadline: Option<Instant>,
        insert: impl FnOnce(&Target<'_>) -> PyReverbResult<T>,
    ) -> PyReverbResult<T> {
        let ask = |purpose| {
            let deadline = if purpose == Purpose::Insert { deadline } else { Some(Instant::now()) };
            let answer_by = deadline.and_then(|deadline| deadline.checked_add(INFO_TIME));
            self.call(py, false, || self.client.call_later(Info, deadline, answer_by))
        };
        insert(&Target { connection: &|| self.client.connection(), memory: &|| self.client.chunk_memory(), ask: &ask })
    }

    /// Inserts rows, and waits until they are in their tables.
    fn send(&self, py: Python<'_>, rows: RowInsert, deadline: Option<Instant>) -> PyReverbResult<ItemKeys> {
        let is_brief = rows.num_items() as usize <= BRIEF_ITEMS && rows.decoded_bytes() <= BRIEF_BYTES as u64;
        self.call(py, is_brief, || self.client.insert(rows, deadline))
    }
}

/// Compares the keys of a nest with those of the signature of one of these tables. Returns the leaf of each column;
/// nothing if leaves are matched by position.
///
/// # Errors
/// [`Error::SignatureMismatch`] if keys are missing or unknown.
pub fn leaf_order(tables: &[TableStatus], table: &str, data: &Bound<'_, PyAny>) -> PyReverbResult<Vec<usize>> {
    let Some(status) = tables.iter().find(|status| status.info.config.name == table) else {
        return Ok(Vec::new());
    };
    let signature = status.info.config.signature.as_deref();
    if let Some(differences) = compare_keys(table, data, signature)? {
        return Err(Error::SignatureMismatch(differences).into());
    }
    let order = signature.map_or(Ok(None), |signature| KnownKeys::default().order(None, data, signature))?;
    Ok(order.map_or_else(Vec::new, |order| order.to_vec()))
}

/// Pairs keys with their priorities.
///
/// # Errors
/// [`Error::InvalidArgument`] if their numbers differ.
pub fn pairs(
    keys: &PyReadonlyArray1<'_, u64>,
    priorities: &PyReadonlyArray1<'_, f64>,
) -> PyReverbResult<Vec<(u64, f64)>> {
    let (keys, priorities) = (keys.as_array(), priorities.as_array());
    if keys.len() != priorities.len() {
        return Err(Error::invalid(format!(
            "expected as many priorities as keys, got {} keys and {} priorities",
            keys.len(),
            priorities.len()
        ))
        .into());
    }
    Ok(keys.iter().copied().zip(priorities.iter().copied()).collect())
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
    // With the GIL; see `without_gil.rs`.
    if let Some(pending) = client.begin_at_once(request) {
        return Ok(Started::Done(Ok(pending)));
    }
    let runtime = runtime()?;
    Ok(without_gil(py, || {
        let _context = runtime.1.enter();
        start()
    }))
}
