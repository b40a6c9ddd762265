//! From a batch to NumPy arrays that share its one buffer.

use crate::dlpack::TensorMaker;
use crate::dtype::to_numpy;
use numpy::npyffi::{NPY_ARRAY_CARRAY, NpyTypes, PY_ARRAY_API, get_type_object};
use numpy::{PyArray1, PyArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList, PyTuple};
use reverb_core::gather::BatchColumn;
use reverb_core::{BatchInfo, Buffer, DType};
use reverb_transport::client::Batch;
use std::sync::Arc;

/// Owns the columns of a batch; the base object of their arrays. The buffer returns to its pool with the last of them.
#[pyclass(frozen)]
struct BatchMemory(Arc<Buffer>);

/// Likewise for the infos: apart from the columns, since who keeps keys need not keep data.
#[pyclass(frozen)]
struct InfoMemory(BatchInfo);

/// What `_rust.Client.sample` returns: infos, columns, signature token, which columns are squeezed.
pub type Sampled<'py> = (Bound<'py, PyTuple>, Bound<'py, PyList>, u64, Vec<bool>);

/// Hands a batch to Python without copying it.
pub fn to_python(py: Python<'_>, batch: Batch) -> PyResult<Sampled<'_>> {
    let Batch { info, layout, buffer, signature_token, .. } = batch;
    let squeezed = layout.columns.iter().map(|column| column.squeezed).collect();
    let columns = PyList::new(py, columns_to_python(py, &layout.columns, buffer)?)?;
    Ok((infos(py, info)?, columns, signature_token, squeezed))
}

/// Columns that share a buffer as tensors, or as arrays where `maker` makes none; and whether all are tensors.
pub fn columns_to_tensors<'py>(
    py: Python<'py>,
    columns: &[BatchColumn],
    buffer: Buffer,
    maker: &TensorMaker,
) -> PyResult<(Vec<Bound<'py, PyAny>>, bool)> {
    let buffer = Arc::new(buffer);
    let to_array = |column: &BatchColumn| to_array(&Bound::new(py, BatchMemory(buffer.clone()))?, column);
    maker.make(py, &buffer, columns, to_array)
}

/// The columns of a batch as arrays that share its buffer.
pub fn columns_to_python<'py>(
    py: Python<'py>,
    columns: &[BatchColumn],
    buffer: Buffer,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let memory = Bound::new(py, BatchMemory(Arc::new(buffer)))?;
    columns.iter().map(|column| to_array(&memory, column)).collect()
}

/// Key, probability, table size, priority, times sampled.
pub fn infos(py: Python<'_>, info: BatchInfo) -> PyResult<Bound<'_, PyTuple>> {
    let memory = Bound::new(py, InfoMemory(info))?;
    let info = &memory.get().0;
    // SAFETY: the memory owns the infos, `info.len()` of each, and nobody else writes to them.
    let view = |dtype, data| unsafe { view(memory.as_any(), data, dtype, &[info.len()]) };
    let arrays = [
        view(DType::UInt64, info.keys().as_ptr().cast())?,
        view(DType::Float64, info.probabilities().as_ptr().cast())?,
        view(DType::Int64, info.table_sizes().as_ptr().cast())?,
        view(DType::Float64, info.priorities().as_ptr().cast())?,
        view(DType::Int32, info.times_sampled().as_ptr().cast())?,
    ];
    PyTuple::new(py, arrays)
}

/// Importance weights of a batch's draws, float32 `[n]`.
pub fn weights<'py>(py: Python<'py>, info: &BatchInfo, beta: f64) -> Bound<'py, PyArray1<f32>> {
    let draws = info.probabilities().iter().copied().zip(info.table_sizes().iter().copied());
    PyArray1::from_iter(py, reverb_core::importance_weights(draws, beta, true))
}

fn to_array<'py>(memory: &Bound<'py, BatchMemory>, column: &BatchColumn) -> PyResult<Bound<'py, PyAny>> {
    let py = memory.py();
    let values = match column.dtype {
        DType::String => strings(memory, column)?,
        // SAFETY: the column lies inside the buffer, which `memory` owns and nobody else writes to.
        dtype => unsafe {
            let data = memory.get().0.as_ptr().add(column.offset);
            view(memory.as_any(), data, dtype, &column.shape)?
        },
    };
    match &column.row_lengths {
        None => Ok(values),
        Some(lengths) => {
            let lengths = PyArray1::from_iter(py, lengths.iter().map(|&length| i64::from(length)));
            ragged(py)?.call1((values, lengths))
        }
    }
}

/// An array over memory that `base` owns.
///
/// # Safety
/// `data` points to an array of this type and shape, which lives as long as `base` and which nobody else writes to.
unsafe fn view<'py>(
    base: &Bound<'py, PyAny>,
    data: *const u8,
    dtype: DType,
    shape: &[usize],
) -> PyResult<Bound<'py, PyAny>> {
    let py = base.py();
    let descriptor = to_numpy(py, dtype)?.clone().into_ptr();
    // SAFETY: the caller answers for `data`; the descriptor's reference is given away, as the call demands; the
    // shape is only read, and sizes of arrays in memory are the same as `isize`.
    unsafe {
        let array = PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            get_type_object(py, NpyTypes::PyArray_Type),
            descriptor.cast(),
            shape.len() as i32,
            shape.as_ptr().cast_mut().cast(),
            std::ptr::null_mut(),
            data.cast_mut().cast(),
            NPY_ARRAY_CARRAY,
            std::ptr::null_mut(),
        );
        let array = Bound::from_owned_ptr_or_err(py, array)?;
        // The array takes the reference to its base, also when the call fails.
        if PY_ARRAY_API.PyArray_SetBaseObject(py, array.as_ptr().cast(), base.clone().into_ptr()) != 0 {
            return Err(PyErr::fetch(py));
        }
        Ok(array)
    }
}

/// An object array of `bytes`.
fn strings<'py>(memory: &Bound<'py, BatchMemory>, column: &BatchColumn) -> PyResult<Bound<'py, PyAny>> {
    let py = memory.py();
    // SAFETY: the column lies inside the buffer, which was written whole before the batch was handed over.
    let region = unsafe { std::slice::from_raw_parts(memory.get().0.as_ptr().add(column.offset), column.size_bytes) };
    let elements: usize = column.shape.iter().product();
    let corrupt = || PyValueError::new_err("a column of strings came in pieces that do not fit together");
    let (ends, text) = region.split_at_checked((elements + 1) * 4).ok_or_else(corrupt)?;
    let mut ends = ends.chunks_exact(4).map(|end| u32::from_le_bytes([end[0], end[1], end[2], end[3]]) as usize);
    let mut start = ends.next().ok_or_else(corrupt)?;
    let mut objects = Vec::with_capacity(elements);
    for end in ends {
        let string = text.get(start..end).ok_or_else(corrupt)?;
        objects.push(PyBytes::new(py, string).into_any().unbind());
        start = end;
    }
    Ok(PyArray1::from_vec(py, objects).reshape(&column.shape[..])?.into_any())
}

fn ragged(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static RAGGED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let import = || py.import("reverb.replay_sample")?.getattr("Ragged").map(Bound::unbind);
    RAGGED.get_or_try_init(py, import).map(|class| class.bind(py))
}
