//! `reverb._rust.Call`: a call in progress, for an event loop.

use super::wakeups::{Ended, Wakeups};
use crate::errors::PyReverbResult;
use crate::runtime::runtime;
use numpy::PyArray1;
use parking_lot::Mutex;
use pyo3::prelude::*;
use reverb_core::{Error, Result, fork};
use std::sync::Arc;
use tokio::task::AbortHandle;

/// Converts the result of a call for Python. If it is dropped instead, samples go back to their tables.
type Outcome = Box<dyn FnOnce(Python<'_>) -> PyReverbResult<Py<PyAny>> + Send>;

/// A call that runs on the runtime of the process. It is withdrawn if it is dropped before its result was taken.
#[pyclass(frozen, module = "reverb._rust")]
pub struct Call {
    state: Arc<Mutex<State>>,
    task: Option<AbortHandle>,
    generation: u32,
}

enum State {
    /// The call runs. At its end it wakes the loop, if one waits for it, by this number.
    Runs(Option<(Arc<Ended>, u64)>),
    /// The call has ended.
    Ended(Outcome),
    /// The result was taken, or the call withdrawn.
    Over,
}

impl Call {
    /// Runs `work`, whose result `convert` turns into an object.
    pub fn spawn<T: Send + 'static>(
        work: impl Future<Output = Result<T>> + Send + 'static,
        convert: impl FnOnce(Python<'_>, Result<T>) -> PyReverbResult<Py<PyAny>> + Send + 'static,
    ) -> PyReverbResult<Self> {
        let state = Arc::new(Mutex::new(State::Runs(None)));
        let ends = state.clone();
        let task = runtime()?.1.spawn(async move {
            let result = work.await;
            let outcome: Outcome = Box::new(move |py| convert(py, result));
            end(&ends, outcome);
        });
        Ok(Self { state, task: Some(task.abort_handle()), generation: fork::generation() })
    }

    /// An insert of nothing, whose result is an empty array of keys at once.
    pub fn no_keys() -> Self {
        let outcome: Outcome = Box::new(|py| Ok(PyArray1::<u64>::from_vec(py, Vec::new()).into_any().unbind()));
        Self { state: Arc::new(Mutex::new(State::Ended(outcome))), task: None, generation: fork::generation() }
    }
}

/// Keeps the outcome of a call, unless it was withdrawn, and wakes the loop that waits for it.
fn end(state: &Mutex<State>, outcome: Outcome) {
    let waiting = {
        let mut state = state.lock();
        match std::mem::replace(&mut *state, State::Over) {
            State::Runs(waiting) => {
                *state = State::Ended(outcome);
                waiting
            }
            // The samples of a withdrawn call go back once the lock is released.
            State::Ended(_) | State::Over => None,
        }
    };
    if let Some((ended, number)) = waiting {
        ended.add(number);
    }
}

#[pymethods]
impl Call {
    /// Adds a number to the wakeups when the call ends. Returns False if it has ended.
    fn wake(&self, wakeups: &Wakeups, number: u64) -> bool {
        match &mut *self.state.lock() {
            State::Runs(waiting) => {
                *waiting = Some((wakeups.ended().clone(), number));
                true
            }
            State::Ended(_) | State::Over => false,
        }
    }

    /// Takes the result of a call that has ended, or raises its error.
    fn result(&self, py: Python<'_>) -> PyReverbResult<Py<PyAny>> {
        let state = {
            let mut state = self.state.lock();
            match &*state {
                State::Runs(_) => State::Over,
                State::Ended(_) | State::Over => std::mem::replace(&mut *state, State::Over),
            }
        };
        match state {
            State::Ended(outcome) => outcome(py),
            State::Runs(_) | State::Over => {
                Err(Error::Cancelled("the call still runs, or its result was taken".into()).into())
            }
        }
    }

    /// Withdraws the call. Samples that have arrived go back to their table.
    fn cancel(&self) {
        // The runtime of a parent process does not exist here.
        if self.generation == fork::generation() {
            let state = std::mem::replace(&mut *self.state.lock(), State::Over);
            if let (State::Runs(_), Some(task)) = (&state, &self.task) {
                task.abort();
            }
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.cancel();
    }
}
