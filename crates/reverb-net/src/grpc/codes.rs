//! Codes of gRPC: those of our errors, and the errors that codes of peers stand for.

use reverb_core::Error;
use tonic::{Code, Status};

/// Returns the code of an error.
pub fn code_of(error: &Error) -> Code {
    match error {
        Error::InvalidArgument(_)
        | Error::InvalidRow { .. }
        | Error::SignatureMismatch(_)
        | Error::InvalidPriority(_)
        | Error::ItemTooLarge { .. }
        | Error::MessageTooLarge { .. } => Code::InvalidArgument,
        Error::TableNotFound { .. } => Code::NotFound,
        Error::ResourceExhausted(_) => Code::ResourceExhausted,
        Error::DeadlineExceeded(_) | Error::Unreached(_) => Code::DeadlineExceeded,
        Error::Cancelled(_) | Error::CallCancelled(_) | Error::ServerStopped(_) => Code::Cancelled,
        Error::Unavailable(_) | Error::SplitClient { .. } => Code::Unavailable,
        Error::DataLoss(_) => Code::DataLoss,
        Error::Unauthenticated(_) => Code::Unauthenticated,
        Error::PermissionDenied(_) => Code::PermissionDenied,
        Error::Unimplemented(_) => Code::Unimplemented,
        Error::Storage(_) | Error::Unconfirmed(_) | Error::Internal(_) => Code::Internal,
    }
}

/// Converts a status to an error by its code. `peer` is the server that sent it, or to which the connection was lost;
/// `hint` is added to the text if it was lost.
pub fn error_of(status: &Status, peer: &str, hint: &str) -> Error {
    let text = format!("{peer}: {}", status.message());
    match status.code() {
        Code::InvalidArgument => Error::InvalidArgument(text),
        Code::ResourceExhausted | Code::OutOfRange => Error::ResourceExhausted(text),
        Code::DeadlineExceeded => Error::DeadlineExceeded(text),
        Code::Unimplemented => Error::Unimplemented(text),
        Code::DataLoss => Error::DataLoss(text),
        Code::Unauthenticated => Error::Unauthenticated(text),
        Code::PermissionDenied => Error::PermissionDenied(text),
        // Any of these codes may mean that the server was lost during a call.
        Code::Unavailable | Code::Cancelled | Code::Unknown | Code::Internal | Code::Aborted => {
            Error::Unavailable(format!("the connection to the server at {peer} was lost: {}{hint}", status.message()))
        }
        _ => Error::Internal(text),
    }
}
