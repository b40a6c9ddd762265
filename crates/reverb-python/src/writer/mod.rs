//! The writers: `reverb._rust.TrajectoryWriter` here, the others in their files.

mod batched_writer;
mod column;
mod pattern_reader;
mod pattern_writer;
mod post;
mod row_writer;
mod steps_in;

pub use batched_writer::BatchedWriter;
pub use column::{CellRef, ColumnHistory, TrajectoryColumn};
pub use pattern_reader::PatternReader;
pub use pattern_writer::PatternWriter;
pub use row_writer::RowWriter;

use crate::client::Client;
use crate::errors::PyReverbResult;
use crate::nest::flatten;
use crate::runtime::{deadline, wait};
use parking_lot::Mutex;
use post::{CompressionOptions, Limits, Post};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use reverb_core::writer::{ColumnOptions, DroppedChunks, Selection, StepBuffer, WriterItem};
use reverb_core::{DType, Error, Signature, TensorSpec};
use reverb_transport::client::warn;
use std::collections::HashMap;
use steps_in::Structure;

/// A spec of a flat signature: name, number of the dtype, and dimensions with -1 where unknown.
type FlatSpec = (String, u32, Option<Vec<i64>>);

/// Signatures as Python gives them.
type FlatSignatures = HashMap<String, Option<Vec<FlatSpec>>>;

/// What is known of the tables: for each its signature, if it has one.
type Signatures = HashMap<String, Option<Signature>>;

/// Appends steps, and makes items of them.
#[pyclass(frozen, module = "reverb._rust")]
pub struct TrajectoryWriter {
    steps: Mutex<StepBuffer>,
    post: Post,
    structure: Structure,
    /// Signatures by table; `None` if items are not checked.
    signatures: Mutex<Option<Signatures>>,
}

#[pymethods]
impl TrajectoryWriter {
    #[new]
    fn new(
        client: &Client,
        structure: Py<PyAny>,
        options: (u32, Option<u32>),
        signatures: Option<FlatSignatures>,
        compression: CompressionOptions,
        limits: Limits,
    ) -> PyReverbResult<Self> {
        let compression = post::compression(compression)?;
        let dropped = DroppedChunks::default();
        let signatures = signatures.map(to_signatures).transpose()?;
        Ok(Self {
            steps: Mutex::new(StepBuffer::new(column_options(options), compression, dropped.clone())?),
            post: Post::new(client, limits, dropped),
            structure: Structure::new(structure),
            signatures: Mutex::new(signatures),
        })
    }

    fn append(&self, py: Python<'_>, data: &Bound<'_, PyAny>, partial_step: bool) -> PyReverbResult<()> {
        self.post.session.check()?;
        let step = self.structure.step(data)?;
        for &(column, options) in step.new_columns() {
            self.steps.lock().configure(column, column_options(options))?;
        }
        // Names are asked of Python, so the lock is let go of first.
        let appended = self.steps.lock().append(&step.values(), partial_step);
        appended.map_err(|error| step.describe(py, &self.structure, error))?;
        self.structure.accept(py, &step)
    }

    fn create_item(
        &self,
        py: Python<'_>,
        table: &Bound<'_, PyAny>,
        priority: f64,
        trajectory: &Bound<'_, PyAny>,
    ) -> PyReverbResult<()> {
        let columns = columns(trajectory)?;
        let table = self.post.table(table)?;
        let writer = self.steps.lock().writer();
        let item = match &*self.signatures.lock() {
            None => WriterItem::new(table, priority, columns, writer, None)?.not_validated(),
            Some(signatures) => {
                let signature = find_signature(signatures, &table)?;
                WriterItem::new(table, priority, columns, writer, signature)?
            }
        };
        self.post.push(py, [item])
    }

    fn set_signatures(&self, signatures: FlatSignatures) -> PyReverbResult<()> {
        *self.signatures.lock() = Some(to_signatures(signatures)?);
        Ok(())
    }

    fn configure(&self, column: u32, options: (u32, Option<u32>)) -> PyReverbResult<()> {
        Ok(self.steps.lock().configure(column, column_options(options))?)
    }

    fn flush(&self, py: Python<'_>, but_last: usize, timeout: Option<f64>) -> PyReverbResult<()> {
        wait(py, self.post.session.flush(but_last, deadline(timeout)?, warn))
    }

    fn end_episode(&self, clear_buffers: bool) -> PyReverbResult<()> {
        self.steps.lock().end_episode(clear_buffers)?;
        self.post.session.pump();
        Ok(())
    }

    fn close(&self, py: Python<'_>, patience: f64) -> PyReverbResult<Option<String>> {
        self.post.close(py, patience)
    }

    #[getter]
    fn episode_steps(&self) -> i32 {
        self.steps.lock().episode_steps()
    }

    #[getter]
    fn step_is_open(&self) -> bool {
        self.steps.lock().step_is_open()
    }

    #[getter]
    fn num_pending_items(&self) -> usize {
        self.post.session.num_pending()
    }
}

/// The columns of a trajectory, in flattening order.
fn columns(trajectory: &Bound<'_, PyAny>) -> PyReverbResult<Box<[Selection]>> {
    let mut leaves = Vec::with_capacity(8);
    let flat = flatten(trajectory, &mut leaves);
    let refuse = || {
        let got = trajectory.repr().map_or_else(|_| "?".into(), |repr| repr.to_string());
        PyTypeError::new_err(format!("All leaves of `trajectory` must be `TrajectoryColumn` but got {got}"))
    };
    flat.map_err(|_| refuse())?;
    let selection = |leaf: Bound<'_, PyAny>| match leaf.cast::<TrajectoryColumn>() {
        Ok(column) => Ok(column.get().0.clone()),
        Err(_) => Err(refuse().into()),
    };
    leaves.into_iter().map(selection).collect()
}

fn column_options((num_keep_alive_refs, max_chunk_length): (u32, Option<u32>)) -> ColumnOptions {
    ColumnOptions { num_keep_alive_refs, max_chunk_length }
}

fn spec((name, dtype, dims): FlatSpec) -> Result<TensorSpec, Error> {
    let dim = |dim: i64| usize::try_from(dim).ok();
    let shape = dims.map(|dims| dims.into_iter().map(dim).collect());
    Ok(TensorSpec { name, dtype: DType::from_number(dtype)?, shape })
}

fn to_signatures(tables: FlatSignatures) -> Result<Signatures, Error> {
    let signature = |specs: Vec<FlatSpec>| {
        let specs = specs.into_iter().map(spec).collect::<Result<_, _>>()?;
        Ok(Signature { structure: Vec::new().into(), specs })
    };
    tables.into_iter().map(|(table, specs)| Ok((table, specs.map(signature).transpose()?))).collect()
}

fn find_signature<'a>(signatures: &'a Signatures, table: &str) -> Result<Option<&'a Signature>, Error> {
    match signatures.get(table) {
        Some(signature) => Ok(signature.as_ref()),
        None => {
            let mut known: Vec<_> = signatures.keys().map(String::as_str).collect();
            known.sort_unstable();
            Err(Error::TableNotFound { table: table.into(), known: known.join(", ") })
        }
    }
}
