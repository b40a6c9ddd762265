//! What callers are told that are refused.

use crate::replay_v1::status::to_status;
use reverb_core::Error;
use reverb_secure::{Reason, Refusal};
use tonic::Status;

/// Converts a refusal to a status, whose code says whether the caller is unknown or its role is too small.
pub fn status_of(refusal: Refusal) -> Status {
    let Refusal { reason, text, .. } = refusal;
    to_status(&match reason {
        Reason::NoToken | Reason::UnknownToken | Reason::EndedToken => Error::Unauthenticated(text),
        Reason::Role => Error::PermissionDenied(text),
        Reason::TooMany => Error::ResourceExhausted(text),
    })
}
