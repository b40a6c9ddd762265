//! `reverb._rust.ItemIterator`: cuts a batch into its items, or these into their steps.

use crate::array_out::BatchMemory;
use crate::batch_maker::BatchMaker;
use crate::column_rows::ColumnRows;
use crate::records::{REPLAY_SAMPLE, SAMPLE_INFO};
use crate::sampled_batch::SampledBatch;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use reverb_core::gather::BatchColumn;
use reverb_core::{BatchInfo, for_each_fact};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Iterates over the items of a batch.
#[pyclass(frozen, module = "reverb._rust")]
pub struct ItemIterator {
    sampled: Py<SampledBatch>,
    maker: Py<BatchMaker>,
    columns: Vec<ItemColumn>,
    of_steps: bool,
    next: AtomicUsize,
}

/// A column, and where the rows of each item lie in it.
struct ItemColumn {
    rows: ColumnRows,
    extents: Extents,
    /// An item is one row, which the extents describe: whether it has a time axis.
    open_row: Option<bool>,
}

enum Extents {
    /// An item is one row.
    One,
    /// Every item has as many rows.
    Same(usize),
    /// Items differ: item `i` has the rows from `[i]` to `[i + 1]`.
    Bounds(Vec<usize>),
}

#[pymethods]
impl ItemIterator {
    #[new]
    #[pyo3(signature = (sampled, maker, *, of_steps))]
    fn new(py: Python<'_>, sampled: Py<SampledBatch>, maker: Py<BatchMaker>, of_steps: bool) -> PyResult<Self> {
        let batch = sampled.get();
        let memory = Bound::new(py, BatchMemory(batch.buffer.clone()))?;
        let chosen = maker.get().chosen(&batch.layout)?;
        if of_steps && chosen.iter().any(|column| column.squeezed) {
            return Err(not_steps());
        }
        let column = |column: &BatchColumn| ItemColumn::new(&memory, column, of_steps);
        let columns = chosen.iter().map(column).collect::<PyResult<_>>()?;
        Ok(Self { sampled, maker, columns, of_steps, next: AtomicUsize::new(0) })
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let infos = &self.sampled.get().infos.get().0;
        let item = self.next.fetch_add(1, Relaxed);
        if item >= infos.len() {
            return Ok(None);
        }
        if !self.of_steps {
            let leaves = self.columns.iter().map(|column| column.item(py, item)).collect::<PyResult<_>>()?;
            return self.sample(info(py, infos, item)?, leaves).map(Some);
        }
        let num_steps = self.num_steps(item)?;
        let info = info(py, infos, item)?;
        let step = |step| {
            let leaves = self.columns.iter().map(|column| column.step(py, item, step)).collect::<PyResult<_>>()?;
            self.sample(info.clone(), leaves)
        };
        let steps = (0..num_steps).map(step).collect::<PyResult<Vec<_>>>()?;
        Ok(Some(PyList::new(py, steps)?.into_any()))
    }
}

impl ItemIterator {
    /// A `ReplaySample`.
    fn sample<'py>(&self, info: Bound<'py, PyAny>, leaves: Vec<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let py = info.py();
        REPLAY_SAMPLE.make(py, [info, self.maker.get().data_of(py, leaves)?])
    }

    /// The number of steps of an item, of which all columns must have as many.
    fn num_steps(&self, item: usize) -> PyResult<usize> {
        let mut lengths = self.columns.iter().map(|column| column.num_steps(item));
        let length = lengths.next().ok_or_else(not_steps)?;
        if lengths.any(|other| other != length) { Err(not_steps()) } else { Ok(length) }
    }
}

impl ItemColumn {
    fn new(memory: &Bound<'_, BatchMemory>, column: &BatchColumn, of_steps: bool) -> PyResult<Self> {
        let (axes, extents) = match &column.row_lengths {
            Some(lengths) => (1, Extents::between(lengths)),
            None if of_steps => (2, Extents::Same(column.shape[1])),
            None => (1, Extents::One),
        };
        let open_row = column.has_open_rows.then_some(!column.squeezed);
        Ok(Self { rows: ColumnRows::new(memory, column, axes)?, extents, open_row })
    }

    fn num_steps(&self, item: usize) -> usize {
        if self.open_row.is_some() { 1 } else { self.extents.of(item).1 }
    }

    fn item<'py>(&self, py: Python<'py>, item: usize) -> PyResult<Bound<'py, PyAny>> {
        match self.extents {
            Extents::One => self.rows.one(py, item),
            _ => {
                let (first, count) = self.extents.of(item);
                let rows = self.rows.run(py, first, count)?;
                // The time axis of a single row.
                if self.open_row == Some(true) { rows.get_item((py.None(), py.Ellipsis())) } else { Ok(rows) }
            }
        }
    }

    fn step<'py>(&self, py: Python<'py>, item: usize, step: usize) -> PyResult<Bound<'py, PyAny>> {
        let (first, count) = self.extents.of(item);
        if self.open_row.is_some() { self.rows.run(py, first, count) } else { self.rows.one(py, first + step) }
    }
}

impl Extents {
    fn between(lengths: &[u32]) -> Self {
        let mut end = 0;
        let ends = lengths.iter().map(|&length| {
            end += length as usize;
            end
        });
        Self::Bounds(std::iter::once(0).chain(ends).collect())
    }

    /// The first row of an item, and how many it has.
    fn of(&self, item: usize) -> (usize, usize) {
        match self {
            Self::One => (item, 1),
            Self::Same(count) => (item * count, *count),
            Self::Bounds(bounds) => (bounds[item], bounds[item + 1] - bounds[item]),
        }
    }
}

/// A `SampleInfo` of Python's numbers.
fn info<'py>(py: Python<'py>, infos: &BatchInfo, item: usize) -> PyResult<Bound<'py, PyAny>> {
    macro_rules! numbers {
        ($($(#[$doc:meta])* $fact:ident, $column:ident: $type:ty = $dtype:ident;)*) => {
            [$(infos.$column()[item].into_bound_py_any(py)?),*]
        };
    }
    SAMPLE_INFO.make(py, for_each_fact!(numbers))
}

fn not_steps() -> PyErr {
    // The text is dm-reverb's.
    PyValueError::new_err("Can't split non timestep trajectory into timesteps.")
}
