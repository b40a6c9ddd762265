//! Facts about a running server that its tables do not know.

use crate::verdict::Watched;
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

/// Facts about a server. Those in once-locks are set once, while it starts.
#[derive(Debug)]
pub struct ServerFacts {
    /// Time at which the server was started.
    pub started_at: SystemTime,
    /// Names under which clients elsewhere reach the service, as people see them. Set once it serves.
    pub addresses: OnceLock<Vec<String>>,
    /// The address of the page. Empty if HTTP is off.
    pub dashboard_url: OnceLock<String>,
    /// Time at which the next save in the background is due. `None` if saves are not periodic.
    pub next_save: Mutex<Option<SystemTime>>,
    /// What the latest look at the server has found.
    pub watched: Mutex<Arc<Watched>>,
}

impl Default for ServerFacts {
    fn default() -> Self {
        Self {
            started_at: SystemTime::now(),
            addresses: OnceLock::new(),
            dashboard_url: OnceLock::new(),
            next_save: Mutex::new(None),
            watched: Mutex::default(),
        }
    }
}
