//! The replay service over gRPC: on TCP, and on a Unix socket beside it.

mod insert_stream;
mod listen;
mod sample_stream;
mod service;
mod write_stream;

pub use listen::ListenOptions;

use crate::housekeeping::keep_house;
use crate::registry;
use crate::replay::Replay;
use listen::Listeners;
use parking_lot::Mutex;
use reverb_core::{Error, Result, fork};
use service::{Router, serve};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// How long a stop waits for what should take microseconds.
const STOP_TIME: Duration = Duration::from_secs(1);

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    replay: Arc<Replay>,
    host: IpAddr,
    port: u16,
    unix_path: Option<PathBuf>,
    generation: u32,
    runtime: Handle,
    serving: Option<Serving>,
}

#[derive(Debug)]
struct Serving {
    task: JoinHandle<()>,
    /// Disconnected when the addresses are free again.
    freed: Mutex<Receiver<()>>,
}

impl Server {
    /// Binds and begins to serve on `runtime`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a host that is no address of this machine; [`Error::Unavailable`] for a port in use.
    pub fn start(runtime: &Handle, replay: Arc<Replay>, options: &ListenOptions) -> Result<Self> {
        let _entered = runtime.enter();
        let listeners = Listeners::bind(options)?;
        let (host, port, unix_path) = (listeners.host, listeners.port, listeners.unix_path.clone());
        registry::register(&listeners.hosts, port, &replay);
        for table in replay.tables() {
            runtime.spawn(keep_house(table.clone(), replay.clone()));
        }
        if let Some(interval) = replay.checkpointer().and_then(|checkpointer| checkpointer.options().interval) {
            runtime.spawn(save_periodically(replay.clone(), interval));
        }
        let router = Router::new(replay.clone(), unix_path.clone());
        let (connections, freed) = listeners.accept(&replay);
        let task = runtime.spawn(serve(router, connections, replay.clone()));
        let serving = Some(Serving { task, freed: Mutex::new(freed) });
        Ok(Self { replay, host, port, unix_path, generation: fork::generation(), runtime: runtime.clone(), serving })
    }

    /// The service.
    pub fn replay(&self) -> &Arc<Replay> {
        &self.replay
    }

    /// The address it listens on, besides the Unix socket.
    pub fn host(&self) -> IpAddr {
        self.host
    }

    /// The TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The Unix socket, if there is one.
    pub fn unix_path(&self) -> Option<&Path> {
        self.unix_path.as_deref()
    }

    /// Wakes all that wait, closes all connections and frees the port, and saves the tables if that is asked for. A copy
    /// in a forked child does nothing.
    ///
    /// # Errors
    /// If the tables could not be saved; the server has stopped all the same.
    pub fn stop(&mut self) -> Result<()> {
        if self.generation != fork::generation() {
            std::mem::forget(self.serving.take());
            return Ok(());
        }
        let Some(serving) = self.serving.take() else { return Ok(()) };
        registry::unregister(&self.replay);
        self.replay.close();
        if let Some(path) = &self.unix_path {
            let _gone = std::fs::remove_file(path);
        }
        let _freed = serving.freed.lock().recv_timeout(STOP_TIME);
        // Streams end by themselves once their waiters are answered; a client that does not read keeps its own open.
        self.runtime.spawn(async move {
            tokio::time::sleep(STOP_TIME).await;
            serving.task.abort();
        });
        let Some(checkpointer) = self.replay.checkpointer() else { return Ok(()) };
        let saved = if checkpointer.options().save_on_stop {
            checkpointer.save(self.replay.tables()).map(drop)
        } else {
            Ok(())
        };
        checkpointer.close();
        saved
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            tracing::error!("the tables were not saved when the server stopped: {error}");
        }
    }
}

/// Saves the tables again and again until the service is closed. A save that fails is reported, and the next one comes
/// in its turn.
async fn save_periodically(replay: Arc<Replay>, interval: Duration) {
    let mut closed = std::pin::pin!(replay.closed());
    loop {
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = &mut closed => return,
        }
        if let Err(error) = replay.checkpoint().await
            && !replay.is_closed()
        {
            tracing::error!("a checkpoint could not be saved: {error}");
        }
    }
}

/// An I/O failure as an error that says what was tried.
fn io_error(what: &str, error: &std::io::Error) -> Error {
    Error::Unavailable(format!("{what}: {error}"))
}
