//! A server of the replay service: it listens on TCP and on a Unix socket, and owns all background tasks.

mod admission;
mod connection;
mod count_calls;
mod farewell;
mod goodbye;
mod health;
mod listen;
mod reflection;
mod serve;

pub use count_calls::METHODS;
pub use farewell::{End, set_last};
pub use listen::ListenOptions;

use crate::dm_reverb;
use crate::replay_v1;
use crate::transport::segment::Segment;
use health::Health;
use listen::Listeners;
use parking_lot::Mutex;
use reverb_core::{Result, fork};
use reverb_observe::Calls;
use reverb_observe::documents::memory_limit;
use reverb_observe::http::HttpServer;
use reverb_observe::verdict::watch;
use reverb_secure::Reloads;
use reverb_service::maintenance::run_maintenance;
use reverb_service::registry;
use reverb_service::{Replay, Store};
use serve::serve;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant, SystemTime};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{sleep, sleep_until};
use tonic::service::Routes;

/// Maximum time to wait for the release of the addresses, which usually takes microseconds.
const STOP_TIME: Duration = Duration::from_secs(1);

// limit (Draws): time that clients have for their last receipts when a server stops | {:time} | the samples go back
/// Maximum time to wait for the receipts that are due, before the tables are closed.
const RECEIPT_TIME: Duration = Duration::from_secs(1);

/// Time between looks at whether the store wants a save.
const LOOK_TIME: Duration = Duration::from_secs(1);

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    replay: Arc<Replay>,
    host: IpAddr,
    port: u16,
    unix_path: Option<PathBuf>,
    generation: u32,
    runtime: Handle,
    http: Option<HttpServer>,
    reloads: Reloads,
    serving: Option<Serving>,
}

// limit (Shared memory): bytes of memory that a server shares with the clients of its host | an eighth of the memory that
// its process may use, or {:bytes} where the system does not tell | the data of batches travels over the socket |
// `Server(max_shared_bytes=)`
/// Default of [`ListenOptions::max_shared_bytes`] where the system does not tell how much memory there is.
const DEFAULT_SHARED_BYTES: u64 = 1 << 30;
/// The part of the memory of the process that is the default elsewhere.
const SHARED_PART: u64 = 8;

#[derive(Debug)]
struct Serving {
    task: JoinHandle<()>,
    health: Health,
    /// Disconnected when the addresses are free again.
    freed: Mutex<Receiver<()>>,
}

impl Server {
    /// Binds the sockets and starts to serve on `runtime`. `http` is the HTTP port of the server, if it has
    /// one, which stops with it.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the host is not an address of this machine. [`Error::Unavailable`] if the port is
    /// in use.
    pub fn start(
        runtime: &Handle,
        replay: Arc<Replay>,
        options: &ListenOptions,
        http: Option<HttpServer>,
    ) -> Result<Self> {
        let _entered = runtime.enter();
        let listeners = Listeners::bind(options)?;
        let (host, port, unix_path) = (listeners.host, listeners.port, listeners.unix_path.clone());
        let _set_once = replay.facts.addresses.set(listeners.addresses());
        if unix_path.is_some() && Segment::is_available() {
            replay.shared.set_limit(
                options
                    .max_shared_bytes
                    .unwrap_or_else(|| memory_limit().map_or(DEFAULT_SHARED_BYTES, |bytes| bytes / SHARED_PART)),
            );
        }
        registry::register(&listeners.hosts, port, &replay);
        farewell::register(&replay);
        for table in replay.tables() {
            runtime.spawn(run_maintenance(table.clone(), replay.clone()));
        }
        runtime.spawn(watch(Arc::downgrade(&replay)));
        if let Some(store) = replay.store().filter(|store| store.interval().is_some() || store.log().is_some()) {
            runtime.spawn(save_when_due(replay.clone(), store.clone()));
        }
        let reloads = Reloads { tls: options.tls.clone(), access: options.access.clone() };
        if reloads.has_files() {
            let until = replay.clone();
            runtime.spawn(reloads.clone().watch(async move { until.closed().await }));
        }
        let health = Health::default();
        let (reflection, old_reflection) = reflection::services();
        let routes = Routes::new(replay_v1::server::service(replay.clone(), unix_path.clone(), options.heartbeat))
            .add_service(dm_reverb::server::service(replay.clone()))
            .add_service(health.service())
            .add_service(reflection)
            .add_service(old_reflection);
        let (connections, freed) = listeners.accept(&replay);
        let until = replay.clone();
        let calls = http.as_ref().map_or_else(|| Arc::new(Calls::new(&METHODS)), |http| http.calls().clone());
        let task = runtime
            .spawn(serve(routes, (calls, options.access.clone()), connections, async move { until.closed().await }));
        tracing::info!("serves at {host}, port {port}; number of tables: {}", replay.tables().len());
        let serving = Some(Serving { task, health, freed: Mutex::new(freed) });
        Ok(Self {
            replay,
            host,
            port,
            unix_path,
            generation: fork::generation(),
            runtime: runtime.clone(),
            http,
            reloads,
            serving,
        })
    }

    /// Returns the service.
    pub fn replay(&self) -> &Arc<Replay> {
        &self.replay
    }

    /// Returns the TCP address that the server listens on.
    pub fn host(&self) -> IpAddr {
        self.host
    }

    /// Returns the TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the path of the Unix socket, if there is one.
    pub fn unix_path(&self) -> Option<&Path> {
        self.unix_path.as_deref()
    }

    /// Reads certificates and tokens again, if their files have changed, without waiting for the next look at them.
    pub fn reload(&self) {
        self.reloads.look();
    }

    /// Ends the server for good: see [`Server::end`].
    ///
    /// # Errors
    /// Those of [`Server::end`].
    pub fn stop(&mut self) -> Result<()> {
        self.end(End::ForGood)
    }

    /// Asks for the receipts that are due, ends all waiting calls, closes all connections and frees the ports. Tells the
    /// clients of other processes whether the server will be back. Saves the tables if the store is configured to do
    /// so. Does nothing in a forked child process.
    ///
    /// # Errors
    /// The error of the save. The server has stopped in any case.
    pub fn end(&mut self, end: End) -> Result<()> {
        let (serving, http) = (self.serving.take(), self.http.take());
        if self.generation != fork::generation() {
            std::mem::forget((serving, http));
            return Ok(());
        }
        let Some(serving) = serving else { return Ok(()) };
        serving.health.stop();
        registry::unregister(&self.replay);
        if matches!(end, End::ForGood | End::Returns) {
            self.replay.set_returns(end == End::Returns);
        }
        self.replay.receipts.collect(RECEIPT_TIME);
        self.replay.close();
        tracing::info!("the server at {}, port {} stops", self.host, self.port);
        if let Some(path) = &self.unix_path {
            let _gone = std::fs::remove_file(path);
        }
        let _freed = serving.freed.lock().recv_timeout(STOP_TIME);
        let replay = self.replay.clone();
        // A stream ends by itself after all its waiting calls are answered, but not if the client does not read.
        self.runtime.spawn(async move {
            if end == End::Collected && tokio::time::timeout(STOP_TIME, replay.returns()).await.is_err() {
                replay.set_returns(true);
            }
            replay.returns().await;
            tokio::time::sleep(STOP_TIME).await;
            serving.task.abort();
        });
        let saved = self.save_and_close();
        if end == End::ForGood {
            farewell::wait_told(&self.replay);
        }
        // After the save, which may take minutes: probes see that the server is stopping, and not that it is dead.
        drop(http);
        saved
    }

    fn save_and_close(&self) -> Result<()> {
        let Some(store) = self.replay.store() else { return Ok(()) };
        let saved = if store.saves_on_stop() { store.save_last(self.replay.tables()).map(drop) } else { Ok(()) };
        saved.and(store.close())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.end(End::Returns) {
            tracing::error!("the tables were not saved when the server stopped: {error}");
        }
    }
}

/// Saves the tables periodically, and when the store wants it, until the service is closed. A failed save is logged, and
/// does not change the time of the next one.
async fn save_when_due(replay: Arc<Replay>, store: Arc<dyn Store>) {
    let mut closed = std::pin::pin!(replay.closed());
    let mut next = None;
    loop {
        if let (Some(interval), None) = (store.interval(), next) {
            next = Instant::now().checked_add(interval);
            *replay.facts.next_save.lock() = SystemTime::now().checked_add(interval);
        }
        let interval_ends = async {
            match next {
                Some(next) => sleep_until(next.into()).await,
                None => std::future::pending().await,
            }
        };
        let is_wanted = tokio::select! {
            () = interval_ends => false,
            () = wanted(&*store) => true,
            () = &mut closed => return,
        };
        let saved = replay.checkpoint().await;
        if saved.is_ok() || !is_wanted {
            next = None;
        }
        if let Err(error) = saved
            && !replay.is_closed()
        {
            tracing::error!("a checkpoint could not be saved: {error}");
        }
    }
}

/// Completes when the store wants a save before its interval ends.
async fn wanted(store: &dyn Store) {
    while !store.wants_save() {
        sleep(LOOK_TIME).await;
    }
}
