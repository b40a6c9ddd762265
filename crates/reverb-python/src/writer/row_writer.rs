//! `reverb._rust.RowWriter`: behind dm-reverb's older writer, whose items are all columns of the last steps.

use super::session::{WriterOptions, WriterSession};
use super::signatures::{FlatSignatures, Signatures, find_signature, to_signatures};
use super::steps_in::describe;
use crate::array_in::{Leaf, check_one_step, convert};
use crate::client::Client;
use crate::errors::PyReverbResult;
use crate::key_check::{KnownKeys, explain, reordered, skeleton};
use crate::nest::path;
use crate::priorities::Priority;
use parking_lot::Mutex;
use pyo3::prelude::*;
use reverb_core::Error;
use reverb_core::writer::{AppendError, ColumnValue, Selection, StepBuffer, WriterItem};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;

/// Appends rows, and makes items of the last of them.
#[pyclass(frozen, extends = WriterSession, module = "reverb._rust")]
pub struct RowWriter {
    rows: Mutex<Rows>,
    session: WriterSession,
    signatures: Mutex<Signatures>,
    /// The structures of rows of which items were created.
    keys: KnownKeys,
    max_in_flight: usize,
    max_length: u64,
}

struct Rows {
    steps: StepBuffer,
    /// The shapes that consecutive runs of rows had. The shape may change between chunks.
    shapes: Vec<RowShape>,
    /// The structures that consecutive runs of rows had.
    structures: VecDeque<RowStructure>,
}

/// A run of rows with the same structure.
struct RowStructure {
    first_row: u64,
    /// `None` if it is unknown whether the rows have the structure of those before.
    hash: Option<u64>,
    /// The nest of a row, without its values.
    nest: Arc<Py<PyAny>>,
}

/// The hash of the structure of rows, and the nest of a row without its values.
type RowNest = (Option<u64>, Arc<Py<PyAny>>);

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
        max_sequence_length: u32,
        signatures: FlatSignatures,
        options: WriterOptions,
    ) -> PyReverbResult<PyClassInitializer<Self>> {
        // The writer itself waits for items in flight, after it has appended a row.
        let unlimited = WriterOptions { max_in_flight_items: None, ..options };
        // Its `close` waits as long as its `flush`.
        let hint = "To give up: Ctrl-C, or `flush(timeout=...)`.";
        let (session, steps) = unlimited.open(client, max_sequence_length, hint)?;
        let writer = Self {
            rows: Mutex::new(Rows { steps, shapes: Vec::new(), structures: VecDeque::new() }),
            session: session.clone(),
            signatures: Mutex::new(to_signatures(signatures)?),
            keys: KnownKeys::default(),
            max_in_flight: options.max_in_flight_items.unwrap_or(usize::MAX),
            max_length: u64::from(max_sequence_length),
        };
        Ok(PyClassInitializer::from(session).add_subclass(writer))
    }

    fn set_signatures(&self, signatures: FlatSignatures) -> PyReverbResult<()> {
        *self.signatures.lock() = to_signatures(signatures)?;
        self.keys.clear();
        Ok(())
    }

    fn append(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyReverbResult<()> {
        let must_report = self.session.begin()?;
        let (leaves, structure) = convert(data)?;
        check_one_step(data, &leaves)?;
        let (appended, is_new) = {
            let mut rows = self.rows.lock();
            (
                rows.append(&leaves),
                structure.is_none() || rows.structures.back().is_none_or(|run| run.hash != structure),
            )
        };
        appended.map_err(|(first, error)| {
            describe(error, |column| path(data, (column - first) as usize), |_| String::new())
        })?;
        if is_new {
            let nest = Arc::new(skeleton(data).map_err(|error| error.after_step(py))?);
            self.rows.lock().begin_structure(structure, nest, self.max_length);
        }
        self.session.pump();
        if must_report {
            self.session.report(py)?;
        }
        self.session.wait_in_flight(py, self.max_in_flight)
    }

    fn create_item(
        &self,
        py: Python<'_>,
        table: &Bound<'_, PyAny>,
        num_timesteps: u64,
        priority: Priority,
    ) -> PyReverbResult<u64> {
        let (table, priority) = (self.session.table(table)?, self.session.priority(priority));
        self.session.reach(py, None)?;
        let (writer, slots, mut columns, structures) = {
            let rows = self.rows.lock();
            let columns = rows.last(num_timesteps)?;
            let slots = self.session.key_slots(&rows.steps);
            (rows.steps.writer(), slots, columns, rows.last_structures(num_timesteps))
        };
        let item = {
            // The lock is released before Python compares keys.
            let signature = find_signature(&self.signatures.lock(), &table)?;
            if let Some(signature) = &signature {
                let id = |hash: Option<u64>| hash.map(|hash| KnownKeys::id(hash, &table, 0));
                let order = |(hash, nest): &RowNest| self.keys.order(id(*hash), nest.bind(py), signature);
                let mut orders = structures.iter().map(order);
                let order = orders.next().unwrap_or(Ok(None))?;
                for other in orders {
                    if other? != order {
                        return Err(Error::SignatureMismatch(format!(
                            "table \"{table}\": expected the steps of an item to have their fields in one order, got several"
                        ))
                        .into());
                    }
                }
                columns = reordered(columns.into_vec(), &order)?.into();
                let types: Vec<_> = columns.iter().filter_map(Selection::cell_type).collect();
                let fits = signature.check_row_types(&table, &types, num_timesteps as usize);
                for (hash, nest) in &structures {
                    let known = (id(*hash), &order);
                    self.keys.check(known, &table, nest.bind(py), Some(signature), || fits.clone().err())?;
                }
                fits.map_err(|error| match structures.last() {
                    Some((_, nest)) => explain(error, nest.bind(py), Some(signature), false),
                    None => error,
                })?;
            }
            WriterItem::new(table, priority, columns, writer, slots, None)?
        };
        let key = item.key;
        self.session.take_room_of_call(py, 1, None)?;
        self.session.push(py, [item])?;
        self.session.wait_in_flight(py, self.max_in_flight)?;
        Ok(key)
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
            let leaves = leaves.iter().zip(first..);
            let values = leaves.map(|(leaf, column)| (column, leaf.value(), leaf.is_ragged()));
            values.map(|(column, value, opens_rows)| ColumnValue { column, value, opens_rows }).collect()
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

    /// Records that the row that was appended last begins a run of a new structure. Forgets runs of which no item can
    /// be made.
    fn begin_structure(&mut self, hash: Option<u64>, nest: Arc<Py<PyAny>>, max_length: u64) {
        let first_row = self.steps.num_rows().saturating_sub(1);
        self.structures.push_back(RowStructure { first_row, hash, nest });
        while self.structures.get(1).is_some_and(|second| second.first_row + max_length <= first_row) {
            self.structures.pop_front();
        }
    }

    /// The structures of the last rows.
    fn last_structures(&self, num_rows: u64) -> SmallVec<[RowNest; 1]> {
        let first = self.steps.num_rows().saturating_sub(num_rows);
        let mut ends = self.structures.iter().skip(1).map(|next| next.first_row);
        let runs = self.structures.iter().filter(|_| ends.next().is_none_or(|end| end > first));
        runs.map(|run| (run.hash, run.nest.clone())).collect()
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
