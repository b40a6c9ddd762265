//! Facts about a running server that its tables do not know.

use parking_lot::Mutex;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::SystemTime;

/// Facts about a server. Those in once-locks are set once, while it starts.
#[derive(Debug)]
pub struct ServerFacts {
    /// Time at which the server was started.
    pub started_at: SystemTime,
    /// All addresses that the gRPC service listens on, before the next field is set.
    pub hosts: OnceLock<Vec<IpAddr>>,
    /// The TCP address, the port and the Unix socket of the gRPC service, once it listens.
    pub grpc: OnceLock<(IpAddr, u16, Option<PathBuf>)>,
    /// The address of the page. Empty if HTTP is off.
    pub dashboard_url: OnceLock<String>,
    /// Time at which the next save in the background is due. `None` if saves are not periodic.
    pub next_save: Mutex<Option<SystemTime>>,
}

impl Default for ServerFacts {
    fn default() -> Self {
        Self {
            started_at: SystemTime::now(),
            hosts: OnceLock::new(),
            grpc: OnceLock::new(),
            dashboard_url: OnceLock::new(),
            next_save: Mutex::new(None),
        }
    }
}
