//! The HTTP port of a server: the live page, its data as JSON, metrics and health. Nothing there changes a table.

mod api;
mod assets;
mod histogram_cache;
mod history;
mod metrics;
mod state;

pub use state::{Failed, HttpState};

use axum::Router;
use parking_lot::Mutex;
use reverb_core::{Error, Result, fork};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Handle;

/// Maximum time to wait for the release of the port.
const STOP_TIME: Duration = Duration::from_secs(1);

/// Where the HTTP port listens.
#[derive(Debug, Clone, Default)]
pub struct HttpOptions {
    /// An address of this machine. `None` means loopback.
    pub host: Option<IpAddr>,
    /// The port; 0 picks a free one.
    pub port: u16,
}

/// A running HTTP port. Dropping it stops it.
#[derive(Debug)]
pub struct HttpServer {
    port: u16,
    url: String,
    generation: u32,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    freed: Mutex<Receiver<()>>,
}

impl HttpServer {
    /// Listens, and serves on `runtime`.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the port is in use or the address cannot be bound.
    pub fn start(runtime: &Handle, state: Arc<HttpState>, options: &HttpOptions) -> Result<Self> {
        let _entered = runtime.enter();
        let address = SocketAddr::new(options.host.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)), options.port);
        let failed =
            |error: std::io::Error| Error::Unavailable(format!("cannot listen on {address} for HTTP: {error}"));
        let listener = std::net::TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let listener = TcpListener::from_std(listener).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let url = match options.host {
            None => format!("http://localhost:{port}"),
            Some(host) => format!("http://{}", SocketAddr::new(host, port)),
        };
        let _set_once = state.facts.dashboard_url.set(url.clone());
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (open, freed) = std::sync::mpsc::channel::<()>();
        runtime.spawn(history::record(Arc::downgrade(&state.history), Arc::downgrade(&state.replay)));
        let router = router(state);
        runtime.spawn(async move {
            let serving = axum::serve(listener, router);
            tokio::select! {
                _failed = serving => {}
                _stopped = stopped => {}
            }
            drop(open);
        });
        Ok(Self { port, url, generation: fork::generation(), stop: Some(stop), freed: Mutex::new(freed) })
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the address of the page.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Stops and frees the port. Does nothing in a forked child process.
    pub fn stop(&mut self) {
        let stop = self.stop.take();
        if self.generation != fork::generation() {
            std::mem::forget(stop);
        } else if stop.is_some_and(|stop| stop.send(()).is_ok()) {
            let _freed = self.freed.lock().recv_timeout(STOP_TIME);
        }
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn router(state: Arc<HttpState>) -> Router {
    Router::new().nest("/api/v1", api::router()).merge(metrics::router()).merge(assets::router()).with_state(state)
}
