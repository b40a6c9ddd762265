//! The end of a client: calls that wait are withdrawn, and later ones refused.

use crate::errors::{PyReverbError, PyReverbResult};
use pyo3::prelude::*;
use reverb_core::{Error, Result};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use tokio::sync::Notify;

/// Whether a client was closed.
#[derive(Default)]
pub struct Closing {
    is_closed: AtomicBool,
    closed: Notify,
}

fn error() -> Error {
    Error::Cancelled("the client was closed; make a new one".into())
}

impl Closing {
    /// Closes the client. Returns whether it was open.
    pub fn close(&self) -> bool {
        let was_open = !self.is_closed.swap(true, SeqCst);
        self.closed.notify_waiters();
        was_open
    }

    /// Whether the client was closed.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(SeqCst)
    }

    /// Checks that the client is open.
    ///
    /// # Errors
    /// [`Error::Cancelled`], which is not transient here.
    pub fn check(&self, py: Python<'_>) -> PyReverbResult<()> {
        if !self.is_closed() {
            return Ok(());
        }
        let raised = PyErr::from(PyReverbError::from(error()));
        raised.value(py).setattr("is_transient", false)?;
        Err(raised.into())
    }

    /// Awaits a call, which is dropped if the client is closed meanwhile.
    pub async fn or<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let closed = self.closed.notified();
        if self.is_closed() {
            return Err(error());
        }
        tokio::select! {
            biased;
            result = call => result,
            () = closed => Err(error()),
        }
    }
}
