//! The session through which a writer sends its items.

use crate::client::Client;
use crate::errors::PyReverbResult;
use crate::runtime::{deadline, runtime, wait};
use parking_lot::Mutex;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use reverb_core::writer::{ChunkCompression, DroppedChunks, WriterItem};
use reverb_net::client::writer::{Discarded, Session, SessionOptions};
use reverb_service::warn;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The bytes and the number of unconfirmed items above which the caller waits, and the seconds for which a writer tries
/// to reconnect.
pub type Limits = (usize, Option<usize>, f64);

/// What a closed writer has discarded: the number of unconfirmed items by table, and the reasons.
pub type DiscardedItems = (BTreeMap<String, usize>, Vec<String>);

/// What a writer has not confirmed: the address of its server, the number of items by table, and bytes.
type UnconfirmedItems = (String, BTreeMap<String, usize>, usize);

/// What the writers of this process have not confirmed.
#[pyfunction]
pub fn unconfirmed(py: Python<'_>) -> Vec<UnconfirmedItems> {
    let all = py.detach(reverb_net::client::writer::unconfirmed);
    let writers = all.into_iter().map(|one| (one.address, by_name(&one.items), one.bytes));
    writers.collect()
}

fn by_name(items: &BTreeMap<Arc<str>, usize>) -> BTreeMap<String, usize> {
    items.iter().map(|(table, &count)| (table.to_string(), count)).collect()
}

/// A codec by name, and whether integers are stored as differences.
pub type CompressionOptions = (String, bool);

/// The compression that Python asks for.
pub fn parse_compression((codec, delta): CompressionOptions) -> PyReverbResult<ChunkCompression> {
    Ok(ChunkCompression { codec: codec.parse()?, delta })
}

/// The session of one writer, and the table names that its items share. Python waits for items through it.
#[pyclass(frozen, module = "reverb._rust")]
pub struct WriterSession {
    session: Session,
    tables: Mutex<Vec<Arc<str>>>,
}

#[pymethods]
impl WriterSession {
    /// Waits until at most `but_last` items are unconfirmed. Reports of a long wait say how to end it: by `close`, too, if
    /// that does not wait as long.
    #[pyo3(signature = (but_last, timeout, or_close=true))]
    fn flush(&self, py: Python<'_>, but_last: usize, timeout: Option<f64>, or_close: bool) -> PyReverbResult<()> {
        let ways = if or_close { "`flush(timeout=...)`, or `close()`" } else { "or `flush(timeout=...)`" };
        let notice = |waits: &str| warn(&format!("{}. To give up: Ctrl-C, {ways}.", waits.trim_end_matches('.')));
        wait(py, self.session.flush(but_last, deadline(timeout)?, notice))
    }

    /// Waits at most `patience` seconds until no item is unconfirmed. Returns whether none is.
    fn drain(&self, py: Python<'_>, patience: f64) -> PyReverbResult<bool> {
        let patience = Duration::try_from_secs_f64(patience).unwrap_or(Duration::MAX);
        wait(py, async { Ok(self.session.drain(patience).await) })
    }

    /// Ends the session. Returns what was discarded, if anything was.
    fn close(&self, py: Python<'_>, patience: f64) -> PyReverbResult<Option<DiscardedItems>> {
        let patience = Duration::try_from_secs_f64(patience).unwrap_or(Duration::MAX);
        let discarded = wait(py, async { Ok(self.session.close(patience).await) })?;
        Ok(discarded.map(|Discarded { items, reasons }| (by_name(&items), reasons)))
    }

    /// Whether all items are confirmed and no error is left to be reported.
    #[getter]
    fn is_settled(&self) -> bool {
        self.session.is_settled()
    }

    /// Whether the server is reachable, as far as is known.
    #[getter]
    fn has_server(&self) -> bool {
        self.session.has_server()
    }

    /// The number of unconfirmed items.
    #[getter]
    fn num_pending_items(&self) -> usize {
        self.session.num_pending()
    }
}

impl WriterSession {
    /// A session over the connection of `client` that works while no call waits.
    pub fn make(py: Python<'_>, client: &Client, limits: Limits, dropped: &DroppedChunks) -> PyResult<Py<Self>> {
        let (max_pending_bytes, max_in_flight_items, reconnect_timeout) = limits;
        let options = SessionOptions {
            max_pending_bytes,
            max_in_flight_items: max_in_flight_items.unwrap_or(usize::MAX),
            reconnect_timeout: Duration::try_from_secs_f64(reconnect_timeout).unwrap_or(Duration::MAX),
        };
        let session = Session::new(client.background().clone(), options, dropped.clone());
        Py::new(py, Self { session, tables: Mutex::default() })
    }

    /// The name of a table that is given as str or bytes.
    pub fn table(&self, table: &Bound<'_, PyAny>) -> PyReverbResult<Arc<str>> {
        if let Ok(name) = table.cast::<PyString>() {
            return Ok(self.intern(&name.to_cow()?));
        }
        match table.cast::<PyBytes>() {
            Ok(name) => Ok(self.intern(&String::from_utf8_lossy(name.as_bytes()))),
            Err(_) => Err(PyTypeError::new_err(format!("table: expected a str, got {}", table.get_type())).into()),
        }
    }

    /// The shared copy of a table name.
    pub fn intern(&self, name: &str) -> Arc<str> {
        let mut tables = self.tables.lock();
        if let Some(known) = tables.iter().find(|known| &***known == name) {
            return known.clone();
        }
        tables.push(name.into());
        tables[tables.len() - 1].clone()
    }

    /// Fails if the session has failed or is closed.
    pub fn check(&self) -> PyReverbResult<()> {
        Ok(self.session.check()?)
    }

    /// Queues items, and waits while too many items or bytes are unconfirmed.
    pub fn push(&self, py: Python<'_>, items: impl IntoIterator<Item = WriterItem> + Send) -> PyReverbResult<()> {
        let runtime = runtime()?;
        let is_full = py.detach(|| self.session.push(runtime.1.handle(), items))?;
        if is_full {
            wait(py, self.session.room(warn))?;
        }
        Ok(())
    }

    /// Sends what can be sent now.
    pub fn pump(&self) {
        self.session.pump();
    }

    /// Waits while more than `max_in_flight` items that could be sent are unconfirmed.
    pub fn wait_in_flight(&self, py: Python<'_>, max_in_flight: usize) -> PyReverbResult<()> {
        if !self.session.has_more_in_flight(max_in_flight) {
            return Ok(());
        }
        wait(py, self.session.wait_in_flight(max_in_flight, warn))
    }
}
