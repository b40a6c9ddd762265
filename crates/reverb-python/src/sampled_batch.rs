//! `reverb._rust.SampledBatch`.

use crate::array_out::{InfoMemory, columns_to_arrays, sample_info};
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;
use reverb_core::Buffer;
use reverb_core::gather::BatchLayout;
use reverb_service::Batch;
use std::sync::Arc;

/// Items of a table, stacked column by column.
///
/// Its arrays are made when they are first asked for; makers of other objects take the memory instead.
#[pyclass(frozen, module = "reverb._rust")]
pub struct SampledBatch {
    #[pyo3(get)]
    pub signature_token: u64,
    pub layout: BatchLayout,
    pub buffer: Arc<Buffer>,
    pub infos: Py<InfoMemory>,
    info: PyOnceLock<Py<PyAny>>,
    columns: PyOnceLock<Py<PyList>>,
    #[pyo3(get)]
    inserted_at: Option<Py<PyArray1<u64>>>,
}

impl SampledBatch {
    /// Hands a batch to Python without copying it.
    pub fn new(py: Python<'_>, batch: Batch) -> PyResult<Self> {
        let Batch { info, layout, buffer, signature_token, .. } = batch;
        Ok(Self {
            signature_token,
            layout,
            buffer: Arc::new(buffer),
            infos: Py::new(py, InfoMemory(info))?,
            info: PyOnceLock::new(),
            columns: PyOnceLock::new(),
            inserted_at: None,
        })
    }

    /// A batch of items that were read and not drawn, with the times at which they were inserted.
    pub fn stored(py: Python<'_>, batch: Batch, inserted_at: Vec<u64>) -> PyResult<Self> {
        let inserted_at = Some(PyArray1::from_vec(py, inserted_at).unbind());
        Ok(Self { inserted_at, ..Self::new(py, batch)? })
    }
}

#[pymethods]
impl SampledBatch {
    fn __len__(&self) -> usize {
        self.infos.get().0.len()
    }

    #[getter]
    fn num_columns(&self) -> usize {
        self.layout.columns.len()
    }

    #[getter]
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let make = || sample_info(self.infos.bind(py)).map(Bound::unbind);
        self.info.get_or_try_init(py, make).map(|info| info.bind(py).clone())
    }

    #[getter]
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let make = || {
            let arrays = columns_to_arrays(py, &self.layout.columns, self.buffer.clone())?;
            PyList::new(py, arrays).map(Bound::unbind)
        };
        self.columns.get_or_try_init(py, make).map(|columns| columns.bind(py).clone())
    }

    #[getter]
    fn has_open_rows(&self) -> Vec<bool> {
        self.layout.columns.iter().map(|column| column.has_open_rows).collect()
    }

    #[getter]
    fn squeezed(&self) -> Vec<bool> {
        self.layout.columns.iter().map(|column| column.squeezed).collect()
    }
}
