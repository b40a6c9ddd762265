//! The kernel of an operation of TensorFlow that calls Python (see `python/reverb/frameworks/tensorflow_kernels.py`).

use pyo3::prelude::*;
use std::ffi::c_void;
use std::sync::OnceLock;

/// What the kernel calls with TensorFlow's pointer to the run.
static FUNCTION: OnceLock<Py<PyAny>> = OnceLock::new();

/// Runs the operation. TensorFlow also does that while the interpreter ends, as a session is deleted: then the function
/// is not called, and the operation fails without results. A kernel written in Python would wait for ever.
extern "C" fn compute(_kernel: *mut c_void, context: *mut c_void) {
    Python::try_attach(|py| {
        if let Some(function) = FUNCTION.get()
            && let Err(error) = function.call1(py, (context as usize,))
        {
            error.write_unraisable(py, None);
        }
    });
}

/// The address of a kernel that calls a Python function, which must be the same in all calls.
#[pyfunction]
pub fn tensorflow_kernel(function: Py<PyAny>) -> usize {
    FUNCTION.get_or_init(|| function);
    compute as *const () as usize
}
