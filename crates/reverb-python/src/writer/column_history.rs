//! `reverb.trajectory_writer._ColumnHistory`: the rows of a writer, from which trajectories are made.

use super::trajectory_writer::TrajectoryWriter;
use crate::column::{CellRef, Rows, TrajectoryColumn, missing};
use crate::errors::PyReverbError;
use parking_lot::MutexGuard;
use pyo3::prelude::*;
use pyo3::types::{PyList, PySlice, PyTuple};
use reverb_core::Error;
use reverb_core::writer::{CellRun, Selection, StepBuffer};

/// The live view of one column of a writer.
#[pyclass(frozen, module = "reverb.trajectory_writer", name = "_ColumnHistory")]
pub struct ColumnHistory {
    writer: Py<TrajectoryWriter>,
    column: u32,
    path: Py<PyTuple>,
}

#[pymethods]
impl ColumnHistory {
    #[new]
    fn new(writer: Py<TrajectoryWriter>, column: u32, path: Py<PyTuple>) -> Self {
        Self { writer, column, path }
    }

    fn __len__(&self) -> usize {
        self.steps().num_rows() as usize
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.references(py)?.call_method0("__iter__")
    }

    fn __getitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<TrajectoryColumn> {
        // An index may be an object whose methods are Python code, which must not run under the lock.
        let num_rows = self.steps().num_rows();
        let (rows, squeeze) = Rows::of(key, num_rows, "_ColumnHistory")?;
        let steps = self.steps();
        let mut selection = Selection { squeeze, ..Selection::default() };
        let mut missing_row = None;
        rows.for_each(|row| {
            match steps.cell(self.column, row) {
                Some(cell) => selection.push(cell),
                None => missing_row = missing_row.or(Some(row)),
            }
            Ok(())
        })?;
        if let Some(row) = missing_row {
            let steps_kept = steps.steps_kept(self.column).map_or(0, u64::from);
            let num_rows = steps.num_rows();
            let mut found = Vec::new();
            rows.for_each(|row| {
                found.push(if steps.cell(self.column, row).is_some() { "CellRef" } else { "None" });
                Ok(())
            })?;
            drop(steps);
            let reason = self.why_missing(py, key, squeeze, row, steps_kept, num_rows)?;
            let path = self.path.bind(py).add(PyTuple::new(py, [key])?)?.repr()?.to_string();
            let text = missing(&path, &format!("[{}]", found.join(", ")));
            return Err(PyReverbError::from(Error::invalid(format!("{reason}. {text}"))).into());
        }
        Ok(TrajectoryColumn(selection))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let path = self.path.bind(py).repr()?;
        let references = self.references(py)?.repr()?;
        Ok(format!("reverb.trajectory_writer._ColumnHistory(path={path}, refs={references})"))
    }
}

impl ColumnHistory {
    fn steps(&self) -> MutexGuard<'_, StepBuffer> {
        self.writer.get().steps.lock()
    }

    /// Says why a selected row has no value. `key` is the index of the program, and `row` the first such row.
    fn why_missing(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        is_one: bool,
        row: u64,
        steps_kept: u64,
        num_rows: u64,
    ) -> PyResult<String> {
        let names = self.path.bind(py).iter().map(|name| Ok(name.str()?.to_string()));
        let names = names.collect::<PyResult<Vec<_>>>()?;
        let name = if names.is_empty() { "history".to_owned() } else { names.join("/") };
        let from_newest = row as i64 - num_rows as i64;
        let selected = format!("{name}[{}]", index_text(key)?);
        let kept = format!("kept no longer; num_keep_alive_refs={steps_kept} and {num_rows} steps were appended");
        Ok(match (row + steps_kept >= num_rows, is_one) {
            (false, true) => format!("{selected}: {kept}"),
            (false, false) => format!("{selected}: {name}[{from_newest}] is {kept}"),
            (true, true) if from_newest == -1 => format!("{name} has no value in this step"),
            (true, true) => format!("{selected}: {name} has no value in this step"),
            (true, false) => format!("{selected}: {name}[{from_newest}] has no value"),
        })
    }

    fn references<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let cells: Vec<Option<CellRun>> = {
            let steps = self.steps();
            (0..steps.num_rows()).map(|row| steps.cell(self.column, row)).collect()
        };
        let cells: PyResult<Vec<_>> =
            cells.into_iter().map(|cell| cell.map(|cell| Py::new(py, CellRef(cell))).transpose()).collect();
        PyList::new(py, cells?)
    }
}

/// An index as the program has probably written it.
fn index_text(key: &Bound<'_, PyAny>) -> PyResult<String> {
    if !key.is_instance_of::<PySlice>() {
        return Ok(key.repr()?.to_string());
    }
    let part = |name| {
        let part = key.getattr(name)?;
        if part.is_none() { Ok(String::new()) } else { Ok::<_, PyErr>(part.repr()?.to_string()) }
    };
    let (start, stop, step) = (part("start")?, part("stop")?, part("step")?);
    Ok(if step.is_empty() { format!("{start}:{stop}") } else { format!("{start}:{stop}:{step}") })
}
