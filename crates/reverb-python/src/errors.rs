//! The only place that maps core errors to the classes of `reverb.errors`.

use pyo3::prelude::*;
use pyo3::types::PyType;
use reverb_core::Error;

/// An error of the core or of Python, on its way to Python.
#[derive(Debug)]
pub enum PyReverbError {
    Core(Error),
    Python(PyErr),
}

/// The result of a method of this crate.
pub type PyReverbResult<T> = Result<T, PyReverbError>;

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
    let raised = match class_of(py, error) {
        Ok(class) => PyErr::from_type(class, error.to_string()),
        Err(broken) => return broken,
    };
    if matches!(error, Error::Unreached(_))
        && let Err(broken) = raised.value(py).setattr("was_reached", false)
    {
        return broken;
    }
    if let Error::Unconfirmed(cause) = error {
        raised.set_cause(py, Some(raise(py, cause)));
    }
    raised
}

fn class_of<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyType>> {
    let name = match error {
        Error::Unconfirmed(cause) => return class_of(py, cause),
        Error::InvalidArgument(_) => "InvalidArgumentError",
        Error::InvalidRow { .. } | Error::InvalidPriority(_) => "InvalidPriorityError",
        Error::TableNotFound { .. } => "TableNotFoundError",
        Error::SignatureMismatch(_) => "SignatureMismatchError",
        Error::ItemTooLarge { .. } => "ItemTooLargeError",
        Error::MessageTooLarge { .. } => "MessageTooLargeError",
        Error::ResourceExhausted(_) => "ResourceExhaustedError",
        Error::DeadlineExceeded(_) | Error::Unreached(_) => "DeadlineExceededError",
        Error::Cancelled(_) => "CancelledError",
        Error::Unavailable(_) => "UnavailableError",
        Error::DataLoss(_) => "DataLossError",
        Error::Unimplemented(_) => "UnimplementedError",
        Error::Storage(_) => "StorageError",
        _ => "InternalError",
    };
    Ok(py.import("reverb.errors")?.getattr(name)?.cast_into::<PyType>()?)
}
