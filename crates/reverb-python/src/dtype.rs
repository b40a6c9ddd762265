//! Converts element types to NumPy's dtypes, and back.

use numpy::{PyArrayDescr, PyArrayDescrMethods};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use reverb_core::DType;

/// Types that the package ml_dtypes adds. It is imported when the first of them is used.
const ML_DTYPES: [DType; 3] = [DType::BFloat16, DType::Float8E5M2, DType::Float8E4M3Fn];

/// Descriptors, indexed by TensorFlow's numbers of the types.
static DESCRIPTORS: [PyOnceLock<Py<PyArrayDescr>>; 32] = [const { PyOnceLock::new() }; 32];

/// NumPy's dtype; `object` for strings.
pub fn to_numpy(py: Python<'_>, dtype: DType) -> PyResult<&Bound<'_, PyArrayDescr>> {
    let make = || {
        // NumPy knows all names of TensorFlow's but these.
        let name = match dtype {
            DType::Float16 => "float16",
            DType::Float32 => "float32",
            DType::Float64 => "float64",
            DType::String => "object",
            _ => dtype.name(),
        };
        let descriptor = match is_added(dtype) {
            true => PyArrayDescr::new(py, py.import("ml_dtypes")?.getattr(name)?)?,
            false => PyArrayDescr::new(py, name)?,
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
    ML_DTYPES.contains(&dtype)
}

/// The types of ml_dtypes that were used so far.
pub fn added_types(py: Python<'_>) -> impl Iterator<Item = (DType, &Bound<'_, PyArrayDescr>)> {
    ML_DTYPES.iter().filter_map(move |&dtype| Some((dtype, DESCRIPTORS[dtype as usize].get(py)?.bind(py))))
}

fn from_added(descriptor: &Bound<'_, PyArrayDescr>) -> Option<DType> {
    let py = descriptor.py();
    if let Some((dtype, _)) = added_types(py).find(|(_, known)| known.num() == descriptor.num()) {
        return Some(dtype);
    }
    let name = descriptor.getattr("name").ok()?.extract::<String>().ok()?;
    let dtype = ML_DTYPES.into_iter().find(|dtype| dtype.name() == name)?;
    // The next value is recognized by the type's number. If ml_dtypes cannot be imported, its name goes on to be read.
    let _ = to_numpy(py, dtype);
    Some(dtype)
}
