//! Notices in the log about calls that wait for a long time.

use crate::peer::Peer;
use crate::process_name::process_name;
use crate::table_handle::Operation;
use std::time::Duration;

/// A request that has waited for a long time.
#[derive(Debug, Clone)]
pub struct Notice {
    /// What it waits for, as a sentence.
    pub text: String,
    /// Name of its table.
    pub table: String,
    /// Whether it is an insert or a draw.
    pub operation: Operation,
    /// Time that it has waited.
    pub waited: Duration,
}

impl Notice {
    /// Logs the notice as a warning to the program that makes the call.
    pub fn warn(&self) {
        let Self { text, table, operation, waited } = self;
        tracing::warn!(table = table.as_str(), operation = operation.name(), waited_s = waited.as_secs_f64(), "{text}");
    }

    /// Logs the notice for people who observe the server. The peer makes the call, and warns its user. If it is in this
    /// process, that warning is enough.
    pub fn tell(&self, peer: &Peer) {
        if peer.name() == process_name() {
            return;
        }
        let Self { text, table, operation, waited } = self;
        let (operation, waited_s) = (operation.name(), waited.as_secs_f64());
        tracing::info!(table = table.as_str(), operation, waited_s, client = %peer, "{peer}: {text}");
    }
}

/// Logs a notice that says why a call still waits.
pub fn warn(notice: &str) {
    tracing::warn!("{notice}");
}
