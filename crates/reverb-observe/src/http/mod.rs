//! The HTTP port of a server: the live page, its data as JSON, metrics and health. Nothing there changes a table.

mod accept;
mod answer;
mod api;
mod assets;
mod events;
mod guard;
mod health;
mod histogram_cache;
mod history;
mod metrics;
mod places;
mod state;
mod stream;

pub use state::{Failed, HttpState};

use crate::bind::{self, Bound};
use crate::calls::Calls;
use accept::{Listener, Port, accept_from};
use answer::text;
use axum::Router;
use axum::http::StatusCode;
use guard::{Guard, host_name};
use parking_lot::Mutex;
use reverb_core::{Result, fork};
use reverb_secure::ServerTls;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// Maximum time to wait for the release of the port, which usually takes microseconds.
const STOP_TIME: Duration = Duration::from_secs(1);

/// Where the HTTP port listens, and under which names it answers.
#[derive(Debug, Clone, Default)]
pub struct HttpOptions {
    /// An address of this machine. `None` means loopback, in both address families.
    pub host: Option<IpAddr>,
    /// The port; 0 picks a free one.
    pub port: u16,
    /// Further host names under which clients reach the port, without a port.
    pub allowed_hosts: Vec<String>,
    /// Whether metrics are of all tables together, instead of each one.
    pub sums_tables: bool,
    /// TLS of the port.
    pub tls: Option<Arc<ServerTls>>,
}

/// A running HTTP port. Dropping it stops it.
#[derive(Debug)]
pub struct HttpServer {
    port: u16,
    url: String,
    calls: Arc<Calls>,
    generation: u32,
    /// Its drop ends all tasks.
    stop: Option<watch::Sender<()>>,
    /// Disconnected when the port is free again.
    freed: Mutex<Receiver<()>>,
}

impl HttpServer {
    /// Listens, and serves on `runtime`, which should not be the one that serves gRPC.
    ///
    /// # Errors
    /// [`reverb_core::Error::InvalidArgument`] if the host is not an address of this machine.
    /// [`reverb_core::Error::Unavailable`] if the port is in use.
    pub fn start(runtime: &Handle, state: Arc<HttpState>, options: &HttpOptions) -> Result<Self> {
        let _entered = runtime.enter();
        let failed = |error: std::io::Error| bind::failed("http_", options.host, options.port, &error);
        let bound = Bound::new(options.host, options.port).map_err(failed)?;
        let listeners = bound.listeners.into_iter().map(TcpListener::from_std);
        let listeners = listeners.collect::<std::io::Result<Vec<_>>>().map_err(failed)?;
        let url = page_address(options.host, bound.port, options.tls.is_some());
        let _set_once = state.replay.facts.dashboard_url.set(url.clone());
        let calls = state.calls.clone();
        let (stop, stopped) = watch::channel(());
        let (open, freed) = std::sync::mpsc::channel();
        runtime.spawn(history::record(Arc::downgrade(&state.history), Arc::downgrade(&state.replay)));
        let (router, guard) = (router(state.clone(), options.sums_tables), Guard::new(&options.allowed_hosts));
        let port = Arc::new(Port::new(state, router, guard, options.tls.clone()));
        for listener in listeners {
            runtime.spawn(accept_from(open.clone(), Listener(listener), port.clone(), stopped.clone()));
        }
        let generation = fork::generation();
        Ok(Self { port: bound.port, url, calls, generation, stop: Some(stop), freed: Mutex::new(freed) })
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the address of the page.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the counts of the calls of the gRPC services, which are shown.
    pub fn calls(&self) -> &Arc<Calls> {
        &self.calls
    }

    /// Closes all connections and frees the port. Does nothing in a forked child process.
    pub fn stop(&mut self) {
        let stop = self.stop.take();
        if self.generation != fork::generation() {
            std::mem::forget(stop);
        } else if stop.is_some() {
            drop(stop);
            let _freed = self.freed.lock().recv_timeout(STOP_TIME);
        }
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Returns the address of the page. A wildcard is not an address that a browser can open, so it is the host name then.
fn page_address(host: Option<IpAddr>, port: u16, is_tls: bool) -> String {
    let scheme = if is_tls { "https" } else { "http" };
    match host {
        None => format!("{scheme}://localhost:{port}"),
        Some(host) if host.is_unspecified() => {
            format!("{scheme}://{}:{port}", host_name().as_deref().unwrap_or("localhost"))
        }
        Some(host) => format!("{scheme}://{}", SocketAddr::new(host, port)),
    }
}

fn router(state: Arc<HttpState>, sums_tables: bool) -> Router {
    Router::new()
        .nest("/api/v1", api::router())
        .merge(metrics::router(sums_tables))
        .merge(assets::router())
        .fallback(async || text(StatusCode::NOT_FOUND, "There is no such page."))
        .with_state(state)
}
