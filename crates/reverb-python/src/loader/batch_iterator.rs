//! `reverb._rust.BatchIterator`.

use super::DrawsHere;
use crate::errors::PyReverbResult;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::OnceLock;

/// What loaders iterate with. In Python the call alone would be a tenth of a small batch.
#[pyclass(frozen, subclass, module = "reverb._rust")]
pub struct BatchIterator {
    here: OnceLock<Py<DrawsHere>>,
}

#[pymethods]
impl BatchIterator {
    #[new]
    #[pyo3(signature = (*_args, **_options))]
    fn new(_args: &Bound<'_, PyTuple>, _options: Option<&Bound<'_, PyDict>>) -> Self {
        Self { here: OnceLock::new() }
    }

    /// For a subclass that takes what `here` gives first.
    fn _prefer(&self, here: Py<DrawsHere>) {
        // Who has made the choice keeps it.
        let _ = self.here.set(here);
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(slf: &Bound<'py, Self>) -> PyReverbResult<Option<Bound<'py, PyAny>>> {
        let py = slf.py();
        if let Some(here) = slf.get().here.get()
            && let Some(batch) = here.get().take(py)?
        {
            return Ok(Some(batch));
        }
        let batch = slf.call_method0(intern!(py, "_next"))?;
        Ok((!batch.is_none()).then_some(batch))
    }
}
