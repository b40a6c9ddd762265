//! Converts batches to NumPy arrays that share the one buffer of their batch.

use crate::dlpack::TensorMaker;
use crate::dtype::to_numpy;
use crate::records::{RAGGED, SAMPLE_INFO};
use numpy::npyffi::{NPY_ARRAY_CARRAY, NpyTypes, PY_ARRAY_API, get_type_object};
use numpy::{PyArray1, PyArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use reverb_core::gather::BatchColumn;
use reverb_core::{BatchInfo, Buffer, DType, for_each_fact};
use std::sync::Arc;

/// Owns the columns of a batch; the base object of their arrays. The buffer returns to its pool with the last of them.
#[pyclass(frozen)]
pub struct BatchMemory(pub Arc<Buffer>);

/// Owns the infos of a batch. It is not the columns' memory, so that keys can be kept without the data.
#[pyclass(frozen)]
pub struct InfoMemory(pub BatchInfo);

/// The columns of a batch as tensors that share its buffer. Columns of which `maker` makes no tensor are arrays. The
/// flag says whether all are tensors.
pub fn columns_to_tensors<'py>(
    py: Python<'py>,
    columns: &[BatchColumn],
    buffer: &Arc<Buffer>,
    maker: &TensorMaker,
) -> PyResult<(Vec<Bound<'py, PyAny>>, bool)> {
    let to_array = |column: &BatchColumn| to_array(&Bound::new(py, BatchMemory(buffer.clone()))?, column);
    maker.make(py, buffer, columns, to_array)
}

/// The columns of a batch as arrays that share its buffer.
pub fn columns_to_arrays<'py>(
    py: Python<'py>,
    columns: &[BatchColumn],
    buffer: Arc<Buffer>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let memory = Bound::new(py, BatchMemory(buffer))?;
    columns.iter().map(|column| to_array(&memory, column)).collect()
}

/// A `SampleInfo` of arrays that share the memory.
pub fn sample_info<'py>(memory: &Bound<'py, InfoMemory>) -> PyResult<Bound<'py, PyAny>> {
    let info = &memory.get().0;
    // SAFETY: the memory owns the infos, `info.len()` of each, and nobody else writes to them.
    let view = |dtype, data| unsafe { view(memory.as_any(), data, dtype, &[info.len()]) };
    macro_rules! arrays {
        ($($(#[$doc:meta])* $fact:ident, $column:ident: $type:ty = $dtype:ident;)*) => {
            [$(view(DType::$dtype, info.$column().as_ptr().cast())?),*]
        };
    }
    SAMPLE_INFO.make(memory.py(), for_each_fact!(arrays))
}

/// Importance weights of a batch's draws, float32 `[n]`.
pub fn importance_weights<'py>(py: Python<'py>, info: &BatchInfo, beta: f64) -> Bound<'py, PyArray1<f32>> {
    let draws = info.probabilities().iter().copied().zip(info.table_sizes().iter().copied());
    PyArray1::from_iter(py, reverb_core::importance_weights(draws, beta, true))
}

fn to_array<'py>(memory: &Bound<'py, BatchMemory>, column: &BatchColumn) -> PyResult<Bound<'py, PyAny>> {
    let py = memory.py();
    let values = values(memory, column)?;
    match &column.row_lengths {
        None => Ok(values),
        Some(lengths) => {
            let lengths = PyArray1::from_iter(py, lengths.iter().map(|&length| i64::from(length)));
            RAGGED.make(py, [values, lengths.into_any()])
        }
    }
}

fn values<'py>(memory: &Bound<'py, BatchMemory>, column: &BatchColumn) -> PyResult<Bound<'py, PyAny>> {
    if column.dtype == DType::String {
        return strings(memory, column);
    }
    // SAFETY: the column lies inside the buffer, which `memory` owns and nobody else writes to.
    unsafe {
        let data = memory.get().0.as_ptr().add(column.offset);
        view(memory.as_any(), data, column.dtype, &column.shape)
    }
}

/// An array over memory that `base` owns.
///
/// # Safety
/// `data` points to an array of this type and shape, which lives as long as `base` and which nobody else writes to.
pub unsafe fn view<'py>(
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

/// A column of strings as an object array of `bytes`.
pub fn strings<'py>(memory: &Bound<'py, BatchMemory>, column: &BatchColumn) -> PyResult<Bound<'py, PyAny>> {
    let py = memory.py();
    // SAFETY: the column lies inside the buffer, which was written whole before the batch was handed over.
    let region = unsafe { std::slice::from_raw_parts(memory.get().0.as_ptr().add(column.offset), column.size_bytes) };
    let elements: usize = column.shape.iter().product();
    let corrupt = || PyValueError::new_err("the parts of a column of strings do not fit together");
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
