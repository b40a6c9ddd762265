//! Errors that name their server.

use reverb_core::Error;

/// Adds the server to the text of an error.
pub fn at_server(error: Error, peer: &str) -> Error {
    let at = |text: String| format!("{text} (server {peer})");
    match error {
        Error::InvalidArgument(text) => Error::InvalidArgument(at(text)),
        Error::TableNotFound { table, known } => Error::TableNotFound { table, known: at(known) },
        Error::SignatureMismatch(text) => Error::SignatureMismatch(at(text)),
        Error::InvalidPriority(text) => Error::InvalidPriority(at(text)),
        Error::ResourceExhausted(text) => Error::ResourceExhausted(at(text)),
        Error::DeadlineExceeded(text) => Error::DeadlineExceeded(at(text)),
        Error::Unreached(text) => Error::Unreached(at(text)),
        Error::Cancelled(text) => Error::Cancelled(at(text)),
        Error::Unavailable(text) => Error::Unavailable(at(text)),
        Error::DataLoss(text) => Error::DataLoss(at(text)),
        Error::Storage(text) => Error::Storage(at(text)),
        Error::Unimplemented(text) => Error::Unimplemented(at(text)),
        Error::Internal(text) => Error::Internal(at(text)),
        known => known,
    }
}
