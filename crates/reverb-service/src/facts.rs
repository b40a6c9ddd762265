//! Facts about a running server that its tables do not know.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::SystemTime;

/// Facts about a server. Those in locks are set once, while it starts.
#[derive(Debug)]
pub struct ServerFacts {
    /// Time at which the server was started.
    pub started_at: SystemTime,
    /// The TCP address, the port and the Unix socket of the gRPC service, once it listens.
    pub grpc: OnceLock<(IpAddr, u16, Option<PathBuf>)>,
    /// The address of the page. Empty if HTTP is off.
    pub dashboard_url: OnceLock<String>,
}

impl Default for ServerFacts {
    fn default() -> Self {
        Self { started_at: SystemTime::now(), grpc: OnceLock::new(), dashboard_url: OnceLock::new() }
    }
}
