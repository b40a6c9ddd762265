//! Errors of one of several servers.

use reverb_core::Error;

/// Adds the server to the text of an error.
pub fn at_server(error: Error, peer: &str) -> Error {
    error.with_remark(&format!(" (server {peer})"))
}

/// Whether an error says that the server is lost or was stopped, so that another may answer instead.
pub fn is_lost(error: &Error) -> bool {
    error.is_transient() || error.is_for_good() || matches!(error, Error::SplitClient { .. })
}
