//! Converts errors to gRPC statuses and failure messages, and back. No other module knows both.

use crate::grpc::codes::{code_of, error_of};
use crate::replay_v1::proto::{Failure, failure::Kind};
use bytes::Bytes;
use prost::Message;
use reverb_core::Error;
use std::error::Error as _;
use tonic::{Code, Status};

/// What to look at where a stream was ended while its connection stayed open.
const PROXY_HINT: &str = "; a proxy may have cut the stream: see client_max_body_size, client_body_timeout, \
     grpc_read_timeout and grpc_send_timeout of nginx, or timeout client and timeout server of HAProxy";

/// Converts an error to a failure message.
pub fn to_failure(error: &Error) -> Failure {
    let text = |kind, text: &str| Failure { kind: kind as i32, text: text.into(), ..Failure::default() };
    match error {
        Error::InvalidArgument(message) => text(Kind::InvalidArgument, message),
        Error::InvalidRow { row, reason } => Failure { value: *row as u64, ..text(Kind::InvalidRow, reason) },
        Error::TableNotFound { table, known } => Failure { name: table.clone(), ..text(Kind::TableNotFound, known) },
        Error::SignatureMismatch(message) => text(Kind::SignatureMismatch, message),
        Error::InvalidPriority(message) => text(Kind::InvalidPriority, message),
        Error::ItemTooLarge { table, size_bytes, max_bytes } => Failure {
            kind: Kind::ItemTooLarge as i32,
            name: table.clone(),
            value: *size_bytes,
            limit: *max_bytes,
            ..Failure::default()
        },
        Error::MessageTooLarge { what, option, size_bytes, limit_bytes } => Failure {
            name: option.clone(),
            value: *size_bytes,
            limit: *limit_bytes,
            ..text(Kind::MessageTooLarge, what)
        },
        Error::ResourceExhausted(message) => text(Kind::ResourceExhausted, message),
        Error::DeadlineExceeded(message) => text(Kind::DeadlineExceeded, message),
        // Clients alone tell a stop elsewhere from one in their process.
        Error::Cancelled(message) | Error::CallCancelled(message) => text(Kind::Cancelled, message),
        Error::ServerStopped(message) => Failure { for_good: true, ..text(Kind::Cancelled, message) },
        Error::Unavailable(message) => text(Kind::Unavailable, message),
        Error::SplitClient { expected, reached } => {
            Failure { name: expected.clone(), ..text(Kind::WrongServer, reached) }
        }
        Error::DataLoss(message) => text(Kind::DataLoss, message),
        Error::Unimplemented(message) => text(Kind::Unimplemented, message),
        Error::Storage(message) => text(Kind::Storage, message),
        Error::Unauthenticated(message) => text(Kind::Unauthenticated, message),
        Error::PermissionDenied(message) => text(Kind::PermissionDenied, message),
        // It is an error of clients, and a server has no insert that it does not know.
        Error::Unconfirmed(cause) => to_failure(cause),
        // A server calls no other.
        Error::Unreached(message) | Error::Internal(message) => text(Kind::Internal, message),
    }
}

/// Converts the failure message of a peer to an error.
pub fn from_failure(failure: Failure) -> Error {
    let kind = failure.kind();
    let Failure { text, name, value, limit, for_good, .. } = failure;
    match kind {
        Kind::InvalidArgument => Error::InvalidArgument(text),
        Kind::InvalidRow => Error::InvalidRow { row: value as usize, reason: text },
        Kind::TableNotFound => Error::TableNotFound { table: name, known: text },
        Kind::SignatureMismatch => Error::SignatureMismatch(text),
        Kind::InvalidPriority => Error::InvalidPriority(text),
        Kind::ItemTooLarge => Error::ItemTooLarge { table: name, size_bytes: value, max_bytes: limit },
        Kind::MessageTooLarge => {
            Error::MessageTooLarge { what: text, option: name, size_bytes: value, limit_bytes: limit }
        }
        Kind::ResourceExhausted => Error::ResourceExhausted(text),
        Kind::DeadlineExceeded => Error::DeadlineExceeded(text),
        Kind::Cancelled if for_good => Error::ServerStopped(text),
        Kind::Cancelled => Error::CallCancelled(text),
        Kind::Unavailable => Error::Unavailable(text),
        Kind::WrongServer => Error::SplitClient { expected: name, reached: text },
        Kind::DataLoss => Error::DataLoss(text),
        Kind::Unimplemented => Error::Unimplemented(text),
        Kind::Storage => Error::Storage(text),
        Kind::Unauthenticated => Error::Unauthenticated(text),
        Kind::PermissionDenied => Error::PermissionDenied(text),
        Kind::Internal => Error::Internal(text),
    }
}

/// Converts an error to a gRPC status. The details of the status contain the failure message.
pub fn to_status(error: &Error) -> Status {
    Status::with_details(code_of(error), error.to_string(), Bytes::from(to_failure(error).encode_to_vec()))
}

/// Converts a status to an error. `peer` is the server that sent it, or to which the connection was lost.
pub fn from_status(status: &Status, peer: &str) -> Error {
    if !status.details().is_empty()
        && let Ok(failure) = Failure::decode(status.details())
    {
        return from_failure(failure);
    }
    error_of(status, peer, if is_cut(status) { PROXY_HINT } else { "" })
}

/// The status of a stream that ended as no server of ours ends it.
pub fn without_status() -> Status {
    Status::unknown("the stream ended without a status")
}

/// Whether a stream was ended while its connection stayed open, and not by a server of ours.
fn is_cut(status: &Status) -> bool {
    let Some(source) = status.source() else { return status.code() == Code::Unknown };
    let mut causes = std::iter::successors(Some(source), |&cause| cause.source());
    let reset = causes.find_map(|cause| cause.downcast_ref::<h2::Error>());
    reset.is_some_and(|error| error.is_reset() && error.is_remote())
}
