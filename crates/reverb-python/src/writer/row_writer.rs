//! `reverb._rust.RowWriter`: the reference's older writer, whose items are the last steps, whole.

use super::Signatures;
use super::post::{self, CompressionOptions, Limits, Post};
use crate::array_in::{Leaf, leaf};
use crate::client::Client;
use crate::errors::{PyReverbError, PyReverbResult};
use crate::nest::{flatten, path};
use crate::runtime::{deadline, wait};
use parking_lot::Mutex;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use reverb_core::Error;
use reverb_core::writer::{AppendError, ColumnOptions, ColumnValue, DroppedChunks, Selection, StepBuffer, WriterItem};
use reverb_transport::client::warn;

/// Appends rows, and makes items of the last of them.
#[pyclass(frozen, module = "reverb._rust")]
pub struct RowWriter {
    rows: Mutex<Rows>,
    post: Post,
    signatures: Mutex<Signatures>,
    max_in_flight: usize,
}

struct Rows {
    steps: StepBuffer,
    /// The forms that rows had one after the other, each with its first row. A form may change between chunks.
    forms: Vec<Form>,
}

/// Rows with the same columns.
struct Form {
    first_row: u64,
    first_column: u32,
    width: u32,
}

#[pymethods]
impl RowWriter {
    #[new]
    fn new(
        client: &Client,
        lengths: (u32, u32),
        max_in_flight: usize,
        signatures: super::FlatSignatures,
        compression: CompressionOptions,
        limits: Limits,
    ) -> PyReverbResult<Self> {
        let compression = post::compression(compression)?;
        let dropped = DroppedChunks::default();
        let (max_sequence_length, chunk_length) = lengths;
        let options = ColumnOptions { num_keep_alive_refs: max_sequence_length, max_chunk_length: Some(chunk_length) };
        Ok(Self {
            rows: Mutex::new(Rows {
                steps: StepBuffer::new(options, compression, dropped.clone())?,
                forms: Vec::new(),
            }),
            post: Post::new(client, limits, dropped),
            signatures: Mutex::new(super::to_signatures(signatures)?),
            max_in_flight,
        })
    }

    fn set_signatures(&self, signatures: super::FlatSignatures) -> PyReverbResult<()> {
        *self.signatures.lock() = super::to_signatures(signatures)?;
        Ok(())
    }

    fn append(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyReverbResult<()> {
        self.post.session.check()?;
        let mut objects = Vec::with_capacity(8);
        flatten(data, &mut objects)?;
        let named = |index: usize, error: PyReverbError| match error {
            PyReverbError::Python(error) if error.is_instance_of::<PyTypeError>(py) => {
                PyTypeError::new_err(format!("column {}: {}", path(data, index), error.value(py))).into()
            }
            other => other,
        };
        let leaves = objects.into_iter().enumerate().map(|(index, object)| leaf(object).map_err(|e| named(index, e)));
        let leaves = leaves.collect::<PyReverbResult<Vec<_>>>()?;
        let appended = self.rows.lock().append(&leaves);
        appended.map_err(|(first, error)| {
            error.describe(|column| path(data, (column - first) as usize), |_| String::new())
        })?;
        self.post.session.pump();
        self.wait_in_flight(py)
    }

    fn create_item(
        &self,
        py: Python<'_>,
        table: &Bound<'_, PyAny>,
        num_timesteps: u64,
        priority: f64,
    ) -> PyReverbResult<()> {
        let table = self.post.table(table)?;
        let (writer, columns) = {
            let rows = self.rows.lock();
            (rows.steps.writer(), rows.last(num_timesteps)?)
        };
        let item = {
            let signatures = self.signatures.lock();
            if let Some(signature) = super::find_signature(&signatures, &table)? {
                let types: Vec<_> = columns.iter().filter_map(Selection::cell_type).collect();
                signature.check_row_types(&table, &types, num_timesteps as usize)?;
            }
            WriterItem::new(table, priority, columns, writer, None)?
        };
        self.post.push(py, [item])?;
        self.wait_in_flight(py)
    }

    fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyReverbResult<()> {
        wait(py, self.post.session.flush(0, deadline(timeout)?, warn))
    }

    fn close(&self, py: Python<'_>, patience: f64) -> PyReverbResult<Option<String>> {
        self.post.close(py, patience)
    }

    #[getter]
    fn num_pending_items(&self) -> usize {
        self.post.session.num_pending()
    }

    /// Whether the server is there, as far as is known.
    #[getter]
    fn has_server(&self) -> bool {
        self.post.session.has_server()
    }

    #[getter]
    fn num_steps(&self) -> i32 {
        self.rows.lock().steps.episode_steps()
    }

    #[getter]
    fn episode_id(&self) -> u64 {
        self.rows.lock().steps.episode_id()
    }
}

impl RowWriter {
    fn wait_in_flight(&self, py: Python<'_>) -> PyReverbResult<()> {
        if !self.post.session.has_more_in_flight(self.max_in_flight) {
            return Ok(());
        }
        wait(py, self.post.session.wait_in_flight(self.max_in_flight, warn))
    }
}

impl Rows {
    /// Adds a row. An error comes with the number of the first column, by which it counts columns.
    fn append(&mut self, leaves: &[Leaf<'_>]) -> Result<(), (u32, AppendError)> {
        let width = leaves.len() as u32;
        let mut first = self.forms.last().map_or(0, |form| form.first_column);
        let values = |first: u32| -> Vec<_> {
            leaves.iter().zip(first..).map(|(leaf, column)| ColumnValue { column, value: leaf.value() }).collect()
        };
        let mut result = match self.forms.last() {
            Some(form) if form.width == width => self.steps.append(&values(first), false),
            Some(form) => Err(AppendError::Other(Error::invalid(format!(
                "Number of tensors per timestep was inconsistent. Previously it was {}, but is now {width}.",
                form.width
            )))),
            None => Ok(()),
        };
        // Between two chunks rows may take another form.
        if self.forms.is_empty() || result.is_err() && !self.steps.has_open_rows() {
            first = self.forms.last().map_or(0, |form| form.first_column + form.width);
            let first_row = self.steps.num_rows();
            result = self.steps.append(&values(first), false);
            if result.is_ok() {
                self.forms.push(Form { first_row, first_column: first, width });
            }
        }
        result.map_err(|error| (first, error))
    }

    /// All columns of the last rows.
    fn last(&self, num_rows: u64) -> Result<Box<[Selection]>, Error> {
        let all = self.steps.num_rows();
        let first = all.saturating_sub(num_rows);
        let Some(form) = self.forms.last() else { return Ok(Box::default()) };
        if form.first_row > first {
            return Err(Error::invalid(format!(
                "the last {num_rows} steps do not all have the same dtypes and shapes: the last {} do",
                all - form.first_row
            )));
        }
        let columns = (form.first_column..form.first_column + form.width).map(|column| {
            self.steps
                .select(column, first..all, false)
                .map_err(|_| Error::invalid("`num_timesteps` must be <= `max_timesteps`"))
        });
        columns.collect()
    }
}
