//! `reverb._rust.Checkpointer` and `reverb._rust.CheckpointReader`.

use crate::errors::PyReverbResult;
use crate::runtime::wait;
use crate::sampled_batch::SampledBatch;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use reverb_core::Error;
use reverb_formats::definitions::info_bytes;
use reverb_store::checkpoint::{
    self, CheckpointOptions, CheckpointReader as CoreReader, LoadOptions, SizeLimit, Summary,
};
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
        keep_definitions: bool,
    ) -> Self {
        let interval = interval.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
        let load = LoadOptions { path: load_path, tables, keep_definitions };
        let options =
            CheckpointOptions { root, group, fallback, keep, compression, interval, save_on_stop, is_temporary, load };
        Self { options }
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
        let batch = py.detach(|| self.reader.batch(table, first, count, squeeze_time))?;
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
    Ok(py.detach(|| checkpoint::list(&root))?)
}

/// The definitions of the tables of a checkpoint.
#[pyfunction]
pub fn checkpoint_summary(py: Python<'_>, path: PathBuf) -> PyReverbResult<Described<'_>> {
    let summary = py.detach(|| Summary::read(&path))?;
    Ok(describe(py, summary))
}

/// Reads a whole checkpoint and checks it.
#[pyfunction]
pub fn checkpoint_verify(py: Python<'_>, path: PathBuf, limit_bytes: Option<u64>) -> PyReverbResult<Described<'_>> {
    let summary = wait(py, blocking(move || checkpoint::verify(&path, limit_of(limit_bytes))))?;
    Ok(describe(py, summary))
}

fn limit_of(limit_bytes: Option<u64>) -> SizeLimit {
    limit_bytes.map_or_else(SizeLimit::default, SizeLimit::All)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Internal(error.to_string()))?
}
