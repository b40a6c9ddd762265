//! The rows of a batch's column, each as an array of its own.

use crate::array_out::{BatchMemory, strings, view};
use pyo3::prelude::*;
use pyo3::types::{PySlice, PyTuple};
use reverb_core::gather::BatchColumn;
use reverb_core::{DType, Shape};
use std::iter::once;

/// The rows of a column, from which arrays are cut that share the batch's memory.
pub struct ColumnRows {
    source: Source,
    row_shape: Shape,
}

enum Source {
    Numbers(Numbers),
    /// An array of objects, `[rows, ...]`.
    Strings(Py<PyAny>),
}

struct Numbers {
    memory: Py<BatchMemory>,
    dtype: DType,
    /// The first byte of the column in the memory.
    offset: usize,
    num_rows: usize,
    row_bytes: usize,
}

impl ColumnRows {
    /// The rows of a column of the batch that lies in `memory`. Its first `axes` axes number them.
    pub fn new(memory: &Bound<'_, BatchMemory>, column: &BatchColumn, axes: usize) -> PyResult<Self> {
        let (outer, row_shape) = column.shape.split_at(axes);
        let num_rows: usize = outer.iter().product();
        let source = if column.dtype == DType::String {
            let shape = PyTuple::new(memory.py(), once(&num_rows).chain(row_shape).collect::<Vec<_>>())?;
            Source::Strings(strings(memory, column)?.call_method1("reshape", (shape,))?.unbind())
        } else {
            let row_bytes = column.dtype.size() * row_shape.iter().product::<usize>();
            let memory = memory.clone().unbind();
            Source::Numbers(Numbers { memory, dtype: column.dtype, offset: column.offset, num_rows, row_bytes })
        };
        Ok(Self { source, row_shape: Shape::from_slice(row_shape) })
    }

    /// One row: an array, even where the row is a scalar.
    pub fn one<'py>(&self, py: Python<'py>, row: usize) -> PyResult<Bound<'py, PyAny>> {
        match &self.source {
            Source::Strings(values) => values.bind(py).get_item((row, py.Ellipsis())),
            Source::Numbers(numbers) => numbers.view(py, row, 1, &self.row_shape),
        }
    }

    /// Consecutive rows: an array `[count, ...]`.
    pub fn run<'py>(&self, py: Python<'py>, first: usize, count: usize) -> PyResult<Bound<'py, PyAny>> {
        match &self.source {
            Source::Strings(values) => {
                values.bind(py).get_item(PySlice::new(py, first as isize, (first + count) as isize, 1))
            }
            Source::Numbers(numbers) => {
                let shape: Shape = once(count).chain(self.row_shape.iter().copied()).collect();
                numbers.view(py, first, count, &shape)
            }
        }
    }
}

impl Numbers {
    fn view<'py>(&self, py: Python<'py>, first: usize, count: usize, shape: &[usize]) -> PyResult<Bound<'py, PyAny>> {
        assert!(first + count <= self.num_rows, "a column of {} rows has no row {}", self.num_rows, first + count - 1);
        let memory = self.memory.bind(py);
        // SAFETY: the rows lie inside the column, which lies inside the buffer; `memory` owns that, and nobody else
        // writes to it.
        unsafe {
            let data = memory.get().0.as_ptr().add(self.offset + first * self.row_bytes);
            view(memory.as_any(), data, self.dtype, shape)
        }
    }
}
