//! `reverb._rust.Server`.

use crate::checkpoint::Checkpointer;
use crate::durability::Durable;
use crate::errors::PyReverbResult;
use crate::runtime::{http_runtime, runtime, wait};
use crate::table::Table;
use crate::without_gil::without_gil;
use parking_lot::Mutex;
use pyo3::prelude::*;
use reverb_core::{Error, MAX_SHARDS};
use reverb_net::METHODS;
use reverb_net::server::{End, ListenOptions, Server as CoreServer, set_last};
use reverb_observe::http::{HttpOptions, HttpServer, HttpState};
use reverb_secure::{Access, Audit, Reloads, Role, ServerTls, TlsFiles, Tokens};
use reverb_service::{Replay, Shard};
use reverb_store::checkpoint::Checkpointer as CoreCheckpointer;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A running server.
#[pyclass(frozen, module = "reverb._rust")]
pub struct Server {
    replay: Arc<Replay>,
    #[pyo3(get)]
    port: u16,
    #[pyo3(get)]
    host: String,
    #[pyo3(get)]
    unix_path: Option<String>,
    server: Mutex<CoreServer>,
    #[pyo3(get)]
    restored_from: Option<String>,
    #[pyo3(get)]
    http_port: Option<u16>,
    #[pyo3(get)]
    dashboard_url: Option<String>,
}

/// `ServerOptions` of `reverb._settings`, and its parts, read by the names of their fields.
#[derive(FromPyObject)]
struct ServerOptions {
    listen: Listen,
    security: Security,
    observe: Observe,
    durable: Durable,
}

#[derive(FromPyObject)]
struct Listen {
    port: u16,
    host: String,
    max_message_size: u64,
    heartbeat_interval: f64,
    max_shared_bytes: Option<u64>,
    shard: Option<ShardOfCluster>,
}

/// `reverb.cluster.Shard`, read by the names of its fields.
#[derive(FromPyObject)]
struct ShardOfCluster {
    id: u32,
    cluster: String,
}

/// The rest of it concerns Python alone.
#[derive(FromPyObject)]
struct Security {
    tls: Option<Tls>,
    tokens: Option<TokensFile>,
    unix_peers: Vec<u32>,
    audit_log: Option<PathBuf>,
}

/// `reverb.Tokens`, read by the names of its fields.
#[derive(FromPyObject)]
struct TokensFile {
    path: PathBuf,
}

/// `reverb.ServerTLS`, read by the names of its fields.
#[derive(FromPyObject)]
struct Tls {
    cert: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
    client_role: String,
}

impl Security {
    /// Reads the files, and returns the TLS of the server, and what checks its callers, if they are to be checked.
    fn read(&mut self) -> Result<Reloads, Error> {
        let (mut tls, mut client_role) = (None, None);
        if let Some(Tls { cert, key, client_ca, client_role: role }) = self.tls.take() {
            if client_ca.is_some() {
                let unknown = || Error::invalid(format!("client_role: expected view, use or admin, got {role:?}"));
                client_role = Some(Role::of(&role).ok_or_else(unknown)?);
            }
            tls = Some(Arc::new(ServerTls::new(TlsFiles { cert, key, client_ca })?));
        }
        let tokens = self.tokens.take().map(|file| Tokens::from_file(file.path)).transpose()?;
        if tokens.is_none() && client_role.is_none() && self.audit_log.is_none() {
            return Ok(Reloads { tls, access: None });
        }
        let audit = self.audit_log.take().map_or_else(|| Ok(Audit::default()), Audit::to_file)?;
        Ok(Reloads { tls, access: Some(Arc::new(Access::new(tokens, client_role, audit))) })
    }
}

#[derive(FromPyObject)]
struct Observe {
    http_port: HttpPort,
    http_host: String,
    http_allowed_hosts: Vec<String>,
    metrics_per_table: bool,
}

/// A port, or a word that switches HTTP off.
#[derive(FromPyObject)]
enum HttpPort {
    On(u16),
    #[expect(dead_code, reason = "Python has checked that it is `off`")]
    Off(String),
}

/// Starts the HTTP port, unless it is off. A server whose user has not chosen the port does without it where none can be
/// opened.
fn start_http(wanted: Observe, security: Reloads, replay: &Arc<Replay>) -> Result<Option<HttpServer>, Error> {
    let HttpPort::On(port) = wanted.http_port else { return Ok(None) };
    let tls = security.tls.clone();
    let state = Arc::new(HttpState::new(replay.clone(), &METHODS).with_security(security));
    let options = HttpOptions {
        host: resolve(&wanted.http_host)?,
        port,
        allowed_hosts: wanted.http_allowed_hosts,
        sums_tables: !wanted.metrics_per_table,
        tls,
    };
    match HttpServer::start(http_runtime()?.1.handle(), state, &options) {
        Err(Error::Unavailable(why)) if port == 0 => {
            tracing::warn!("the server has no live page, metrics and health: {why}");
            Ok(None)
        }
        started => started.map(Some),
    }
}

/// Stops the HTTP port of a server that cannot start. That waits for a thread of the port.
struct StoppedWithoutGil(Option<HttpServer>);

impl Drop for StoppedWithoutGil {
    fn drop(&mut self) {
        if let Some(http) = self.0.take() {
            Python::attach(|py| without_gil(py, || drop(http)));
        }
    }
}

/// Leaves the checkpoints of a server that cannot start to others, and removes a temporary folder.
fn release_folder(replay: &Replay) {
    if let Some(store) = replay.store() {
        let _reported_in_log = store.close();
    }
}

/// Loads a checkpoint on a separate thread, so that the calling thread can react to Ctrl-C.
async fn restore(checkpointer: Arc<CoreCheckpointer>, replay: Arc<Replay>) -> Result<Option<String>, Error> {
    let load = move || checkpointer.restore(replay.tables(), &replay.ledgers, replay.max_message_size());
    let loaded = tokio::task::spawn_blocking(load).await.map_err(|error| Error::Internal(error.to_string()))??;
    Ok(loaded.map(|path| path.to_string_lossy().into_owned()))
}

#[pymethods]
impl Server {
    #[new]
    fn new(
        py: Python<'_>,
        tables: Vec<PyRef<'_, Table>>,
        options: ServerOptions,
        checkpointer: Option<PyRef<'_, Checkpointer>>,
    ) -> PyReverbResult<Self> {
        let ServerOptions { listen, mut security, observe, durable } = options;
        let files = security.read()?;
        let heartbeat = Duration::try_from_secs_f64(listen.heartbeat_interval)
            .map_err(|error| Error::invalid(format!("heartbeat_interval {}: {error}", listen.heartbeat_interval)))?;
        let options = ListenOptions {
            host: resolve(&listen.host)?,
            port: Some(listen.port),
            heartbeat,
            tls: files.tls.clone(),
            access: files.access.clone(),
            unix_peers: security.unix_peers,
            max_shared_bytes: listen.max_shared_bytes,
        };
        let shard =
            listen.shard.map(|ShardOfCluster { id, cluster }| Shard::new(id, MAX_SHARDS, cluster)).transpose()?;
        let handles = tables.iter().map(|table| table.handle.clone()).collect();
        let replay = Replay::of_shard(handles, listen.max_message_size, shard)?;
        let runtime = runtime()?;
        // Before a checkpoint is loaded, so that probes can ask how far that is.
        let http = start_http(observe, files, &replay)?;
        let (http_port, dashboard_url) =
            (http.as_ref().map(HttpServer::port), http.as_ref().map(|http| http.url().to_owned()));
        let mut http = StoppedWithoutGil(http);
        let mut restored_from = None;
        if let Some(checkpointer) = checkpointer {
            let opened = Arc::new(CoreCheckpointer::open(durable.added_to(&checkpointer.options)?)?);
            replay.set_store(opened.clone());
            restored_from = wait(py, restore(opened, replay.clone())).inspect_err(|_| release_folder(&replay))?;
        }
        let server = without_gil(py, || {
            let http = http.0.take();
            CoreServer::start(runtime.1.handle(), replay.clone(), &options, http)
        });
        let server = server.inspect_err(|_| release_folder(&replay))?;
        Ok(Self {
            replay,
            port: server.port(),
            host: server.host().to_string(),
            unix_path: server.unix_path().map(|path| path.to_string_lossy().into_owned()),
            server: Mutex::new(server),
            restored_from,
            http_port,
            dashboard_url,
        })
    }

    fn stop(&self, py: Python<'_>, end: &str) -> PyReverbResult<()> {
        let end = match end {
            "for good" => End::ForGood,
            "returns" => End::Returns,
            "with program" => End::WithProgram,
            "collected" => End::Collected,
            other => {
                let expected = "expected \"for good\", \"returns\", \"with program\" or \"collected\"";
                return Err(Error::invalid(format!("end: {expected}, got {other:?}")).into());
            }
        };
        Ok(without_gil(py, || self.server.lock().end(end))?)
    }

    fn reload(&self, py: Python<'_>) {
        without_gil(py, || self.server.lock().reload());
    }

    #[staticmethod]
    #[pyo3(name = "set_last")]
    fn say_last(is_last: bool) {
        set_last(is_last);
    }

    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyReverbResult<bool> {
        let limit = timeout.map(|timeout| Duration::try_from_secs_f64(timeout).unwrap_or(Duration::MAX));
        wait(py, async {
            let closed = self.replay.closed();
            match limit {
                None => closed.await,
                Some(limit) => return Ok(tokio::time::timeout(limit, closed).await.is_ok()),
            }
            Ok(true)
        })
    }
}

/// An address of this machine; `None` for `localhost`, which means loopback in both address families.
fn resolve(host: &str) -> Result<Option<IpAddr>, Error> {
    if host == "localhost" {
        return Ok(None);
    }
    if let Ok(address) = host.trim_matches(['[', ']']).parse() {
        return Ok(Some(address));
    }
    let unknown = |why: String| Error::invalid(format!("host `{host}` is not an address: {why}"));
    let mut addresses = (host, 0).to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
    addresses.next().map(|address| Some(address.ip())).ok_or_else(|| unknown("the name has no address".into()))
}
