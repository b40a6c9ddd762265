//! Conversion of `reverb.data.endpoint.Endpoint`.

use crate::errors::PyReverbResult;
use pyo3::prelude::*;
use reverb_net::transport::cluster::{ClusterOptions, OnShardLoss, Placement};
use reverb_net::{Address, Endpoint};
use reverb_secure::{ClientTls, TokenSource};
use std::path::PathBuf;
use std::time::Duration;

/// An endpoint as Python has it: any object with its fields.
#[derive(FromPyObject)]
pub struct PyEndpoint {
    address: String,
    tls: Option<Tls>,
    token: Option<String>,
    token_file: Option<PathBuf>,
    allow_insecure: Option<bool>,
    unix_peers: Vec<u32>,
    max_shared_bytes: Option<u64>,
    cluster: Option<Cluster>,
}

/// `reverb.data.cluster_options.ClusterOptions`, which has checked its fields.
#[derive(FromPyObject)]
struct Cluster {
    placement: String,
    on_shard_loss: String,
    shard_timeout: f64,
}

/// `reverb.TLS`, read by the names of its fields.
#[derive(FromPyObject)]
struct Tls {
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    server_name: Option<String>,
}

impl From<Cluster> for ClusterOptions {
    fn from(cluster: Cluster) -> Self {
        let on_shard_loss = match &*cluster.on_shard_loss {
            "raise" => OnShardLoss::Raise,
            "wait" => OnShardLoss::Wait,
            _ => OnShardLoss::Continue,
        };
        let placement = if cluster.placement == "writer" { Placement::Writer } else { Placement::Episode };
        Self { on_shard_loss, shard_timeout: Duration::from_secs_f64(cluster.shard_timeout), placement }
    }
}

impl From<PyEndpoint> for Endpoint {
    fn from(endpoint: PyEndpoint) -> Self {
        let address = match &endpoint.cluster {
            Some(_) => Address::of_cluster(&endpoint.address),
            None => Address::parse(&endpoint.address),
        };
        let default = Self::from("").max_shared_bytes;
        let tls = endpoint.tls.map(|Tls { ca, cert, key, server_name }| ClientTls { ca, cert, key, server_name });
        let given = endpoint.token.map(|token| TokenSource::Given(token.into()));
        Self {
            tls: tls.unwrap_or_default(),
            token: given.or_else(|| endpoint.token_file.map(TokenSource::File)),
            allow_insecure: endpoint.allow_insecure.unwrap_or(false),
            unix_peers: endpoint.unix_peers,
            max_shared_bytes: endpoint.max_shared_bytes.unwrap_or(default),
            cluster: endpoint.cluster.map(Into::into),
            address,
        }
    }
}

/// Checks the address of an endpoint and its token, which a client does with its first call.
#[pyfunction]
pub fn check_endpoint(endpoint: PyEndpoint) -> PyReverbResult<()> {
    Ok(Endpoint::from(endpoint).check()?)
}
