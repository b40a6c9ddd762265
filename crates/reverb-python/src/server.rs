//! `reverb._rust.Server`.

use crate::checkpoint::Checkpointer;
use crate::errors::PyReverbResult;
use crate::runtime::{http_runtime, runtime, wait};
use crate::table::Table;
use parking_lot::Mutex;
use pyo3::prelude::*;
use reverb_core::Error;
use reverb_net::METHODS;
use reverb_net::server::{ListenOptions, Server as CoreServer};
use reverb_observe::http::{HttpOptions, HttpServer, HttpState};
use reverb_service::Replay;
use reverb_store::checkpoint::Checkpointer as CoreCheckpointer;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

/// A running server.
#[pyclass(frozen, module = "reverb._rust")]
pub struct Server {
    replay: Arc<Replay>,
    port: u16,
    host: IpAddr,
    unix_path: Option<String>,
    server: Mutex<CoreServer>,
    restored_from: Option<String>,
    http_port: Option<u16>,
    dashboard_url: Option<String>,
}

/// Where HTTP listens, as Python names it: host, port, and further host names; and whether metrics are by table.
type HttpPort = (Option<String>, u16, Vec<String>, bool);

/// Starts the HTTP port. A server whose user has not chosen the port does without it where none can be opened.
fn start_http(wanted: HttpPort, replay: &Arc<Replay>) -> Result<Option<HttpServer>, Error> {
    let (host, port, allowed_hosts, metrics_per_table) = wanted;
    let state = Arc::new(HttpState::new(replay.clone(), &METHODS));
    let host = host.as_deref().map(resolve).transpose()?.flatten();
    let options = HttpOptions { host, port, allowed_hosts, sums_tables: !metrics_per_table };
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
            Python::attach(|py| py.detach(|| drop(http)));
        }
    }
}

/// Leaves the checkpoints of a server that cannot start to others, and removes a temporary folder.
fn release_folder(replay: &Replay) {
    if let Some(store) = replay.store() {
        store.close();
    }
}

/// Loads a checkpoint on a separate thread, so that the calling thread can react to Ctrl-C.
async fn restore(checkpointer: Arc<CoreCheckpointer>, replay: Arc<Replay>) -> Result<Option<String>, Error> {
    let load = move || checkpointer.restore(replay.tables(), replay.max_message_size());
    let loaded = tokio::task::spawn_blocking(load).await.map_err(|error| Error::Internal(error.to_string()))??;
    Ok(loaded.map(|path| path.to_string_lossy().into_owned()))
}

#[pymethods]
impl Server {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn new(
        py: Python<'_>,
        tables: Vec<PyRef<'_, Table>>,
        host: Option<&str>,
        port: Option<i64>,
        max_message_size: u64,
        heartbeat_interval: f64,
        http: Option<HttpPort>,
        checkpointer: Option<PyRef<'_, Checkpointer>>,
    ) -> PyReverbResult<Self> {
        let port = port.map(u16::try_from).transpose().map_err(|_| {
            Error::invalid(format!("port must be between 0 and 65535, got {}", port.unwrap_or_default()))
        })?;
        let heartbeat = Duration::try_from_secs_f64(heartbeat_interval)
            .map_err(|error| Error::invalid(format!("heartbeat_interval {heartbeat_interval}: {error}")))?;
        let options = ListenOptions { host: host.map(resolve).transpose()?.flatten(), port, heartbeat };
        let replay = Replay::new(tables.iter().map(|table| table.handle.clone()).collect(), max_message_size)?;
        let runtime = runtime()?;
        // Before a checkpoint is loaded, so that probes can ask how far that is.
        let http = http.map(|wanted| start_http(wanted, &replay)).transpose()?.flatten();
        let (http_port, dashboard_url) =
            (http.as_ref().map(HttpServer::port), http.as_ref().map(|http| http.url().to_owned()));
        let mut http = StoppedWithoutGil(http);
        let mut restored_from = None;
        if let Some(checkpointer) = checkpointer {
            let opened = Arc::new(CoreCheckpointer::open(checkpointer.options.clone())?);
            replay.set_store(opened.clone());
            restored_from = wait(py, restore(opened, replay.clone())).inspect_err(|_| release_folder(&replay))?;
        }
        let server = py.detach(|| {
            let http = http.0.take();
            CoreServer::start(runtime.1.handle(), replay.clone(), &options, http)
        });
        let server = server.inspect_err(|_| release_folder(&replay))?;
        Ok(Self {
            replay,
            port: server.port(),
            host: server.host(),
            unix_path: server.unix_path().map(|path| path.to_string_lossy().into_owned()),
            server: Mutex::new(server),
            restored_from,
            http_port,
            dashboard_url,
        })
    }

    #[getter]
    fn port(&self) -> u16 {
        self.port
    }

    #[getter]
    fn host(&self) -> String {
        self.host.to_string()
    }

    #[getter]
    fn unix_path(&self) -> Option<&str> {
        self.unix_path.as_deref()
    }

    #[getter]
    fn restored_from(&self) -> Option<&str> {
        self.restored_from.as_deref()
    }

    #[getter]
    fn http_port(&self) -> Option<u16> {
        self.http_port
    }

    #[getter]
    fn dashboard_url(&self) -> Option<&str> {
        self.dashboard_url.as_deref()
    }

    fn stop(&self, py: Python<'_>) -> PyReverbResult<()> {
        Ok(py.detach(|| self.server.lock().stop())?)
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
