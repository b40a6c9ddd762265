//! Reads NumPy's scalars, which environments return as rewards and flags, without making arrays of them.

use crate::dtype::{added_types, from_numpy, is_added};
use numpy::npyffi::{NpyTypes, PY_ARRAY_API, get_type_object};
use numpy::{PyArrayDescr, PyArrayDescrMethods};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use reverb_core::DType;

/// The size of the largest scalar that a table holds, in bytes.
pub const MAX_SCALAR_BYTES: usize = 16;

/// NumPy's characters of the types whose scalars are recognized at once, common ones first.
const BUILT_IN: [&str; 18] = ["d", "f", "?", "l", "q", "i", "B", "h", "b", "H", "I", "L", "Q", "e", "F", "D", "U", "S"];

/// The element type of a scalar of NumPy or ml_dtypes; `String` for text and bytes.
///
/// `None` for all other objects, for scalars that a table cannot hold, and for instances of subclasses, which may
/// behave differently.
pub fn scalar_dtype(object: &Bound<'_, PyAny>) -> Option<DType> {
    let py = object.py();
    let kind = object.get_type_ptr();
    if let Some((_, dtype)) = built_in(py).ok()?.iter().find(|(other, _)| *other == kind as usize) {
        return Some(*dtype);
    }
    // SAFETY: both are types that live: NumPy never drops its own, and the object keeps its type.
    let is_scalar = unsafe { ffi::PyType_IsSubtype(kind, get_type_object(py, NpyTypes::PyGenericArrType_Type)) } != 0;
    if is_scalar { added_dtype(object) } else { None }
}

/// The bytes of a scalar for which [`scalar_dtype`] returned this type, which is not `String`.
pub fn read_scalar(object: &Bound<'_, PyAny>, dtype: DType) -> [u8; MAX_SCALAR_BYTES] {
    let mut bytes = Aligned([0; MAX_SCALAR_BYTES]);
    let destination: *mut u8 = bytes.0.as_mut_ptr();
    // SAFETY: the object is a scalar, whose value fits in size and alignment. Of a type that a package added, NumPy
    // writes the address of the value in place of the value. The value lies in the object, which lives.
    unsafe {
        PY_ARRAY_API.PyArray_ScalarAsCtype(object.py(), object.as_ptr(), destination.cast());
        if is_added(dtype) {
            let value = destination.cast::<*const u8>().read();
            value.copy_to_nonoverlapping(destination, dtype.size());
        }
    }
    bytes.0
}

/// Memory for a value of any type that a table holds.
#[repr(align(16))]
struct Aligned([u8; MAX_SCALAR_BYTES]);

/// The addresses of the types of NumPy's own scalars.
fn built_in(py: Python<'_>) -> PyResult<&[(usize, DType)]> {
    static TYPES: PyOnceLock<Vec<(usize, DType)>> = PyOnceLock::new();
    let make = || {
        let describe = |character: &&str| {
            let descriptor = PyArrayDescr::new(py, *character)?;
            let dtype = from_numpy(&descriptor).unwrap_or(DType::String);
            Ok((descriptor.typeobj().as_ptr() as usize, dtype))
        };
        BUILT_IN.iter().map(describe).collect::<PyResult<_>>()
    };
    TYPES.get_or_try_init(py, make).map(Vec::as_slice)
}

/// The type of a scalar of ml_dtypes.
fn added_dtype(object: &Bound<'_, PyAny>) -> Option<DType> {
    let py = object.py();
    let is_type_of =
        |descriptor: &Bound<'_, PyArrayDescr>| descriptor.typeobj().as_ptr() == object.get_type_ptr().cast();
    if let Some((dtype, _)) = added_types(py).find(|(_, descriptor)| is_type_of(descriptor)) {
        return Some(dtype);
    }
    // SAFETY: the object is a scalar of NumPy or of a subclass; the call returns a new reference, or null with an exception.
    let descriptor = unsafe {
        let descriptor = PY_ARRAY_API.PyArray_DescrFromScalar(py, object.as_ptr());
        Bound::from_owned_ptr_or_opt(py, descriptor.cast())
    };
    let Some(descriptor) = descriptor else {
        PyErr::take(py);
        return None;
    };
    let descriptor = descriptor.cast_into::<PyArrayDescr>().ok()?;
    from_numpy(&descriptor).filter(|_| is_type_of(&descriptor))
}
