//! `reverb.trajectory_writer.CellRef` and `TrajectoryColumn`: what a trajectory is made of.

use crate::dtype::to_numpy;
use crate::errors::{PyReverbError, PyReverbResult};
use numpy::{PyArray1, PyArrayDescr, PyArrayMethods};
use pyo3::exceptions::{PyIndexError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyInt, PyList, PySlice, PyTuple};
use reverb_core::writer::{CellData, CellRun, Selection};
use reverb_core::{ArrayType, DType, Error};

/// One value of one column.
#[pyclass(frozen, module = "reverb.trajectory_writer", name = "CellRef")]
pub struct CellRef(pub CellRun);

#[pymethods]
impl CellRef {
    #[getter]
    fn expired(&self) -> bool {
        self.0.expired()
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyReverbResult<Bound<'py, PyList>> {
        self.check()?;
        Ok(PyList::new(py, self.0.shape().iter())?)
    }

    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyReverbResult<Bound<'py, PyArrayDescr>> {
        self.check()?;
        Ok(to_numpy(py, self.0.column.dtype)?.clone())
    }

    fn numpy<'py>(&self, py: Python<'py>) -> PyReverbResult<Bound<'py, PyAny>> {
        self.check()?;
        Ok(to_array(py, self.0.column.dtype, self.0.shape(), vec![self.0.read()?])?)
    }

    fn __repr__(&self) -> String {
        let column = &self.0.column;
        let state = if self.0.expired() { ", expired" } else { "" };
        format!("CellRef(dtype={}, shape={:?}{state})", column.dtype, &self.0.shape()[..])
    }
}

impl CellRef {
    fn check(&self) -> PyResult<()> {
        if self.0.expired() {
            return Err(PyRuntimeError::new_err("Cannot access data from expired WeakCellRef"));
        }
        Ok(())
    }
}

/// A column of an item: references to values, in order.
#[pyclass(frozen, module = "reverb.trajectory_writer", name = "TrajectoryColumn")]
pub struct TrajectoryColumn(pub Selection);

#[pymethods]
impl TrajectoryColumn {
    #[new]
    #[pyo3(signature = (data_references, *, squeeze = false, path = None))]
    fn new(data_references: &Bound<'_, PyAny>, squeeze: bool, path: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let mut selection = Selection { squeeze, ..Selection::default() };
        let mut count = 0;
        let mut has_none = false;
        for reference in data_references.try_iter()? {
            let reference = reference?;
            count += 1;
            if reference.is_none() {
                has_none = true;
                continue;
            }
            let cell = reference.cast::<CellRef>().map_err(|_| {
                PyTypeError::new_err(format!("expected references to data, got {}", reference.get_type()))
            })?;
            selection.push(cell.get().0.clone());
        }
        if has_none {
            let path =
                path.map_or("None".to_owned(), |path| path.repr().map_or_else(|_| "?".into(), |r| r.to_string()));
            let text = missing(&path, &data_references.repr()?.to_string());
            return Err(PyReverbError::from(Error::invalid(text)).into());
        }
        if squeeze && count != 1 {
            return Err(PyValueError::new_err(format!(
                "Columns must contain exactly one data reference when squeeze set, got {count}"
            )));
        }
        Ok(Self(selection))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let cells = (0..self.0.len()).map(|index| CellRef(self.0.cell(index)));
        PyList::new(py, cells.map(|cell| Py::new(py, cell)).collect::<PyResult<Vec<_>>>()?)?.call_method0("__iter__")
    }

    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (rows, squeeze) = Rows::of(key, self.0.len() as u64, "TrajectoryColumn")?;
        let mut selection = Selection { squeeze, ..Selection::default() };
        rows.for_each(|row| {
            selection.push(self.0.cell(row as usize));
            Ok(())
        })?;
        Ok(Self(selection))
    }

    #[getter]
    fn is_squeezed(&self) -> bool {
        self.0.squeeze
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let array = self.0.array_type().ok_or_else(|| PyIndexError::new_err("an empty column has no shape"))?;
        PyTuple::new(py, array.shape)
    }

    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArrayDescr>> {
        let (dtype, _) = self.0.cell_type().ok_or_else(|| PyIndexError::new_err("an empty column has no dtype"))?;
        Ok(to_numpy(py, dtype)?.clone())
    }

    fn numpy<'py>(&self, py: Python<'py>) -> PyReverbResult<Bound<'py, PyAny>> {
        selection_to_array(py, &self.0)
    }

    fn __repr__(&self) -> String {
        let (dtype, shape) = self.0.array_type().map_or(("?", vec![]), |array| (array.dtype.name(), array.shape));
        format!("TrajectoryColumn(dtype={dtype}, shape={shape:?}, is_squeezed={})", self.0.squeeze)
    }
}

/// The error for a column in which a value is missing, in the words of dm-reverb.
pub fn missing(path: &str, references: &str) -> String {
    let text = "TrajectoryColumns cannot contain any None data references: TrajectoryColumn at path";
    format!("{text} {path} got {references}.")
}

/// The rows that an index selects, by the rules of lists.
pub enum Rows {
    Range { start: i64, step: i64, count: usize },
    List(Vec<u64>),
}

impl Rows {
    /// The rows, and whether the time axis is dropped. Errors call the indexed object `what`.
    pub fn of(key: &Bound<'_, PyAny>, len: u64, what: &str) -> PyResult<(Self, bool)> {
        if let Ok(slice) = key.cast::<PySlice>() {
            let indices = slice.indices(len as isize)?;
            let (start, step) = (indices.start as i64, indices.step as i64);
            return Ok((Self::Range { start, step, count: indices.slicelength }, false));
        }
        if let Ok(list) = key.cast::<PyList>() {
            let rows = list.iter().map(|index| row(&index, len, what)).collect::<PyResult<_>>()?;
            return Ok((Self::List(rows), false));
        }
        let row = row(key, len, what)?;
        Ok((Self::Range { start: row as i64, step: 1, count: 1 }, true))
    }

    pub fn for_each(&self, mut visit: impl FnMut(u64) -> PyResult<()>) -> PyResult<()> {
        match self {
            Self::Range { start, step, count } => {
                (0..*count as i64).try_for_each(|index| visit((start + index * step) as u64))
            }
            Self::List(rows) => rows.iter().try_for_each(|&row| visit(row)),
        }
    }
}

/// The number of a row. A negative index counts from the end.
fn row(key: &Bound<'_, PyAny>, len: u64, what: &str) -> PyResult<u64> {
    let index: i64 = match key.cast_exact::<PyInt>() {
        Ok(index) => index.extract()?,
        Err(_) => other_index(key, what)?,
    };
    let row = if index < 0 { index + len as i64 } else { index };
    if row < 0 || row >= len as i64 {
        return Err(PyIndexError::new_err(format!("list index out of range: {index} of {len} rows")));
    }
    Ok(row as u64)
}

/// An index that is not a plain int, such as an integer of NumPy.
fn other_index(key: &Bound<'_, PyAny>, what: &str) -> PyResult<i64> {
    // Arrays of one element have `__index__` too, but are not accepted.
    let is_array = key.hasattr("__array_priority__")? && !is_scalar(key);
    if is_array || !key.hasattr("__index__")? {
        return Err(PyTypeError::new_err(format!(
            "{what} indices must be integers, slices or lists of integers, not {}",
            key.get_type()
        )));
    }
    key.call_method0("__index__")?.extract()
}

fn is_scalar(key: &Bound<'_, PyAny>) -> bool {
    key.getattr("ndim").and_then(|ndim| ndim.extract::<usize>()).is_ok_and(|ndim| ndim == 0)
}

/// The values of a column, copied into a new array.
pub fn selection_to_array<'py>(py: Python<'py>, selection: &Selection) -> PyReverbResult<Bound<'py, PyAny>> {
    let Some(ArrayType { dtype, shape, .. }) = selection.array_type() else {
        return Err(PyValueError::new_err("need at least one array to stack").into());
    };
    if selection.runs.iter().any(CellRun::expired) {
        return Err(PyRuntimeError::new_err(
            "Cannot convert TrajectoryColumn with expired data references to numpy array.",
        )
        .into());
    }
    let first = selection.cell_type();
    if selection.runs.iter().any(|run| Some((run.column.dtype, run.shape())) != first) {
        return Err(Error::invalid("the column's values differ in dtype or shape").into());
    }
    let cells = selection.runs.iter().map(CellRun::read).collect::<Result<_, Error>>()?;
    Ok(to_array(py, dtype, &shape, cells)?)
}

/// An array with memory of its own.
fn to_array<'py>(py: Python<'py>, dtype: DType, shape: &[usize], data: Vec<CellData>) -> PyResult<Bound<'py, PyAny>> {
    if dtype == DType::String {
        let strings = data.into_iter().flat_map(|data| match data {
            CellData::Strings(strings) => strings,
            CellData::Numbers(_) => Vec::new(),
        });
        let objects = strings.map(|string| PyBytes::new(py, &string).into_any().unbind()).collect();
        return Ok(PyArray1::from_vec(py, objects).reshape(shape)?.into_any());
    }
    let numpy = py.import("numpy")?;
    let shape = PyTuple::new(py, shape)?;
    let mut bytes = Vec::new();
    for data in data {
        if let CellData::Numbers(numbers) = data {
            bytes.extend_from_slice(&numbers);
        }
    }
    if bytes.is_empty() {
        return numpy.call_method1("empty", (shape, to_numpy(py, dtype)?));
    }
    let array = numpy.call_method1("frombuffer", (PyByteArray::new(py, &bytes), to_numpy(py, dtype)?))?;
    array.call_method1("reshape", (shape,))
}
