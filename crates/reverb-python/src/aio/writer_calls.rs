//! `reverb._rust.WriterCalls`: the waits of a writer, for an event loop.

use super::call::Call;
use super::wakeups::Wakeups;
use crate::errors::PyReverbResult;
use crate::runtime::deadline;
use crate::writer::session::WriterSession;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use reverb_net::client::writer::Session;
use std::sync::Arc;
use std::time::Duration;

/// The waits of one writer. A wait that is withdrawn changes nothing: items stay queued, and are sent.
#[pyclass(frozen, module = "reverb._rust")]
pub struct WriterCalls(Arc<Session>);

#[pymethods]
impl WriterCalls {
    /// The waits of a writer, whose calls wait for no table from now on.
    #[new]
    fn new(writer: &WriterSession) -> Self {
        writer.session().leave_to_task();
        Self(writer.session().clone())
    }

    /// Waits until there is room for so many more items.
    fn take_room(&self, wakeups: &Wakeups, count: usize, timeout: Option<f64>) -> PyReverbResult<Call> {
        let (session, ended, deadline) = (self.0.clone(), wakeups.ended().clone(), deadline(timeout)?);
        let taken = async move { session.take_room(count, deadline, |text| ended.report(text)).await };
        Call::spawn(taken, |py, taken| Ok(taken.map(|()| py.None())?))
    }

    /// Waits until at most `but_last` items are unconfirmed.
    fn flush(&self, wakeups: &Wakeups, but_last: usize, timeout: Option<f64>) -> PyReverbResult<Call> {
        let (session, ended, deadline) = (self.0.clone(), wakeups.ended().clone(), deadline(timeout)?);
        let flushed = async move { session.flush(but_last, deadline, |text| ended.report(text)).await };
        Call::spawn(flushed, |py, flushed| Ok(flushed.map(|()| py.None())?))
    }

    /// Waits at most `patience` seconds until no item is unconfirmed.
    fn drain(&self, patience: f64) -> PyReverbResult<Call> {
        let (session, patience) = (self.0.clone(), Duration::try_from_secs_f64(patience).unwrap_or(Duration::MAX));
        let drained = async move { Ok(session.drain(patience).await) };
        Call::spawn(drained, |py, drained| Ok(drained?.into_py_any(py)?))
    }
}
