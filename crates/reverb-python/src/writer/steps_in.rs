//! A step from Python: which of a writer's columns its leaves belong to, and their values.

use crate::array_in::{Leaf, LeafRows, leaf};
use crate::errors::{PyReverbError, PyReverbResult};
use crate::nest::flatten_with_form;
use parking_lot::Mutex;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use reverb_core::Error;
use reverb_core::writer::{AppendError, ColumnValue};
use std::sync::Arc;

/// Forms of steps that are remembered; a program has few.
const KEPT_FORMS: usize = 16;

/// A column that a step adds, and its options: values kept, and rows of a chunk.
pub type NewColumn = (u32, (u32, Option<u32>));

/// The structure of a writer's steps, kept in Python: it knows how a new form of step joins those before.
pub struct Structure {
    /// `columns_of(step)`: the columns that its leaves belong to, and options of new ones; `commit()`: that step was taken;
    /// `path(column)`: of a column, as text.
    object: Py<PyAny>,
    forms: Mutex<Vec<(u64, Arc<[u32]>)>>,
}

/// A step whose leaves were converted.
pub struct Step<'py> {
    columns: Arc<[u32]>,
    objects: Vec<Bound<'py, PyAny>>,
    /// With the index of the leaf; leaves that are `None` are left out.
    leaves: Vec<(usize, Leaf<'py>)>,
    /// What the step adds to the structure; `None` if its form is known.
    news: Option<News>,
}

/// See [`Structure::accept`].
struct News {
    form: Option<u64>,
    columns: Vec<NewColumn>,
}

impl Structure {
    pub fn new(object: Py<PyAny>) -> Self {
        Self { object, forms: Mutex::default() }
    }

    /// Flattens a step and converts its leaves. Until [`Structure::accept`], it leaves no trace.
    pub fn step<'py>(&self, data: &Bound<'py, PyAny>) -> PyReverbResult<Step<'py>> {
        let mut objects = Vec::with_capacity(8);
        let form = flatten_with_form(data, &mut objects)?;
        let (columns, news) = self.columns(data, form)?;
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
                other => other,
            })?;
            leaves.push((index, leaf));
        }
        Ok(Step { columns, objects, leaves, news })
    }

    fn columns(&self, data: &Bound<'_, PyAny>, form: Option<u64>) -> PyReverbResult<(Arc<[u32]>, Option<News>)> {
        if let Some(form) = form {
            let forms = self.forms.lock();
            if let Some((_, columns)) = forms.iter().find(|(known, _)| *known == form) {
                return Ok((columns.clone(), None));
            }
        }
        let found = self.object.bind(data.py()).call_method1("columns_of", (data,))?;
        let (columns, new): (Vec<u32>, Vec<NewColumn>) = found.extract()?;
        Ok((columns.into(), Some(News { form, columns: new })))
    }

    /// The step was taken: enters what it adds to the structure.
    pub fn accept(&self, py: Python<'_>, step: &Step<'_>) -> PyReverbResult<()> {
        let Some(news) = &step.news else { return Ok(()) };
        self.object.bind(py).call_method0("commit")?;
        if let Some(form) = news.form {
            let mut forms = self.forms.lock();
            if forms.len() == KEPT_FORMS {
                forms.remove(0);
            }
            forms.push((form, step.columns.clone()));
        }
        Ok(())
    }

    /// The path of a column, as text.
    pub fn path(&self, py: Python<'_>, column: u32) -> String {
        let path = self.object.bind(py).call_method1("path", (column,)).and_then(|path| path.extract::<String>());
        path.unwrap_or_else(|_| format!("number {column}"))
    }
}

impl Step<'_> {
    /// Columns that are to be configured before the step is appended.
    pub fn new_columns(&self) -> &[NewColumn] {
        self.news.as_ref().map_or(&[], |news| &news.columns)
    }

    /// The values, for [`reverb_core::writer::StepBuffer::append`].
    pub fn values(&self) -> Vec<ColumnValue<'_>> {
        self.leaves
            .iter()
            .map(|(index, leaf)| ColumnValue { column: self.columns[*index], value: leaf.value() })
            .collect()
    }

    /// The values of `count` environments, stacked along the first axis: for each leaf its column and rows.
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
                let got = reverb_core::shape_text(leaf.value().shape);
                Error::invalid(format!(
                    "column {}: expected an array of shape [{count}, ...], a row for each environment, got shape {got}",
                    structure.path(py, column)
                ))
            })?;
            all.push((column, rows));
        }
        Ok(all)
    }

    /// An error of this step, with the names that people know.
    pub fn describe(&self, py: Python<'_>, structure: &Structure, error: AppendError) -> Error {
        let value = |column| {
            let index = self.columns.iter().position(|&other| other == column);
            index.map_or_else(String::new, |index| self.objects[index].to_string())
        };
        error.describe(|column| structure.path(py, column), value)
    }
}
