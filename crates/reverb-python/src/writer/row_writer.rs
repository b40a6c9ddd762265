//! `reverb._rust.RowWriter`: behind dm-reverb's older writer, whose items are all columns of the last steps.

use super::session::{CompressionOptions, DiscardedItems, Limits, WriterSession, parse_compression};
use super::signatures::{FlatSignatures, Signatures, find_signature, to_signatures};
use crate::array_in::{Leaf, leaf};
use crate::client::Client;
use crate::errors::{PyReverbError, PyReverbResult};
use crate::nest::{flatten, path};
use parking_lot::Mutex;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use reverb_core::Error;
use reverb_core::writer::{AppendError, ColumnOptions, ColumnValue, DroppedChunks, Selection, StepBuffer, WriterItem};

/// Appends rows, and makes items of the last of them.
#[pyclass(frozen, module = "reverb._rust")]
pub struct RowWriter {
    rows: Mutex<Rows>,
    session: WriterSession,
    signatures: Mutex<Signatures>,
    max_in_flight: usize,
}

struct Rows {
    steps: StepBuffer,
    /// The shapes that consecutive runs of rows had. The shape may change between chunks.
    shapes: Vec<RowShape>,
}

/// A run of rows with the same columns.
struct RowShape {
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
        signatures: FlatSignatures,
        compression: CompressionOptions,
        limits: Limits,
    ) -> PyReverbResult<Self> {
        let compression = parse_compression(compression)?;
        let dropped = DroppedChunks::default();
        let (max_sequence_length, chunk_length) = lengths;
        let options = ColumnOptions { num_keep_alive_refs: max_sequence_length, max_chunk_length: Some(chunk_length) };
        Ok(Self {
            rows: Mutex::new(Rows {
                steps: StepBuffer::new(options, compression, dropped.clone())?,
                shapes: Vec::new(),
            }),
            session: WriterSession::new(client.background().clone(), limits, dropped),
            signatures: Mutex::new(to_signatures(signatures)?),
            max_in_flight,
        })
    }

    fn set_signatures(&self, signatures: FlatSignatures) -> PyReverbResult<()> {
        *self.signatures.lock() = to_signatures(signatures)?;
        Ok(())
    }

    fn append(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyReverbResult<()> {
        self.session.check()?;
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
        self.session.pump();
        self.session.wait_in_flight(py, self.max_in_flight)
    }

    fn create_item(
        &self,
        py: Python<'_>,
        table: &Bound<'_, PyAny>,
        num_timesteps: u64,
        priority: f64,
    ) -> PyReverbResult<()> {
        let table = self.session.table(table)?;
        let (writer, columns) = {
            let rows = self.rows.lock();
            (rows.steps.writer(), rows.last(num_timesteps)?)
        };
        let item = {
            let signatures = self.signatures.lock();
            if let Some(signature) = find_signature(&signatures, &table)? {
                let types: Vec<_> = columns.iter().filter_map(Selection::cell_type).collect();
                signature.check_row_types(&table, &types, num_timesteps as usize)?;
            }
            WriterItem::new(table, priority, columns, writer, None)?
        };
        self.session.push(py, [item])?;
        self.session.wait_in_flight(py, self.max_in_flight)
    }

    fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyReverbResult<()> {
        // `close` waits as long as `flush`.
        self.session.flush(py, 0, timeout, "To give up: Ctrl-C, or `flush(timeout=...)`.")
    }

    fn drain(&self, py: Python<'_>, patience: f64) -> PyReverbResult<bool> {
        self.session.drain(py, patience)
    }

    fn close(&self, py: Python<'_>, patience: f64) -> PyReverbResult<Option<DiscardedItems>> {
        self.session.close(py, patience)
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

    #[getter]
    fn num_steps(&self) -> i32 {
        self.rows.lock().steps.episode_steps()
    }

    #[getter]
    fn episode_id(&self) -> u64 {
        self.rows.lock().steps.episode_id()
    }
}

impl Rows {
    /// Adds a row. Columns are numbered from the first column of the current shape, whose number comes with an error.
    fn append(&mut self, leaves: &[Leaf<'_>]) -> Result<(), (u32, AppendError)> {
        let width = leaves.len() as u32;
        let mut first = self.shapes.last().map_or(0, |shape| shape.first_column);
        let values = |first: u32| -> Vec<_> {
            leaves.iter().zip(first..).map(|(leaf, column)| ColumnValue { column, value: leaf.value() }).collect()
        };
        let mut result = match self.shapes.last() {
            Some(shape) if shape.width == width => self.steps.append(&values(first), false),
            Some(shape) => Err(AppendError::Other(Error::invalid(format!(
                "Number of tensors per timestep was inconsistent. Previously it was {}, but is now {width}.",
                shape.width
            )))),
            None => Ok(()),
        };
        // Between two chunks rows may take another shape.
        if self.shapes.is_empty() || result.is_err() && !self.steps.has_open_rows() {
            first = self.shapes.last().map_or(0, |shape| shape.first_column + shape.width);
            let first_row = self.steps.num_rows();
            result = self.steps.append(&values(first), false);
            if result.is_ok() {
                self.shapes.push(RowShape { first_row, first_column: first, width });
            }
        }
        result.map_err(|error| (first, error))
    }

    /// All columns of the last rows.
    fn last(&self, num_rows: u64) -> Result<Box<[Selection]>, Error> {
        let all = self.steps.num_rows();
        let first = all.saturating_sub(num_rows);
        let Some(shape) = self.shapes.last() else { return Ok(Box::default()) };
        if shape.first_row > first {
            return Err(Error::invalid(format!(
                "the last {num_rows} steps do not all have the same dtypes and shapes: the last {} do",
                all - shape.first_row
            )));
        }
        let columns = (shape.first_column..shape.first_column + shape.width).map(|column| {
            self.steps
                .select(column, first..all, false)
                .map_err(|_| Error::invalid("`num_timesteps` must be <= `max_timesteps`"))
        });
        columns.collect()
    }
}
