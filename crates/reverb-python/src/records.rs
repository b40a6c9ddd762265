//! The named tuples of `reverb` that hold samples, made without their constructors, which are written in Python.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};

/// A named tuple class of the package.
pub struct Record {
    module: &'static str,
    name: &'static str,
    class: PyOnceLock<Py<PyType>>,
}

/// `reverb.replay_sample.SampleInfo`.
pub static SAMPLE_INFO: Record = Record::new("reverb.replay_sample", "SampleInfo");
/// `reverb.replay_sample.ReplaySample`.
pub static REPLAY_SAMPLE: Record = Record::new("reverb.replay_sample", "ReplaySample");
/// `reverb.replay_sample.Ragged`.
pub static RAGGED: Record = Record::new("reverb.replay_sample", "Ragged");
/// `reverb.loaders.batch.Batch`.
pub static BATCH: Record = Record::new("reverb.loaders.batch", "Batch");

impl Record {
    const fn new(module: &'static str, name: &'static str) -> Self {
        Self { module, name, class: PyOnceLock::new() }
    }

    /// Makes sure that instances are known when nothing can be imported any more.
    pub fn prepare(&self, py: Python<'_>) -> PyResult<()> {
        self.class.import(py, self.module, self.name).map(drop)
    }

    /// Whether an object is an instance, and not of a subclass.
    pub fn is_type_of(&self, object: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(object.get_type().is(self.class.import(object.py(), self.module, self.name)?))
    }

    /// An instance with these fields, of which there must be as many as the class has.
    pub fn make<'py, const N: usize>(
        &self,
        py: Python<'py>,
        fields: [Bound<'py, PyAny>; N],
    ) -> PyResult<Bound<'py, PyAny>> {
        let class = self.class.import(py, self.module, self.name)?;
        let arguments = PyTuple::new(py, [PyTuple::new(py, fields)?])?;
        // SAFETY: `tuple` has the slot, and it is a `newfunc`. It may be called for subclasses that add nothing to the
        // layout, as named tuples do. It returns a new reference, or null with an exception set.
        unsafe {
            let slot = ffi::PyType_GetSlot(&raw mut ffi::PyTuple_Type, ffi::Py_tp_new);
            let new: ffi::newfunc = std::mem::transmute(slot);
            let tuple = new(class.as_ptr().cast(), arguments.as_ptr(), std::ptr::null_mut());
            Bound::from_owned_ptr_or_err(py, tuple)
        }
    }
}
