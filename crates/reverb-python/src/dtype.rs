//! Converts element types to NumPy's dtypes, and back.

use numpy::{PyArrayDescr, PyArrayDescrMethods};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use reverb_core::DType;

/// NumPy's names of the types that it defines itself.
const BUILT_IN: &[(DType, &str)] = &[
    (DType::Float32, "float32"),
    (DType::Float64, "float64"),
    (DType::Int32, "int32"),
    (DType::UInt8, "uint8"),
    (DType::Int16, "int16"),
    (DType::Int8, "int8"),
    (DType::String, "object"),
    (DType::Complex64, "complex64"),
    (DType::Int64, "int64"),
    (DType::Bool, "bool"),
    (DType::UInt16, "uint16"),
    (DType::Complex128, "complex128"),
    (DType::Float16, "float16"),
    (DType::UInt32, "uint32"),
    (DType::UInt64, "uint64"),
];

/// Types that the package ml_dtypes adds. It is imported when the first of them is used.
const ML_DTYPES: &[(DType, &str)] =
    &[(DType::BFloat16, "bfloat16"), (DType::Float8E5M2, "float8_e5m2"), (DType::Float8E4M3Fn, "float8_e4m3fn")];

/// Descriptors, indexed by TensorFlow's numbers of the types.
static DESCRIPTORS: [PyOnceLock<Py<PyArrayDescr>>; 32] = [const { PyOnceLock::new() }; 32];

/// NumPy's dtype; `object` for strings.
pub fn to_numpy(py: Python<'_>, dtype: DType) -> PyResult<&Bound<'_, PyArrayDescr>> {
    let make = || {
        let name = BUILT_IN.iter().find(|(built_in, _)| *built_in == dtype).map(|(_, name)| *name);
        let descriptor = match name {
            Some(name) => PyArrayDescr::new(py, name)?,
            None => {
                let name = ML_DTYPES.iter().find(|(other, _)| *other == dtype).map_or("", |(_, name)| *name);
                PyArrayDescr::new(py, py.import("ml_dtypes")?.getattr(name)?)?
            }
        };
        Ok::<_, PyErr>(descriptor.unbind())
    };
    DESCRIPTORS[dtype as usize].get_or_try_init(py, make).map(|descriptor| descriptor.bind(py))
}

/// The element type of an array in native byte order; `None` if a table cannot hold it, and for object and string
/// arrays.
pub fn from_numpy(descriptor: &Bound<'_, PyArrayDescr>) -> Option<DType> {
    // NumPy's type numbers; `long` is one of the two C types of 64 bits on the systems we run on.
    Some(match descriptor.num() {
        0 => DType::Bool,
        1 => DType::Int8,
        2 => DType::UInt8,
        3 => DType::Int16,
        4 => DType::UInt16,
        5 => DType::Int32,
        6 => DType::UInt32,
        7 | 9 => DType::Int64,
        8 | 10 => DType::UInt64,
        11 => DType::Float32,
        12 => DType::Float64,
        14 => DType::Complex64,
        15 => DType::Complex128,
        23 => DType::Float16,
        number if number >= 256 => return from_added(descriptor),
        _ => return None,
    })
}

/// Whether ml_dtypes, not NumPy, defines the type.
pub fn is_added(dtype: DType) -> bool {
    ML_DTYPES.iter().any(|(added, _)| *added == dtype)
}

/// The types of ml_dtypes that were used so far.
pub fn added_types(py: Python<'_>) -> impl Iterator<Item = (DType, &Bound<'_, PyArrayDescr>)> {
    ML_DTYPES.iter().filter_map(move |(dtype, _)| Some((*dtype, DESCRIPTORS[*dtype as usize].get(py)?.bind(py))))
}

fn from_added(descriptor: &Bound<'_, PyArrayDescr>) -> Option<DType> {
    let py = descriptor.py();
    if let Some((dtype, _)) = added_types(py).find(|(_, known)| known.num() == descriptor.num()) {
        return Some(dtype);
    }
    let name = descriptor.getattr("name").ok()?.extract::<String>().ok()?;
    let (dtype, _) = ML_DTYPES.iter().find(|(_, other)| *other == name)?;
    // The next value is recognized by the type's number. If ml_dtypes cannot be imported, its name goes on to be read.
    let _ = to_numpy(py, *dtype);
    Some(*dtype)
}
