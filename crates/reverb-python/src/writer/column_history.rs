//! `reverb.trajectory_writer._ColumnHistory`: the rows of a writer, from which trajectories are made.

use super::trajectory_writer::TrajectoryWriter;
use crate::column::{CellRef, Rows, TrajectoryColumn, missing};
use parking_lot::MutexGuard;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
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
        let mut missing_row = false;
        rows.for_each(|row| {
            match steps.cell(self.column, row) {
                Some(cell) => selection.push(cell),
                None => missing_row = true,
            }
            Ok(())
        })?;
        if missing_row {
            let mut found = Vec::new();
            rows.for_each(|row| {
                found.push(if steps.cell(self.column, row).is_some() { "CellRef" } else { "None" });
                Ok(())
            })?;
            drop(steps);
            let path = self.path.bind(py).add(PyTuple::new(py, [key])?)?.repr()?.to_string();
            return Err(missing(&path, &format!("[{}]", found.join(", "))));
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
