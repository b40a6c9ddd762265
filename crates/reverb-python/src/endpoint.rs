//! Conversion of `reverb.data.endpoint.Endpoint`.

use crate::errors::PyReverbResult;
use pyo3::prelude::*;
use reverb_net::Endpoint;

/// An endpoint as Python has it: any object with its fields.
#[derive(FromPyObject)]
pub struct PyEndpoint {
    address: String,
}

impl From<PyEndpoint> for Endpoint {
    fn from(endpoint: PyEndpoint) -> Self {
        Self::from(&endpoint.address)
    }
}

/// Checks the address of an endpoint, which a client does with its first call.
#[pyfunction]
pub fn check_endpoint(endpoint: PyEndpoint) -> PyReverbResult<()> {
    Ok(Endpoint::from(endpoint).check()?)
}
