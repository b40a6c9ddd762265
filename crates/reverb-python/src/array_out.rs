//! From a batch to NumPy arrays that share its one buffer.

use crate::dtype::to_numpy;
use numpy::npyffi::{NPY_ARRAY_CARRAY, NpyTypes, PY_ARRAY_API, get_type_object};
use numpy::{PyArray1, PyArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList};
use reverb_core::gather::{BatchColumn, BatchLayout};
use reverb_core::{Buffer, DType};
use reverb_transport::client::{Batch, BatchInfo};

/// Owns the memory of a batch; the base object of its arrays. The buffer returns to its pool with the last of them.
#[pyclass(frozen)]
struct BatchMemory(Buffer);

type Info<'py> = (
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<f64>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<f64>>,
    Bound<'py, PyArray1<i32>>,
);

/// What `_rust.Client.sample` returns: infos, columns, signature token, which columns are squeezed.
pub type Sampled<'py> = (Info<'py>, Bound<'py, PyList>, u64, Vec<bool>);

/// Hands a batch to Python without copying its columns.
pub fn to_python(py: Python<'_>, batch: Batch) -> PyResult<Sampled<'_>> {
    let Batch { info, layout, buffer, signature_token, .. } = batch;
    let columns = columns_to_python(py, &layout, buffer)?;
    let squeezed = layout.columns.iter().map(|column| column.squeezed).collect();
    Ok((infos(py, &info), columns, signature_token, squeezed))
}

/// The columns of a batch as arrays that share its buffer.
pub fn columns_to_python<'py>(py: Python<'py>, layout: &BatchLayout, buffer: Buffer) -> PyResult<Bound<'py, PyList>> {
    let memory = Bound::new(py, BatchMemory(buffer))?;
    let columns = PyList::empty(py);
    for column in &layout.columns {
        columns.append(to_array(&memory, column)?)?;
    }
    Ok(columns)
}

fn infos<'py>(py: Python<'py>, info: &BatchInfo) -> Info<'py> {
    (
        PyArray1::from_slice(py, &info.keys),
        PyArray1::from_slice(py, &info.probabilities),
        PyArray1::from_slice(py, &info.table_sizes),
        PyArray1::from_slice(py, &info.priorities),
        PyArray1::from_slice(py, &info.times_sampled),
    )
}

fn to_array<'py>(memory: &Bound<'py, BatchMemory>, column: &BatchColumn) -> PyResult<Bound<'py, PyAny>> {
    let py = memory.py();
    let values = match column.dtype {
        DType::String => strings(memory, column)?,
        _ => view(memory, column)?,
    };
    match &column.row_lengths {
        None => Ok(values),
        Some(lengths) => {
            let lengths = PyArray1::from_iter(py, lengths.iter().map(|&length| i64::from(length)));
            ragged(py)?.call1((values, lengths))
        }
    }
}

/// An array over the column's bytes in the buffer.
fn view<'py>(memory: &Bound<'py, BatchMemory>, column: &BatchColumn) -> PyResult<Bound<'py, PyAny>> {
    let py = memory.py();
    let descriptor = to_numpy(py, column.dtype)?.clone().into_ptr();
    let mut dims: Vec<isize> = column.shape.iter().map(|&dim| dim as isize).collect();
    // SAFETY: the column lies inside the buffer, which `memory` owns and nobody else writes to; the descriptor's reference
    // is given away, as the call demands; `dims` outlives the call.
    unsafe {
        let data = memory.get().0.as_ptr().add(column.offset).cast_mut();
        let array = PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            get_type_object(py, NpyTypes::PyArray_Type),
            descriptor.cast(),
            dims.len() as i32,
            dims.as_mut_ptr(),
            std::ptr::null_mut(),
            data.cast(),
            NPY_ARRAY_CARRAY,
            std::ptr::null_mut(),
        );
        let array = Bound::from_owned_ptr_or_err(py, array)?;
        // The array takes the reference to its base, also when the call fails.
        let base = memory.clone().into_any().into_ptr();
        if PY_ARRAY_API.PyArray_SetBaseObject(py, array.as_ptr().cast(), base) != 0 {
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
