//! `reverb._rust.Calls`: begins the calls of a client for an event loop.

use super::call::Call;
use crate::client::{Client, leaf_order, pairs, parts};
use crate::closing::Closing;
use crate::draw::Draw;
use crate::errors::{PyReverbError, PyReverbResult};
use crate::inserts::{Inserts, Target};
use crate::runtime::deadline;
use crate::sampled_batch::SampledBatch;
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use reverb_core::{Error, Result, Signature};
use reverb_net::client::{Client as CoreClient, Get, Info, Mutate, Newer, Sampled};
use reverb_net::status_bytes;
use reverb_service::{BatchRequest, DrawRequest, RowInsert, TableStatus};
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The tables of a server.
#[pyclass(frozen, module = "reverb._rust")]
pub struct Tables(Vec<TableStatus>);

#[pymethods]
impl Tables {
    fn names(&self) -> Vec<&str> {
        self.0.iter().map(|table| table.info.config.name.as_str()).collect()
    }

    /// The status of one table as bytes.
    fn status<'py>(&self, py: Python<'py>, table: &str) -> PyReverbResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &status_bytes(self.find(table)?)))
    }

    /// See `Client::check_keys`.
    fn check_keys(&self, table: &str, data: &Bound<'_, PyAny>) -> PyReverbResult<Vec<usize>> {
        leaf_order(&self.0, table, data)
    }
}

impl Tables {
    /// The signature of a table, if it has one.
    ///
    /// # Errors
    /// [`Error::TableNotFound`].
    pub fn signature(&self, table: &str) -> Result<Option<Arc<Signature>>> {
        Ok(self.find(table)?.info.config.signature.clone())
    }

    fn find(&self, table: &str) -> Result<&TableStatus> {
        let found = self.0.iter().find(|status| status.info.config.name == table);
        found.ok_or_else(|| Error::TableNotFound { table: table.into(), known: self.names().join(", ") })
    }
}

/// The calls of a client. Each begins at once on the runtime of the process, and no method waits.
#[pyclass(frozen, module = "reverb._rust")]
pub struct Calls {
    client: Arc<CoreClient>,
    inserts: Arc<Inserts>,
    closing: Arc<Closing>,
}

#[pymethods]
impl Calls {
    #[new]
    fn new(client: &Client) -> Self {
        let (background, closing) = (client.background().clone(), client.closing().clone());
        Self { client: background, inserts: Arc::default(), closing }
    }

    /// Begins an insert. Returns `None` if that needs the tables of the server, which the caller then asks for.
    #[pyo3(signature = (data, priorities, timeout, tables=None))]
    fn insert(
        &self,
        data: &Bound<'_, PyAny>,
        priorities: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        tables: Option<&Tables>,
    ) -> PyReverbResult<Option<Call>> {
        let deadline = deadline(timeout)?;
        let send = |rows| self.send(rows, deadline, (data, priorities, false));
        self.with_target(tables, |to| self.inserts.one(to, data, priorities, send))
    }

    /// Begins an insert of many rows as `insert` does.
    #[pyo3(signature = (data, priorities, timeout, tables=None))]
    fn insert_batch(
        &self,
        data: &Bound<'_, PyAny>,
        priorities: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        tables: Option<&Tables>,
    ) -> PyReverbResult<Option<Call>> {
        let deadline = deadline(timeout)?;
        let send = |rows| self.send(rows, deadline, (data, priorities, true));
        let insert = |to: &Target<'_>| self.inserts.batch(to, data, priorities, send);
        self.with_target(tables, |to| Ok(insert(to)?.unwrap_or_else(Call::no_keys)))
    }

    fn sample(
        &self,
        py: Python<'_>,
        table: String,
        size: usize,
        timeout: Option<f64>,
        squeeze_time: bool,
    ) -> PyReverbResult<Call> {
        let request = BatchRequest { table, draw: DrawRequest::exactly(size), squeeze_time };
        let (client, deadline) = (self.client.clone(), deadline(timeout)?);
        let sampled = async move { client.sample(&request, deadline).await };
        self.spawn(py, sampled, |py, sampled| {
            let Sampled { batch, draw } = sampled?;
            let draw = draw.map(|draw| Draw::new(draw, None, Arc::default()));
            Ok((SampledBatch::new(py, batch)?, draw).into_py_any(py)?)
        })
    }

    /// Begins a draw, whose result is a `Draw`. Waits for a connection, but not for the items.
    #[expect(clippy::too_many_arguments, reason = "the Python methods above it have fewer")]
    fn begin_sample(
        &self,
        py: Python<'_>,
        table: String,
        size: usize,
        timeout: Option<f64>,
        squeeze_time: bool,
        connect_timeout: Option<f64>,
        is_ahead: bool,
    ) -> PyReverbResult<Call> {
        let draw = DrawRequest { is_ahead, ..DrawRequest::exactly(size) };
        let request = BatchRequest { table, draw, squeeze_time };
        let (client, deadline, connect_by) = (self.client.clone(), deadline(timeout)?, deadline(connect_timeout)?);
        let begun = async move { client.begin_sample(&request, deadline, connect_by, false).await };
        self.spawn(py, begun, |py, draw| Ok(Py::new(py, Draw::new(draw?, None, Arc::default()))?.into_any()))
    }

    fn mutate_priorities(
        &self,
        py: Python<'_>,
        table: String,
        updates: Vec<(u64, f64)>,
        deletes: Vec<u64>,
        timeout: Option<f64>,
    ) -> PyReverbResult<Call> {
        let (client, deadline) = (self.client.clone(), deadline(timeout)?);
        let changed = async move { client.call(Mutate::new(&table, &updates, &deletes), deadline).await };
        self.spawn(py, changed, |py, changed| Ok(changed?.into_py_any(py)?))
    }

    fn update_priorities(
        &self,
        py: Python<'_>,
        table: String,
        keys: PyReadonlyArray1<'_, u64>,
        priorities: PyReadonlyArray1<'_, f64>,
        timeout: Option<f64>,
    ) -> PyReverbResult<Call> {
        self.mutate_priorities(py, table, pairs(&keys, &priorities)?, Vec::new(), timeout)
    }

    /// Begins to read items by their keys. The result is that of `Client::get`.
    fn get(
        &self,
        py: Python<'_>,
        table: String,
        keys: PyReadonlyArray1<'_, u64>,
        columns: Vec<u32>,
        timeout: Option<f64>,
    ) -> PyReverbResult<Call> {
        let (client, keys, deadline) = (self.client.clone(), keys.as_array().to_vec(), deadline(timeout)?);
        let found = async move { client.call(Get { table: &table, keys: &keys, columns: &columns }, deadline).await };
        self.spawn(py, found, |py, found| Ok(parts(py, found?)?.into_py_any(py)?))
    }

    /// Begins to wait for another item than the one seen. The result is that of `Client::newer`.
    fn newer(&self, py: Python<'_>, table: String, seen: Option<u64>, timeout: Option<f64>) -> PyReverbResult<Call> {
        let (client, deadline) = (self.client.clone(), deadline(timeout)?);
        let newer = async move { client.call(Newer { table: &table, seen }, deadline).await };
        self.spawn(py, newer, |py, newer| Ok(Py::new(py, SampledBatch::new(py, newer?)?)?.into_any()))
    }

    /// Asks for the tables of the server.
    fn tables(&self, py: Python<'_>, timeout: Option<f64>) -> PyReverbResult<Call> {
        let (client, deadline) = (self.client.clone(), deadline(timeout)?);
        let tables = async move { client.call(Info, deadline).await };
        self.spawn(py, tables, |py, tables| Ok(Py::new(py, Tables(tables?))?.into_any()))
    }

    /// A number that changes with the connection; `None` if the next call looks for the server.
    fn connection(&self) -> Option<u32> {
        self.client.connection()
    }

    /// Waits until the server has processed the receipts of the batches that the program has.
    fn settle(&self, timeout: f64) -> PyReverbResult<Call> {
        let deadline = Instant::now() + Duration::try_from_secs_f64(timeout).unwrap_or_default();
        let client = self.client.clone();
        let settled = async move {
            client.settle(deadline).await;
            Ok(())
        };
        Call::spawn(settled, |py, settled| Ok(settled.map(|()| py.None())?))
    }
}

impl Calls {
    /// Runs a call until it ends, is withdrawn, or the client is closed.
    fn spawn<T: Send + 'static>(
        &self,
        py: Python<'_>,
        call: impl Future<Output = Result<T>> + Send + 'static,
        convert: impl FnOnce(Python<'_>, Result<T>) -> PyReverbResult<Py<PyAny>> + Send + 'static,
    ) -> PyReverbResult<Call> {
        self.closing.check(py)?;
        let closing = self.closing.clone();
        Call::spawn(async move { closing.or(call).await }, convert)
    }

    /// Begins to insert rows, which were made of these data and priorities, of one item or of a batch.
    fn send(
        &self,
        rows: RowInsert,
        deadline: Option<Instant>,
        (data, priorities, is_batch): (&Bound<'_, PyAny>, &Bound<'_, PyAny>, bool),
    ) -> PyReverbResult<Call> {
        let (client, of, inserts) = (self.client.clone(), self.client.clone(), self.inserts.clone());
        let py = data.py();
        let (data, priorities) = (data.clone().unbind(), priorities.clone().unbind());
        self.spawn(py, async move { client.insert(rows, deadline).await }, move |py, inserted| match inserted {
            Ok(keys) if is_batch => Ok(PyArray1::from_slice(py, &keys).into_any().unbind()),
            Ok(keys) => Ok(keys[0].into_py_any(py)?),
            Err(error) => {
                let to = Target { connection: &|| of.connection(), memory: &|| None, ask: &|_| Err(not_asked()) };
                Err(inserts.explain(&to, error.into(), data.bind(py), priorities.bind(py), is_batch))
            }
        })
    }

    /// Calls `insert` with the server of an insert, whose tables were asked for. Returns `None` if they must be asked for
    /// first.
    fn with_target(
        &self,
        tables: Option<&Tables>,
        insert: impl FnOnce(&Target<'_>) -> PyReverbResult<Call>,
    ) -> PyReverbResult<Option<Call>> {
        let is_asked = Cell::new(false);
        let ask = |_| {
            is_asked.set(tables.is_none());
            tables.map(|tables| tables.0.clone()).ok_or_else(not_asked)
        };
        let begun = insert(&Target {
            connection: &|| self.client.connection(),
            memory: &|| self.client.chunk_memory(),
            ask: &ask,
        });
        if is_asked.get() { Ok(None) } else { begun.map(Some) }
    }
}

/// The error of an insert that would have to ask for tables. No caller gets it.
fn not_asked() -> PyReverbError {
    Error::Cancelled("the tables of the server were not asked for".into()).into()
}
