//! Columns of a batch as DLPack capsules, which other array libraries import without a copy.
//!
//! A tensor of a capsule costs half of one of a NumPy array, and there are several in each batch.

use pyo3::ffi;
use pyo3::prelude::*;
use reverb_core::gather::BatchColumn;
use reverb_core::{Buffer, DType};
use std::ffi::{CStr, c_void};
use std::sync::Arc;

/// What a capsule is called until somebody takes its tensor over.
const UNUSED: &CStr = c"dltensor";

/// DLPack's number of the processor's own memory.
const CPU: i32 = 1;

/// `DLTensor` of DLPack before 1.0, which all importers know.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    kind: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
struct ManagedTensor {
    tensor: Tensor,
    manager: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedTensor)>,
}

/// What a tensor's pointers point to. The buffer returns to its pool with the last tensor of the batch.
#[repr(C)]
struct Owned {
    managed: ManagedTensor,
    /// The shape, then the strides in elements.
    dims: Vec<i64>,
    _buffer: Arc<Buffer>,
}

/// DLPack's number of a kind of elements, and bits of one. Booleans and the types of ml_dtypes came later.
fn kind_and_bits(dtype: DType) -> Option<(u8, u8)> {
    const INTEGER: u8 = 0;
    const UNSIGNED: u8 = 1;
    const FLOAT: u8 = 2;
    let kind = match dtype {
        DType::Int8 | DType::Int16 | DType::Int32 | DType::Int64 => INTEGER,
        DType::UInt8 => UNSIGNED,
        DType::Float16 | DType::Float32 | DType::Float64 => FLOAT,
        _ => return None,
    };
    Some((kind, 8 * dtype.size() as u8))
}

/// A column of the buffer as a capsule; `None` if it is ragged, or of a type that an older importer may not know.
pub fn to_capsule<'py>(
    py: Python<'py>,
    buffer: &Arc<Buffer>,
    column: &BatchColumn,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let known = kind_and_bits(column.dtype).filter(|_| column.row_lengths.is_none());
    let Some((kind, bits)) = known else { return Ok(None) };
    let ndim = column.shape.len();
    let mut dims = vec![1; 2 * ndim];
    let mut stride = 1;
    for (axis, &size) in column.shape.iter().enumerate().rev() {
        dims[axis] = size as i64;
        dims[ndim + axis] = stride;
        stride *= size as i64;
    }
    // SAFETY: the column lies inside the buffer.
    let data = unsafe { buffer.as_ptr().add(column.offset) };
    let tensor = Tensor {
        data: data.cast_mut().cast(),
        device_type: CPU,
        device_id: 0,
        ndim: ndim as i32,
        kind,
        bits,
        lanes: 1,
        shape: dims.as_mut_ptr(),
        strides: dims[ndim..].as_mut_ptr(),
        byte_offset: 0,
    };
    let managed = ManagedTensor { tensor, manager: std::ptr::null_mut(), deleter: Some(delete) };
    let owned = Box::into_raw(Box::new(Owned { managed, dims, _buffer: buffer.clone() }));
    // SAFETY: the capsule owns the box until it is used, and then whoever used it: either calls `delete` once.
    unsafe {
        let capsule = ffi::PyCapsule_New(owned.cast(), UNUSED.as_ptr(), Some(delete_unused));
        if capsule.is_null() {
            delete(owned.cast());
        }
        Bound::from_owned_ptr_or_err(py, capsule).map(Some)
    }
}

/// The importer is done with the tensor. It may call from any thread.
unsafe extern "C" fn delete(managed: *mut ManagedTensor) {
    // SAFETY: `to_capsule` made it of a box of `Owned`, whose first field it is.
    drop(unsafe { Box::from_raw(managed.cast::<Owned>()) });
}

/// The capsule ends; nobody has taken its tensor over if it still has its name.
unsafe extern "C" fn delete_unused(capsule: *mut ffi::PyObject) {
    // SAFETY: the capsule is alive, and holds what `to_capsule` put there as long as it has that name.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, UNUSED.as_ptr()) == 1 {
            delete(ffi::PyCapsule_GetPointer(capsule, UNUSED.as_ptr()).cast());
        }
    }
}
