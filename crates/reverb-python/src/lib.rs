//! The extension module `reverb._rust`: it converts Python objects, calls the crates below, and converts their results.
//!
//! Two things are done here and nowhere else, because they consist of Python objects. [`batch_maker`] makes samples and
//! batches. [`loader`] draws and times the batches of loaders whose server is in this process.

mod aio;
mod array_in;
mod array_out;
mod batch_maker;
mod bench;
mod checkpoint;
mod client;
mod closing;
mod column;
mod column_rows;
mod dlpack;
mod draw;
mod dtype;
mod durability;
mod endpoint;
mod errors;
mod frames;
mod health;
mod inserts;
mod items;
mod kernel;
mod key_check;
mod key_order;
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
mod tokens;
mod without_gil;
mod writer;

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

#[global_allocator]
static ALLOCATOR: reverb_core::memory::Allocator = reverb_core::memory::Allocator;

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
mod _rust {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::{
        aio::{call::Call, calls::Calls, calls::Tables, wakeups::Wakeups, writer_calls::WriterCalls},
        batch_maker::BatchMaker,
        bench::BenchTable,
        checkpoint::{
            CheckpointReader, Checkpointer, checkpoint_list, checkpoint_summary, checkpoint_verify,
            checkpoint_verify_log,
        },
        client::{Client, wait_for_streams},
        column::{CellRef, TrajectoryColumn},
        descriptor_set,
        dlpack::TensorMaker,
        draw::Draw,
        endpoint::check_endpoint,
        frames::{Frames, SampledFrames},
        health::health,
        importance_weights,
        items::ItemIterator,
        kernel::tensorflow_kernel,
        loader::{BatchIterator, LocalDraws, StatsClock},
        log::end_log,
        sampled_batch::SampledBatch,
        server::Server,
        table::{Table, limiter_rule},
        tokens::tokens_of_text,
        without_gil::end_threads,
        writer::session::{WriterSession, unconfirmed},
        writer::{BatchedWriter, ColumnHistory, PatternReader, PatternWriter, RowWriter, TrajectoryWriter},
    };

    #[pymodule_init]
    fn init(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::log::install();
        Ok(())
    }
}
