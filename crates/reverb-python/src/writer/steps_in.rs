//! Converts a step from Python: the columns of the writer that its leaves belong to, and their values.

use crate::array_in::{Leaf, LeafRows, leaf};
use crate::errors::{PyReverbError, PyReverbResult};
use crate::nest::flatten_and_hash;
use parking_lot::Mutex;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use reverb_core::Error;
use reverb_core::writer::{AppendError, ColumnValue};
use std::sync::Arc;

/// What to write where the rows of a column differ in length.
const OTHER_LENGTH: &str = "Rows of a column may differ in length where they are given as a `reverb.Ragged(values, \
                            row_lengths)`: one row is `reverb.Ragged(row, np.array([len(row)]))`.";

/// Structures of steps that are remembered; a program has few.
const KEPT_STRUCTURES: usize = 16;

/// A column that a step adds, and its options: the number of values kept, and the rows of a chunk.
pub type NewColumn = (u32, (u32, Option<u32>));

/// The structure of a writer's steps. Python keeps it, and knows how a step of a new structure joins those before.
pub struct Structure {
    /// It has three methods. `columns_of(step)` returns the columns that the leaves of a step belong to, and the
    /// options of new columns. `commit()` accepts the last of these steps. `path(column)` returns the path of a column
    /// as text.
    object: Py<PyAny>,
    /// The columns of steps that were accepted, by the hash of their structure.
    known: Mutex<Vec<(u64, Arc<[u32]>)>>,
}

/// A step whose leaves were converted.
pub struct Step<'py> {
    columns: Arc<[u32]>,
    objects: Vec<Bound<'py, PyAny>>,
    /// The leaves that are not `None`, each with its index.
    leaves: Vec<(usize, Leaf<'py>)>,
    /// What the step adds to the structure; `None` if a step like it was accepted before.
    additions: Option<Additions>,
}

/// See [`Structure::accept`].
struct Additions {
    hash: Option<u64>,
    columns: Vec<NewColumn>,
}

impl Structure {
    pub fn new(object: Py<PyAny>) -> Self {
        Self { object, known: Mutex::default() }
    }

    /// Flattens a step and converts its leaves. The structure does not change until [`Structure::accept`] is called.
    pub fn step<'py>(&self, data: &Bound<'py, PyAny>) -> PyReverbResult<Step<'py>> {
        let mut objects = Vec::with_capacity(8);
        let hash = flatten_and_hash(data, &mut objects)?;
        let (columns, additions) = self.columns(data, hash)?;
        if columns.len() != objects.len() {
            return Err(PyTypeError::new_err("the leaves of the step changed while it was read").into());
        }
        let mut leaves = Vec::with_capacity(objects.len());
        for (index, object) in objects.iter().enumerate() {
            if object.is_none() {
                continue;
            }
            let leaf = leaf(object.clone()).map_err(|error| match error {
                PyReverbError::Python(error) if error.is_instance_of::<PyTypeError>(data.py()) => {
                    let path = self.path(data.py(), columns[index]);
                    let named = PyTypeError::new_err(format!("column {path}: {}", error.value(data.py())));
                    named.set_cause(data.py(), error.cause(data.py()));
                    named.into()
                }
                PyReverbError::Core(Error::InvalidArgument(text)) => {
                    Error::invalid(format!("column {}: {text}", self.path(data.py(), columns[index]))).into()
                }
                other => other,
            })?;
            leaves.push((index, leaf));
        }
        Ok(Step { columns, objects, leaves, additions })
    }

    fn columns(&self, data: &Bound<'_, PyAny>, hash: Option<u64>) -> PyReverbResult<(Arc<[u32]>, Option<Additions>)> {
        if let Some(hash) = hash {
            let known = self.known.lock();
            if let Some((_, columns)) = known.iter().find(|(known, _)| *known == hash) {
                return Ok((columns.clone(), None));
            }
        }
        let found = self.object.bind(data.py()).call_method1("columns_of", (data,))?;
        let (columns, new): (Vec<u32>, Vec<NewColumn>) = found.extract()?;
        Ok((columns.into(), Some(Additions { hash, columns: new })))
    }

    /// Enters into the structure what an appended step adds to it.
    pub fn accept(&self, py: Python<'_>, step: &Step<'_>) -> PyReverbResult<()> {
        let Some(additions) = &step.additions else { return Ok(()) };
        self.object.bind(py).call_method0("commit")?;
        if let Some(hash) = additions.hash {
            let mut known = self.known.lock();
            if known.len() == KEPT_STRUCTURES {
                known.remove(0);
            }
            known.push((hash, step.columns.clone()));
        }
        Ok(())
    }

    /// The path of a column as text.
    pub fn path(&self, py: Python<'_>, column: u32) -> String {
        let path = self.object.bind(py).call_method1("path", (column,)).and_then(|path| path.extract::<String>());
        path.unwrap_or_else(|_| format!("number {column}"))
    }
}

impl Step<'_> {
    /// The columns to configure once the step has been checked, before it is appended.
    pub fn new_columns(&self) -> &[NewColumn] {
        self.additions.as_ref().map_or(&[], |additions| &additions.columns)
    }

    /// The values, for [`reverb_core::writer::StepBuffer::append`].
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], naming the column, if a value holds the rows of several steps.
    pub fn values(&self, py: Python<'_>, structure: &Structure) -> Result<Vec<ColumnValue<'_>>, Error> {
        let mut values = Vec::with_capacity(self.leaves.len());
        for (index, leaf) in &self.leaves {
            let column = self.columns[*index];
            let named = |text| Error::invalid(format!("column {}: {text}", structure.path(py, column)));
            leaf.check_one_step().map_err(named)?;
            values.push(ColumnValue { column, value: leaf.value(), opens_rows: leaf.is_ragged() });
        }
        Ok(values)
    }

    /// The values of `count` environments, which are stacked along the first axis: for each leaf its column and rows.
    pub fn rows(
        &self,
        py: Python<'_>,
        count: usize,
        structure: &Structure,
    ) -> PyReverbResult<Vec<(u32, LeafRows<'_>)>> {
        let mut all = Vec::with_capacity(self.leaves.len());
        for (index, leaf) in &self.leaves {
            let column = self.columns[*index];
            let rows = LeafRows::new(leaf, count)?.ok_or_else(|| {
                let got = leaf.shape_text();
                Error::invalid(format!(
                    "column {}: expected an array of shape [{count}, ...], a row for each environment, got {got}",
                    structure.path(py, column)
                ))
            })?;
            all.push((column, rows));
        }
        Ok(all)
    }

    /// An error of this step, with the paths of columns in place of their numbers.
    pub fn describe(&self, py: Python<'_>, structure: &Structure, error: AppendError) -> Error {
        let value = |column| {
            let index = self.columns.iter().position(|&other| other == column);
            index.map_or_else(String::new, |index| self.objects[index].to_string())
        };
        describe(error, |column| structure.path(py, column), value)
    }
}

/// An error for users, who identify columns by their path in a step and values by their text.
pub fn describe(error: AppendError, path: impl Fn(u32) -> String, value: impl Fn(u32) -> String) -> Error {
    let is_other_length = error.is_other_length();
    match error.describe(path, value) {
        Error::InvalidArgument(text) if is_other_length => Error::invalid(format!("{text}\n{OTHER_LENGTH}")),
        error => error,
    }
}
