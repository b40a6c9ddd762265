//! `reverb._rust.Checkpointer` and `reverb._rust.CheckpointReader`.

use crate::errors::PyReverbResult;
use crate::runtime::wait;
use crate::sampled_batch::SampledBatch;
use crate::table::Table;
use crate::without_gil::without_gil;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use reverb_core::Error;
use reverb_formats::definitions::info_bytes;
use reverb_store::checkpoint::{
    self, CheckpointOptions, CheckpointReader as CoreReader, LoadOptions, SizeLimit, Summary,
};
use reverb_store::log::Recovered;
use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

/// The options of the checkpoints of a server. It does nothing before a server is made with it.
#[pyclass(frozen, module = "reverb._rust")]
pub struct Checkpointer {
    pub options: CheckpointOptions,
}

#[pymethods]
impl Checkpointer {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "the Python class above it gathers them")]
    fn new(
        root: PathBuf,
        group: String,
        fallback: Option<PathBuf>,
        keep: usize,
        compression: u32,
        interval: Option<f64>,
        save_on_stop: bool,
        is_temporary: bool,
        load_path: Option<PathBuf>,
        tables: Option<Vec<(String, String)>>,
        definitions: Definitions,
        must_be_writable: bool,
    ) -> Self {
        let interval = interval.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
        let load = LoadOptions { path: load_path, tables, definitions: definitions.0 };
        let options = CheckpointOptions {
            root,
            group,
            fallback,
            keep,
            compression,
            interval,
            save_on_stop,
            is_temporary,
            must_be_writable,
            load,
            durability: None,
            accept_loss: false,
        };
        Self { options }
    }

    /// What a server with these tables would load, and which options its tables would then have.
    fn plan(&self, py: Python<'_>, tables: Vec<PyRef<'_, Table>>) -> PyReverbResult<Planned> {
        let tables: Vec<_> = tables.iter().map(|table| table.handle.clone()).collect();
        let plan = without_gil(py, || checkpoint::Plan::new(&self.options, &tables))?;
        let options = |options: Vec<checkpoint::OptionTexts>| -> Vec<_> {
            options.into_iter().map(|option| (option.name, option.here, option.saved, option.used)).collect()
        };
        let planned = plan
            .tables
            .into_iter()
            .map(|table| (table.saved_name, table.name, table.items, table.options.map(options)));
        Ok((plan.path, plan.damaged, planned.collect()))
    }

    /// Reads the log that a server would repeat after this checkpoint: as `checkpoint_verify_log`. None if it would repeat
    /// none.
    #[pyo3(signature = (path, *, is_durable))]
    fn plan_log(&self, py: Python<'_>, path: Option<PathBuf>, is_durable: bool) -> PyReverbResult<Option<LogCounts>> {
        let options = self.options.clone();
        let log = wait(py, blocking(move || checkpoint::plan_log(&options, path.as_deref(), is_durable)))?;
        Ok(log.map(counts))
    }
}

/// Name, value on the server, value in the checkpoint, and the value that holds.
type OptionOf = (&'static str, String, String, String);
/// The checkpoint, damage of newer ones, and for each table of it its name there and here, its items and its options.
type Planned = (Option<PathBuf>, Vec<String>, Vec<(String, Option<String>, Option<u64>, Option<Vec<OptionOf>>)>);

/// `saved`, `edited` or `here`.
struct Definitions(checkpoint::Definitions);

impl<'a, 'py> FromPyObject<'a, 'py> for Definitions {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match &*given.extract::<Cow<'_, str>>()? {
            "saved" => Ok(Self(checkpoint::Definitions::Saved)),
            "edited" => Ok(Self(checkpoint::Definitions::Edited)),
            "here" => Ok(Self(checkpoint::Definitions::Here)),
            other => Err(PyValueError::new_err(format!("definitions must be saved, edited or here, got {other}"))),
        }
    }
}

/// The items of a checkpoint, in memory.
#[pyclass(frozen, module = "reverb._rust")]
pub struct CheckpointReader {
    reader: CoreReader,
}

#[pymethods]
impl CheckpointReader {
    #[new]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        tables: Option<Vec<String>>,
        limit_bytes: Option<u64>,
    ) -> PyReverbResult<Self> {
        let read = move || CoreReader::open(&path, tables.as_deref(), limit_of(limit_bytes));
        Ok(Self { reader: wait(py, blocking(read))? })
    }

    #[getter]
    fn path(&self) -> PathBuf {
        self.reader.path().into()
    }

    fn infos<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyBytes>> {
        self.reader.tables().map(|table| info(py, table)).collect()
    }

    fn batch(
        &self,
        py: Python<'_>,
        table: &str,
        first: usize,
        count: usize,
        squeeze_time: bool,
    ) -> PyReverbResult<Option<SampledBatch>> {
        let batch = without_gil(py, || self.reader.batch(table, first, count, squeeze_time))?;
        let Some(read) = batch else { return Ok(None) };
        Ok(Some(SampledBatch::stored(py, read.batch, read.inserted_at)?))
    }
}

/// Whether this package wrote a checkpoint, and for each table its info and, if known, its number of items.
type Described<'py> = (bool, Vec<(Bound<'py, PyBytes>, Option<u64>)>);

fn describe(py: Python<'_>, summary: Summary) -> Described<'_> {
    let tables = summary.tables.iter().map(|table| (info(py, &table.status), table.items));
    (summary.is_ours, tables.collect())
}

fn info<'py>(py: Python<'py>, status: &reverb_service::TableStatus) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &info_bytes(&status.info))
}

/// The checkpoints in a folder, newest first.
#[pyfunction]
pub fn checkpoint_list(py: Python<'_>, root: PathBuf) -> PyReverbResult<Vec<PathBuf>> {
    Ok(without_gil(py, || checkpoint::list(&root))?)
}

/// The definitions of the tables of a checkpoint.
#[pyfunction]
pub fn checkpoint_summary(py: Python<'_>, path: PathBuf) -> PyReverbResult<Described<'_>> {
    let summary = without_gil(py, || Summary::read(&path))?;
    Ok(describe(py, summary))
}

/// Reads a whole checkpoint and checks it.
#[pyfunction]
pub fn checkpoint_verify(py: Python<'_>, path: PathBuf, limit_bytes: Option<u64>) -> PyReverbResult<Described<'_>> {
    let summary = wait(py, blocking(move || checkpoint::verify(&path, limit_of(limit_bytes))))?;
    Ok(describe(py, summary))
}

/// Reads and checks the log after a checkpoint: the number of its frames with changes, their bytes, and those that a crash
/// has torn. None if the checkpoint names no log.
#[pyfunction]
pub fn checkpoint_verify_log(py: Python<'_>, path: PathBuf) -> PyReverbResult<Option<LogCounts>> {
    let log = wait(py, blocking(move || checkpoint::verify_log(&path)))?;
    Ok(log.map(counts))
}

/// Number of frames with changes, their bytes, and those that a crash has torn.
type LogCounts = (u64, u64, u64);

fn counts(log: Recovered) -> LogCounts {
    (log.frames, log.bytes, log.torn_bytes)
}

fn limit_of(limit_bytes: Option<u64>) -> SizeLimit {
    limit_bytes.map_or_else(SizeLimit::default, SizeLimit::All)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Internal(error.to_string()))?
}
