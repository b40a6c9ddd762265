//! Converts errors to the statuses that clients of dm-reverb read, and statuses of its servers to errors.

use crate::grpc::codes::{code_of, error_of};
use reverb_core::Error;
use tonic::{Code, Status};

// limit (Beside dm-reverb): text of an error for a client of dm-reverb | {:bytes} as it is sent | cut off
/// Maximum size of a text in the trailers, in bytes. Clients of dm-reverb refuse trailers of more than 8 kB.
const MAX_TEXT: usize = 4096;

/// Converts an error to the status that clients of dm-reverb expect.
pub fn to_status(error: &Error) -> Status {
    let code = code_of(error);
    match error {
        // Clients know this text, so it does not list the other tables.
        Error::TableNotFound { table, .. } => status(code, &format!("Priority table {table} was not found")),
        error => status(code, &error.to_string()),
    }
}

/// The status of calls to a server that was stopped. Clients retry streams that end with it.
pub fn stopped() -> Status {
    status(Code::Unavailable, "Cancelling all calls: the server was stopped")
}

/// The status of an insert message without chunks and items.
pub fn lacks_chunks_and_items(keep_chunk_keys: &[u64]) -> Status {
    // Longer texts are cut off.
    let shown = keep_chunk_keys.iter().take(MAX_TEXT / 20).map(|key| format!("keep_chunk_keys: {key}"));
    let shown = shown.collect::<Vec<_>>().join(" ");
    let text = format!("ProcessIncomingRequest: Request lacks both chunks and item.  Request: {shown}");
    status(Code::InvalidArgument, &text)
}

/// The status of an insert message whose list of chunks to keep has unknown or repeated keys.
pub fn kept_fewer_chunks(left: usize, listed: usize) -> Status {
    let text = format!(
        "ReleaseOutOfRangeChunks: Kept less chunks than expected.  chunks_.size() == {left} != keep_keys.size() == {listed}"
    );
    status(Code::FailedPrecondition, &text)
}

/// The status for a message that could not be read, or that exceeds the limit. `limit_bytes` is the maximum size of the
/// data of an insert.
pub fn message_error(error: Status, limit_bytes: u64) -> Status {
    match error.code() {
        Code::OutOfRange => {
            let option = "max_message_size (an argument of reverb.Server)";
            status(Code::InvalidArgument, &format!("the message exceeds the {limit_bytes} bytes that {option} allows"))
        }
        _ => error,
    }
}

/// Makes a status. Cuts the text off where it would become too large for the trailers.
fn status(code: Code, text: &str) -> Status {
    let mut left = MAX_TEXT;
    let end = text.char_indices().find(|(_, character)| {
        // Other characters are sent as an escape of three bytes for each byte.
        let bytes = if character.is_ascii_alphanumeric() || *character == ' ' { 1 } else { 3 * character.len_utf8() };
        left.checked_sub(bytes).map(|rest| left = rest).is_none()
    });
    Status::new(code, &text[..end.map_or(text.len(), |(index, _)| index)])
}

/// Converts a status to an error. `peer` is the server that sent it, or to which the connection was lost.
pub fn from_status(status: &Status, peer: &str) -> Error {
    match status.code() {
        Code::FailedPrecondition => Error::InvalidArgument(format!("{peer}: {}", status.message())),
        _ => error_of(status, peer, ""),
    }
}
