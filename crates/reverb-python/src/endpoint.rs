//! Conversion of `reverb.data.endpoint.Endpoint`.

use crate::errors::PyReverbResult;
use pyo3::prelude::*;
use reverb_net::Endpoint;
use reverb_secure::{ClientTls, TokenSource};
use std::path::PathBuf;

/// An endpoint as Python has it: any object with its fields.
#[derive(FromPyObject)]
pub struct PyEndpoint {
    address: String,
    tls: Option<Tls>,
    token: Option<String>,
    token_file: Option<PathBuf>,
    allow_insecure: Option<bool>,
    unix_peers: Vec<u32>,
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
        let given = endpoint.token.map(|token| TokenSource::Given(token.into()));
        Self {
            tls: tls.unwrap_or_default(),
            token: given.or_else(|| endpoint.token_file.map(TokenSource::File)),
            allow_insecure: endpoint.allow_insecure.unwrap_or(false),
            unix_peers: endpoint.unix_peers,
            ..Self::from(&endpoint.address)
        }
    }
}

/// Checks the address of an endpoint and its token, which a client does with its first call.
#[pyfunction]
pub fn check_endpoint(endpoint: PyEndpoint) -> PyReverbResult<()> {
    Ok(Endpoint::from(endpoint).check()?)
}
