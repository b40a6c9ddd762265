//! `reverb._rust.BenchTable`.

use crate::endpoint::PyEndpoint;
use crate::errors::PyReverbResult;
use crate::runtime::{deadline, wait};
use crate::without_gil::without_gil;
use parking_lot::Mutex;
use pyo3::prelude::*;
use reverb_net::client::{Bench, BenchHold, Client};

/// A table of a server for measurements, which exists until this is closed or the process ends.
#[pyclass(frozen, module = "reverb._rust")]
pub struct BenchTable {
    #[pyo3(get)]
    name: String,
    #[pyo3(get)]
    road: String,
    /// The hold, and the client whose connection it needs.
    held: Mutex<Option<(BenchHold, Client)>>,
}

#[pymethods]
impl BenchTable {
    #[new]
    fn new(py: Python<'_>, endpoint: PyEndpoint, timeout: Option<f64>) -> PyReverbResult<Self> {
        let client = Client::new(endpoint);
        let deadline = deadline(timeout)?;
        // On the runtime of the process, whose threads keep the connection alive.
        let hold = wait(py, client.call(Bench, deadline).into_future())?;
        let road = client.road_name().unwrap_or_default();
        Ok(Self { name: hold.table.clone(), road, held: Mutex::new(Some((hold, client))) })
    }

    fn close(&self, py: Python<'_>) {
        without_gil(py, || drop(self.held.lock().take()));
    }
}
