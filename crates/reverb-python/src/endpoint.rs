//! Conversion of `reverb.data.endpoint.Endpoint`.

use crate::errors::PyReverbResult;
use pyo3::prelude::*;
use reverb_net::Endpoint;
use reverb_secure::ClientTls;
use std::path::PathBuf;

/// An endpoint as Python has it: any object with its fields.
#[derive(FromPyObject)]
pub struct PyEndpoint {
    address: String,
    tls: Option<Tls>,
}

/// `reverb.TLS`, read by the names of its fields.
#[derive(FromPyObject)]
struct Tls {
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    server_name: Option<String>,
}

impl From<PyEndpoint> for Endpoint {
    fn from(endpoint: PyEndpoint) -> Self {
        let tls = endpoint.tls.map(|Tls { ca, cert, key, server_name }| ClientTls { ca, cert, key, server_name });
        Self { tls: tls.unwrap_or_default(), ..Self::from(&endpoint.address) }
    }
}

/// Checks the address of an endpoint, which a client does with its first call.
#[pyfunction]
pub fn check_endpoint(endpoint: PyEndpoint) -> PyReverbResult<()> {
    Ok(Endpoint::from(endpoint).check()?)
}
