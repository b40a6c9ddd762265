//! Converts errors to the statuses that clients of dm-reverb read, and statuses of its servers to errors.

use reverb_core::Error;
use tonic::{Code, Status};

/// Maximum length of a text in bytes. Clients of dm-reverb refuse trailers of more than 8 kB.
const MAX_TEXT: usize = 4096;

/// Converts an error to the status that clients of dm-reverb expect.
pub fn to_status(error: &Error) -> Status {
    let code = match error {
        Error::InvalidArgument(_)
        | Error::InvalidRow { .. }
        | Error::SignatureMismatch(_)
        | Error::InvalidPriority(_)
        | Error::ItemTooLarge { .. }
        | Error::MessageTooLarge { .. } => Code::InvalidArgument,
        Error::TableNotFound { .. } => Code::NotFound,
        Error::ResourceExhausted(_) => Code::ResourceExhausted,
        Error::DeadlineExceeded(_) | Error::Unreached(_) => Code::DeadlineExceeded,
        Error::Cancelled(_) => Code::Cancelled,
        Error::Unavailable(_) => Code::Unavailable,
        Error::DataLoss(_) => Code::DataLoss,
        Error::Unimplemented(_) => Code::Unimplemented,
        _ => Code::Internal,
    };
    let mut text = error.to_string();
    if text.len() > MAX_TEXT {
        let end = (0..=MAX_TEXT).rev().find(|&end| text.is_char_boundary(end)).unwrap_or_default();
        text.truncate(end);
    }
    Status::new(code, text)
}

/// Converts a status to an error. `peer` is the server that sent it, or to which the connection was lost.
pub fn from_status(status: &Status, peer: &str) -> Error {
    let text = format!("{peer}: {}", status.message());
    match status.code() {
        Code::InvalidArgument | Code::FailedPrecondition => Error::InvalidArgument(text),
        Code::ResourceExhausted | Code::OutOfRange => Error::ResourceExhausted(text),
        Code::DeadlineExceeded => Error::DeadlineExceeded(text),
        Code::Unimplemented => Error::Unimplemented(text),
        Code::DataLoss => Error::DataLoss(text),
        // Any of these codes may mean that the server was lost during a call.
        Code::Unavailable | Code::Cancelled | Code::Unknown | Code::Internal | Code::Aborted => {
            Error::Unavailable(format!("the connection to the server at {peer} was lost: {}", status.message()))
        }
        _ => Error::Internal(text),
    }
}
