//! The HTTP port of a server: the live page, its data as JSON, metrics and health. Nothing there changes a table.

mod accept;
mod admission;
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
mod visitors;

pub use state::{Failed, HttpState};

use crate::bind::{self, Bound};
use crate::calls::Calls;
use accept::{Listener, Port, accept_from};
use admission::{API, Route};
use answer::text;
use api::Failure;
use axum::Router;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use guard::{Guard, host_name};
use parking_lot::Mutex;
use reverb_core::{Result, fork};
use reverb_secure::{Role, ServerTls};
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

/// All paths but those of health, with who may read them.
fn routes(sums_tables: bool) -> impl Iterator<Item = Route> {
    api::routes().into_iter().chain([metrics::route(sums_tables)]).chain(assets::routes())
}

fn router(state: Arc<HttpState>, sums_tables: bool) -> Router {
    let add = |router: Router<Arc<HttpState>>, route: Route| {
        let (path, answer) = route.checked(&state);
        router.route(&path, answer)
    };
    // The server says that it has no such path, but not to everyone.
    let (_, missing) = Route::new("other", Role::View, any(missing)).checked(&state);
    routes(sums_tables).fold(Router::new(), add).fallback_service(missing.with_state(state.clone())).with_state(state)
}

async fn missing(address: Uri) -> Response {
    if address.path().starts_with(API) {
        return Failure::not_found(format!("there is no such address below {API}")).into_response();
    }
    text(StatusCode::NOT_FOUND, "There is no such page.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::http::Request;
    use axum::http::header::AUTHORIZATION;
    use reverb_secure::{Access, Audit, Reloads, Tokens, sha256_hex};
    use reverb_service::Replay;
    use std::future::pending;
    use std::path::{Path, PathBuf};
    use tower::ServiceExt;

    const MAX_MESSAGE_SIZE: u64 = 1 << 20;

    fn token(role: Role) -> String {
        format!("rvb_secret-of-{role}-0123456789")
    }

    /// Replaces the file of tokens by one with a token of each role.
    fn write(path: &Path, roles: &[Role]) {
        let entry = |role: &Role| {
            let hash = sha256_hex(token(*role).as_bytes());
            format!("[[token]]\nname = \"{role}\"\nrole = \"{role}\"\nsha256 = \"{hash}\"\n")
        };
        let next = path.with_extension("next");
        std::fs::write(&next, roles.iter().map(entry).collect::<String>()).expect("the folder can be written");
        std::fs::rename(next, path).expect("it was written");
    }

    fn state(path: &Path) -> Arc<HttpState> {
        write(path, &Role::ALL);
        let tokens = Tokens::from_file(path.to_owned()).expect("the file is right");
        let access = Some(Arc::new(Access::new(Some(tokens), None, Audit::default())));
        let replay = Replay::new(Vec::new(), MAX_MESSAGE_SIZE).expect("it has no tables");
        Arc::new(HttpState::new(replay, &[]).with_security(Reloads { tls: None, access }))
    }

    fn file(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("reverb-http-tokens-{name}-{}", std::process::id()))
    }

    async fn status(router: &Router, method: &str, path: &str, role: Option<Role>) -> StatusCode {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(role) = role {
            request = request.header(AUTHORIZATION, format!("Bearer {}", token(role)));
        }
        let request = request.body(Body::empty()).expect("a request");
        router.clone().oneshot(request).await.expect("it answers").status()
    }

    #[tokio::test]
    async fn each_path_asks_for_the_role_that_it_names() {
        let path = file("paths");
        let router = router(state(&path), false);
        std::fs::remove_file(&path).expect("it was written");
        let with_roles = routes(false).map(|route| (route.needs().0.to_owned(), route.needs().1));
        let missing = ["/other", "/api/v1", "/api/v1/other", "/api/v1/tables/0/other", "/metrics/"];
        let missing = missing.map(|path| (path.to_owned(), Some(Role::View)));
        for (path, needs) in with_roles.chain(missing) {
            let path = path.replace(['{', '}'], "");
            for method in ["GET", "HEAD"] {
                let without = status(&router, method, &path, None).await;
                assert_eq!(without == StatusCode::OK, needs.is_none(), "{method} {path}: {without}");
                for role in Role::ALL {
                    let status = status(&router, method, &path, Some(role)).await;
                    let refused = needs.is_some_and(|needs| role < needs);
                    assert_eq!(status == StatusCode::FORBIDDEN, refused, "{method} {path} as {role}: {status}");
                    assert_ne!(status, StatusCode::UNAUTHORIZED, "{method} {path} as {role}");
                }
            }
        }
    }

    #[tokio::test]
    async fn a_request_ends_when_its_token_is_gone() {
        let path = file("gone");
        let state = state(&path);
        let (_, endless) = Route::new("/endless", Role::View, any(pending::<Response>)).checked(&state);
        let router = Router::new().route("/endless", endless).with_state(state.clone());
        let ask = |role| Box::pin(status(&router, "GET", "/endless", Some(role)));
        let (mut view, mut other) = (ask(Role::View), ask(Role::Use));
        for asked in [&mut view, &mut other] {
            assert!(tokio::time::timeout(Duration::ZERO, asked).await.is_err(), "it is let in, and waits");
        }
        write(&path, &[Role::Use]);
        state.security.look();
        assert_eq!(view.await, StatusCode::UNAUTHORIZED);
        assert!(tokio::time::timeout(Duration::ZERO, other).await.is_err(), "that of the other token goes on");
        std::fs::remove_file(&path).expect("it was written");
    }

    #[test]
    fn only_the_files_of_the_page_are_open() {
        let open: Vec<_> = routes(false).filter(|route| route.needs().1.is_none()).collect();
        assert_eq!(open.len(), assets::routes().count());
        assert_eq!(open.iter().filter(|route| route.needs().0.starts_with(API)).count(), 0);
    }
}
