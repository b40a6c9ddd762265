//! The extension module `reverb._rust`: NumPy and Python objects to the core and the transport. No logic of its own.

mod array_in;
mod array_out;
mod checkpoint;
mod client;
mod dlpack;
mod draw;
mod dtype;
mod errors;
mod frames;
mod lane;
mod loader;
mod log;
mod nest;
mod runtime;
mod server;
mod table;
mod writer;

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The protos as a serialised `FileDescriptorSet`.
#[pyfunction]
fn descriptor_set(py: Python<'_>) -> Bound<'_, PyBytes> {
    PyBytes::new(py, reverb_transport::proto::DESCRIPTORS)
}

/// Importance weights of draws, float32 `[n]`; see `reverb.importance_weights`.
#[pyfunction]
fn importance_weights<'py>(
    py: Python<'py>,
    probabilities: PyReadonlyArray1<'py, f64>,
    table_sizes: PyReadonlyArray1<'py, i64>,
    beta: f64,
    normalize: bool,
) -> Bound<'py, PyArray1<f32>> {
    let (probabilities, table_sizes) = (probabilities.as_array(), table_sizes.as_array());
    let draws = probabilities.iter().copied().zip(table_sizes.iter().copied());
    PyArray1::from_iter(py, reverb_core::importance_weights(draws, beta, normalize))
}

#[pymodule(gil_used = false)]
fn _rust(module: &Bound<'_, PyModule>) -> PyResult<()> {
    log::install();
    module.add_function(wrap_pyfunction!(descriptor_set, module)?)?;
    module.add_function(wrap_pyfunction!(importance_weights, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::checkpoint_list, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::checkpoint_summary, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::checkpoint_verify, module)?)?;
    module.add_class::<checkpoint::Checkpointer>()?;
    module.add_class::<checkpoint::CheckpointReader>()?;
    module.add_class::<table::Table>()?;
    module.add_class::<server::Server>()?;
    module.add_class::<dlpack::TensorMaker>()?;
    module.add_class::<draw::Draw>()?;
    module.add_class::<loader::BatchIterator>()?;
    module.add_class::<loader::DrawsHere>()?;
    module.add_class::<loader::StatsClock>()?;
    module.add_class::<frames::Frames>()?;
    module.add_class::<client::Client>()?;
    module.add_class::<writer::TrajectoryWriter>()?;
    module.add_class::<writer::BatchedWriter>()?;
    module.add_class::<writer::PatternReader>()?;
    module.add_class::<writer::PatternWriter>()?;
    module.add_class::<writer::RowWriter>()?;
    module.add_class::<writer::ColumnHistory>()?;
    module.add_class::<writer::TrajectoryColumn>()?;
    module.add_class::<writer::CellRef>()
}
