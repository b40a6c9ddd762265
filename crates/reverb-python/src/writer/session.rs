//! The session through which a writer sends its items.

use crate::client::Client;
use crate::errors::{PyReverbError, PyReverbResult};
use crate::priorities::Priority;
use crate::runtime::{deadline, runtime, wait};
use crate::without_gil::{BRIEF_BYTES, BRIEF_ITEMS, without_gil, without_gil_unless};
use numpy::PyArray1;
use parking_lot::Mutex;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use reverb_core::writer::{ChunkCompression, ColumnOptions, StepBuffer, StreamChunks, WriterItem};
use reverb_core::{ItemKey, KeySlots, NewPriority};
use reverb_net::client::writer::{Discarded, Session, SessionOptions};
use reverb_service::warn;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// `reverb.WriterOptions`, read by the names of its fields.
#[derive(FromPyObject)]
pub struct WriterOptions {
    pub max_chunk_length: Option<u32>,
    pub compression: String,
    pub delta_encoded: bool,
    pub max_pending_bytes: usize,
    pub max_in_flight_items: Option<usize>,
    pub reconnect_timeout: f64,
}

impl WriterOptions {
    /// How chunks are compressed.
    pub fn compression(&self) -> PyReverbResult<ChunkCompression> {
        Ok(ChunkCompression { codec: self.compression.parse()?, delta: self.delta_encoded })
    }

    /// Opens the session of a writer that keeps so many rows, and makes the buffer of its steps. `hint` says how to end a
    /// long wait.
    pub fn open(&self, client: &Client, rows: u32, hint: &'static str) -> PyReverbResult<(WriterSession, StepBuffer)> {
        Python::attach(|py| client.closing().check(py))?;
        let chunks = StreamChunks::default();
        let steps = StepBuffer::new(self.columns(rows), self.compression()?, chunks.clone())?;
        Ok((WriterSession::new(client, self, chunks, hint), steps))
    }

    /// How columns of which so many rows are kept are divided into chunks.
    pub fn columns(&self, num_keep_alive_refs: u32) -> ColumnOptions {
        ColumnOptions { num_keep_alive_refs, max_chunk_length: self.max_chunk_length }
    }
}

/// What a closed writer has discarded: the number of unconfirmed items by table, and the reasons.
type DiscardedItems = (BTreeMap<String, usize>, Vec<String>);

/// What a writer has not confirmed: the address of its server, the number of items by table, and bytes.
type UnconfirmedItems = (String, BTreeMap<String, usize>, usize);

/// What the writers of this process have not confirmed.
#[pyfunction]
pub fn unconfirmed(py: Python<'_>) -> Vec<UnconfirmedItems> {
    let all = without_gil(py, reverb_net::client::writer::unconfirmed);
    let writers = all.into_iter().map(|one| (one.address, by_name(&one.items), one.bytes));
    writers.collect()
}

fn by_name(items: &BTreeMap<Arc<str>, usize>) -> BTreeMap<String, usize> {
    items.iter().map(|(table, &count)| (table.to_string(), count)).collect()
}

/// How a program ends a long wait for all items.
pub const HOW_TO_GIVE_UP: &str = "To give up: Ctrl-C, `flush(timeout=...)`, or `close()`.";

/// The session of one writer, and the table names that its items share. In Python it is the base class of writers.
#[derive(Clone)]
#[pyclass(frozen, subclass, module = "reverb._rust")]
pub struct WriterSession {
    session: Arc<Session>,
    tables: Arc<Mutex<Vec<Arc<str>>>>,
    /// The bits of a number that is not negative: items that take the largest priority so far get at least this one.
    noted: Arc<AtomicU64>,
    /// What a report of a long wait says of ending it.
    hint: &'static str,
    /// Whether the owner of the writer takes the room for all items, so that no other call waits for it.
    is_paced: Arc<AtomicBool>,
    /// The items that a paced writer has made since they were last taken: their environments and keys.
    made: Arc<Mutex<Vec<(usize, ItemKey)>>>,
}

/// The keys of items, environment by environment, and how many each has.
type KeysByEnv<'py> = (Bound<'py, PyArray1<u64>>, Bound<'py, PyArray1<i64>>);

impl WriterSession {
    /// A session over `client`. `hint` says how to end a long wait.
    pub fn new(client: &Client, options: &WriterOptions, chunks: StreamChunks, hint: &'static str) -> Self {
        let options = SessionOptions {
            max_pending_bytes: options.max_pending_bytes,
            max_in_flight_items: options.max_in_flight_items.unwrap_or(usize::MAX),
            reconnect_timeout: Duration::try_from_secs_f64(options.reconnect_timeout).unwrap_or(Duration::MAX),
        };
        Self {
            session: Arc::new(Session::new(client.background().clone(), options, chunks)),
            tables: Arc::default(),
            noted: Arc::default(),
            hint,
            is_paced: Arc::default(),
            made: Arc::default(),
        }
    }

    /// The session itself.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Waits until keys of items can be made, for `timeout` seconds at most: in a cluster, until a shard was reached.
    pub fn reach(&self, py: Python<'_>, timeout: Option<f64>) -> PyReverbResult<()> {
        if self.session.is_reached() { Ok(()) } else { wait(py, self.session.reach(deadline(timeout)?)) }
    }

    /// The slots of the keys of new items of these steps.
    pub fn key_slots(&self, steps: &StepBuffer) -> KeySlots {
        self.session.key_slots(steps)
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

    /// The priority of an item to be made.
    pub fn priority(&self, priority: Priority) -> NewPriority {
        match priority {
            Priority::Given(value) => value.into(),
            Priority::Largest => NewPriority { value: f64::from_bits(self.noted.load(Relaxed)), takes_largest: true },
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

    /// Begins a call that appends a step. Fails if the session has failed or is closed. Returns whether
    /// [`WriterSession::report`] has an item to report once the step is appended.
    pub fn begin(&self) -> PyReverbResult<bool> {
        Ok(self.session.check_open()?)
    }

    /// Raises the error of an earlier item that was refused, after the call has appended its own step.
    pub fn report(&self, py: Python<'_>) -> PyReverbResult<()> {
        self.session.check().map_err(|error| PyReverbError::from(error).after_step(py))
    }

    /// Waits until there is room for so many more items, for `timeout` seconds at most.
    fn take_room(&self, py: Python<'_>, count: usize, timeout: Option<f64>) -> PyReverbResult<()> {
        if self.session.has_room(count) {
            return Ok(());
        }
        wait(py, self.session.take_room(count, deadline(timeout)?, warn))
    }

    /// Waits as [`WriterSession::take_room`] before a call makes so many items, unless the owner of the writer has waited.
    pub fn take_room_of_call(&self, py: Python<'_>, count: usize, timeout: Option<f64>) -> PyReverbResult<()> {
        if count == 0 || self.is_paced.load(Relaxed) { Ok(()) } else { self.take_room(py, count, timeout) }
    }

    /// Waits until there is room for an item, before a call that may make items by patterns does anything: how many is known
    /// only then. An adder takes the room for what it makes itself.
    pub fn wait_for_room(&self, py: Python<'_>) -> PyReverbResult<()> {
        self.take_room_of_call(py, 1, None)
    }

    /// Notes items of an environment for [`WriterSession::take_keys`], if the writer is paced.
    pub fn note_made<'a>(&self, env: usize, items: impl IntoIterator<Item = &'a WriterItem>) {
        if self.is_paced.load(Relaxed) {
            self.made.lock().extend(items.into_iter().map(|item| (env, item.key)));
        }
    }

    /// Queues items for which there is room. Without items, it does nothing. An earlier item that was refused is reported
    /// after these were queued.
    pub fn push<I>(&self, py: Python<'_>, items: I) -> PyReverbResult<()>
    where
        I: IntoIterator<Item = WriterItem, IntoIter: ExactSizeIterator + Send>,
    {
        let items = items.into_iter();
        if items.len() == 0 {
            return Ok(());
        }
        let runtime = runtime()?;
        let must_report = if items.len() > BRIEF_ITEMS {
            without_gil(py, || self.session.push(runtime.1.handle(), items))?
        } else {
            let queued = self.session.queue(runtime.1.handle(), items)?;
            if queued.can_send {
                without_gil_unless(py, self.session.pumps_at_once(BRIEF_BYTES), || self.session.pump());
            }
            queued.has_refusal
        };
        if must_report { self.report(py) } else { Ok(()) }
    }

    /// Ends a call that has appended its step: queues its items, and raises the first error. `made` is what became of
    /// making them.
    pub fn end_step(
        &self,
        py: Python<'_>,
        items: Vec<WriterItem>,
        must_report: bool,
        made: PyReverbResult<()>,
    ) -> PyReverbResult<()> {
        let queued = if items.is_empty() && must_report { self.report(py) } else { self.push(py, items) };
        queued.and(made).map_err(|error| error.after_step(py))
    }

    /// Sends what can be sent now.
    pub fn pump(&self) {
        self.session.pump();
    }

    /// Waits while more than `max_in_flight` items that could be sent are unconfirmed, after the call has done its work.
    pub fn wait_in_flight(&self, py: Python<'_>, max_in_flight: usize) -> PyReverbResult<()> {
        if !self.session.has_more_in_flight(max_in_flight) {
            return Ok(());
        }
        wait(py, self.session.wait_in_flight(max_in_flight, warn)).map_err(|error| error.after_step(py))
    }
}

#[pymethods]
impl WriterSession {
    /// Waits until at most `but_last` items are unconfirmed. Reports of a long wait say how to end it.
    fn flush(&self, py: Python<'_>, but_last: usize, timeout: Option<f64>) -> PyReverbResult<()> {
        let notice = |waits: &str| warn(&format!("{}. {}", waits.trim_end_matches('.'), self.hint));
        wait(py, self.session.flush(but_last, deadline(timeout)?, notice))
    }

    /// Whether there is room for so many more items.
    fn has_room(&self, count: usize) -> bool {
        self.session.has_room(count)
    }

    /// Waits until there is room for so many more items.
    #[pyo3(name = "take_room")]
    fn take_room_for(&self, py: Python<'_>, count: usize, timeout: Option<f64>) -> PyReverbResult<()> {
        self.take_room(py, count, timeout)
    }

    /// From now on only `take_room` waits for room, and items are noted for `take_keys`.
    fn pace(&self) {
        self.is_paced.store(true, Relaxed);
    }

    /// The keys of the items that a paced writer has made since the last call.
    fn take_keys<'py>(&self, py: Python<'py>, num_envs: usize) -> KeysByEnv<'py> {
        let mut made = std::mem::take(&mut *self.made.lock());
        // The sort is stable, so the items of an environment stay in the order in which they were made.
        made.sort_by_key(|&(env, _)| env);
        let mut counts = vec![0; num_envs];
        made.iter().for_each(|&(env, _)| counts[env] += 1);
        (PyArray1::from_iter(py, made.iter().map(|&(_, key)| key)), PyArray1::from_vec(py, counts))
    }

    #[getter]
    fn num_pending_items(&self) -> usize {
        self.session.num_pending()
    }

    /// Whether the server is reachable, as far as is known.
    #[getter]
    fn has_server(&self) -> bool {
        self.session.has_server()
    }

    /// Waits at most `patience` seconds until no item is unconfirmed. Returns whether none is.
    fn drain(&self, py: Python<'_>, patience: f64) -> PyReverbResult<bool> {
        let patience = Duration::try_from_secs_f64(patience).unwrap_or(Duration::MAX);
        wait(py, async { Ok(self.session.drain(patience).await) })
    }

    /// Whether all items are confirmed and no error is left to be reported.
    #[getter]
    fn is_settled(&self) -> bool {
        self.session.is_settled()
    }

    /// Items that take the largest priority so far get at least this one, which is not negative.
    fn note_priority(&self, priority: f64) {
        // The bits of such numbers have the order of the numbers.
        self.noted.fetch_max(priority.max(0.0).to_bits(), Relaxed);
    }

    /// Ends the session. Returns what was discarded, if anything was.
    fn close(&self, py: Python<'_>, patience: f64) -> PyReverbResult<Option<DiscardedItems>> {
        let patience = Duration::try_from_secs_f64(patience).unwrap_or(Duration::MAX);
        let discarded = wait(py, async { Ok(self.session.close(patience).await) })?;
        Ok(discarded.map(|Discarded { items, reasons }| (by_name(&items), reasons)))
    }
}
