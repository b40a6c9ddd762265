//! The extension module `reverb._rust`: NumPy and Python objects to the core and the transport. No logic of its own.

mod array_in;
mod array_out;
mod client;
mod dtype;
mod errors;
mod log;
mod nest;
mod runtime;
mod server;
mod table;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The protos as a serialised `FileDescriptorSet`.
#[pyfunction]
fn descriptor_set(py: Python<'_>) -> Bound<'_, PyBytes> {
    PyBytes::new(py, reverb_transport::proto::DESCRIPTORS)
}

#[pymodule(gil_used = false)]
fn _rust(module: &Bound<'_, PyModule>) -> PyResult<()> {
    log::install();
    module.add_function(wrap_pyfunction!(descriptor_set, module)?)?;
    module.add_class::<table::Table>()?;
    module.add_class::<server::Server>()?;
    module.add_class::<client::Client>()
}
