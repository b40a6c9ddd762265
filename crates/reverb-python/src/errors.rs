//! The only place that maps core errors to the classes of `reverb.errors`.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};
use reverb_core::Error;

/// An error of the core or of Python, on its way to Python.
#[derive(Debug)]
pub enum PyReverbError {
    Core(Error),
    Python(PyErr),
}

/// The result of a method of this crate.
pub type PyReverbResult<T> = Result<T, PyReverbError>;

impl PyReverbError {
    /// The error of a call that has appended its step, or queued its item.
    pub fn after_step(self, py: Python<'_>) -> Self {
        let raised = PyErr::from(self);
        match raised.value(py).setattr("step_taken", true) {
            Ok(()) => Self::Python(raised),
            Err(error) => Self::Python(error),
        }
    }
}

impl From<Error> for PyReverbError {
    fn from(error: Error) -> Self {
        Self::Core(error)
    }
}

impl From<PyErr> for PyReverbError {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl<'a, 'py> From<pyo3::CastError<'a, 'py>> for PyReverbError {
    fn from(error: pyo3::CastError<'a, 'py>) -> Self {
        Self::Python(error.into())
    }
}

impl From<PyReverbError> for PyErr {
    fn from(error: PyReverbError) -> Self {
        match error {
            PyReverbError::Core(error) => Python::attach(|py| raise(py, &error)),
            PyReverbError::Python(error) => error,
        }
    }
}

fn raise(py: Python<'_>, error: &Error) -> PyErr {
    let raised = match class_of(py, error).and_then(|class| instance_of(&class, error)) {
        Ok(raised) | Err(raised) => raised,
    };
    if let Error::Unconfirmed(cause) = error {
        raised.set_cause(py, Some(raise(py, cause)));
    }
    raised
}

/// An error of a class. It differs from the other errors of its class if it is transient and they are not.
fn instance_of(class: &Bound<'_, PyType>, error: &Error) -> PyResult<PyErr> {
    let raised = PyErr::from_type(class.clone(), error.to_string());
    if class.getattr("is_transient")?.is_truthy()? != error.is_transient() {
        raised.value(class.py()).setattr("is_transient", error.is_transient())?;
    }
    if matches!(error, Error::Unreached(_)) {
        raised.value(class.py()).setattr("was_reached", false)?;
    }
    Ok(raised)
}

/// The names in `reverb.errors` with their classes. A copy, since nothing can be imported once the interpreter has begun to
/// end, and writers may still raise errors then.
fn classes(py: Python<'_>) -> PyResult<&Bound<'_, PyDict>> {
    static CLASSES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let copy = || py.import("reverb.errors")?.dict().copy().map(Bound::unbind);
    CLASSES.get_or_try_init(py, copy).map(|classes| classes.bind(py))
}

/// Makes sure that errors can be raised when nothing can be imported any more.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    classes(py).map(drop)
}

fn class_of<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyType>> {
    let class = classes(py)?.as_any().get_item(format!("{}Error", error.kind()))?;
    Ok(class.cast_into::<PyType>()?)
}
