//! Facts about a running server that its tables do not know.

use crate::calls::Calls;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
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
    /// Counts of the calls of the gRPC services.
    pub calls: Arc<Calls>,
}

impl Default for ServerFacts {
    fn default() -> Self {
        let (grpc, dashboard_url) = (OnceLock::new(), OnceLock::new());
        Self { started_at: SystemTime::now(), grpc, dashboard_url, calls: Arc::default() }
    }
}
