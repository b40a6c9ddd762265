//! The extension module `reverb._rust`: it converts Python objects, calls the crates below, and converts their results.
//!
//! Two things are done here and nowhere else, because they consist of Python objects. [`batch_maker`] makes samples and
//! batches. [`loader`] draws and times the batches of loaders whose server is in this process.

mod array_in;
mod array_out;
mod batch_maker;
mod bench;
mod checkpoint;
mod client;
mod column;
mod column_rows;
mod dlpack;
mod draw;
mod dtype;
mod errors;
mod frames;
mod health;
mod items;
mod key_check;
mod loader;
mod log;
mod nest;
mod priorities;
mod records;
mod runtime;
mod sampled_batch;
mod scalar;
mod server;
mod signature;
mod strided;
mod table;
mod writer;

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// All protos as a serialized `FileDescriptorSet`.
#[pyfunction]
fn descriptor_set(py: Python<'_>) -> Bound<'_, PyBytes> {
    PyBytes::new(py, reverb_net::DESCRIPTORS)
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
    module.add_function(wrap_pyfunction!(health::health, module)?)?;
    module.add_function(wrap_pyfunction!(importance_weights, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::checkpoint_list, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::checkpoint_summary, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::checkpoint_verify, module)?)?;
    module.add_function(wrap_pyfunction!(writer::session::unconfirmed, module)?)?;
    module.add_class::<checkpoint::Checkpointer>()?;
    module.add_class::<checkpoint::CheckpointReader>()?;
    module.add_class::<table::Table>()?;
    module.add_class::<server::Server>()?;
    module.add_class::<dlpack::TensorMaker>()?;
    module.add_class::<draw::Draw>()?;
    module.add_class::<sampled_batch::SampledBatch>()?;
    module.add_class::<batch_maker::BatchMaker>()?;
    module.add_class::<items::ItemIterator>()?;
    module.add_class::<loader::BatchIterator>()?;
    module.add_class::<loader::LocalDraws>()?;
    module.add_class::<loader::StatsClock>()?;
    module.add_class::<frames::Frames>()?;
    module.add_class::<frames::SampledFrames>()?;
    module.add_class::<bench::BenchTable>()?;
    module.add_class::<client::Client>()?;
    module.add_class::<writer::session::WriterSession>()?;
    module.add_class::<writer::TrajectoryWriter>()?;
    module.add_class::<writer::BatchedWriter>()?;
    module.add_class::<writer::PatternReader>()?;
    module.add_class::<writer::PatternWriter>()?;
    module.add_class::<writer::RowWriter>()?;
    module.add_class::<writer::ColumnHistory>()?;
    module.add_class::<column::TrajectoryColumn>()?;
    module.add_class::<column::CellRef>()
}
