//! The road of a writer to a server of dm-reverb: one insert stream for each writer.

use super::session_state::SharedSession;
use crate::dm_reverb::client::Connection;
use reverb_core::{Error, Result};
use std::time::Instant;

/// Sends items until the writer is closed. Sets `lost_at` to `None` when the server was reached.
///
/// # Errors
/// The reason why the connection was lost.
pub async fn run(_shared: &SharedSession, connection: &Connection, _lost_at: &mut Option<Instant>) -> Result<()> {
    Err(Error::Unimplemented(format!("writers do not support the server at {}", connection.peer())))
}
