//! `reverb._rust.health`.

use crate::endpoint::PyEndpoint;
use crate::errors::PyReverbResult;
use crate::runtime::wait;
use pyo3::prelude::*;
use reverb_core::Error;
use reverb_net::client::health::is_serving;
use std::time::Duration;

/// Whether a service is served at an endpoint, by gRPC's own health service.
#[pyfunction]
pub fn health(py: Python<'_>, endpoint: PyEndpoint, service: &str, timeout: f64) -> PyReverbResult<bool> {
    let limit = Duration::try_from_secs_f64(timeout)
        .map_err(|_| Error::invalid(format!("timeout must be a number of seconds >= 0, got {timeout}")))?;
    wait(py, is_serving(&endpoint.into(), service, limit))
}
