//! Answers of the API: documents, and failures with a reason.

use crate::http::state::{Failed, HttpState};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use reverb_core::Error;
use serde::Serialize;
use std::sync::Arc;

/// What a handler reads.
pub type Shared = State<Arc<HttpState>>;

/// Makes an answer of a document.
pub fn json(document: &impl Serialize) -> Response {
    json_bytes(serde_json::to_vec(document).unwrap_or_default())
}

/// Makes an answer of JSON.
pub fn json_bytes(body: impl Into<axum::body::Body>) -> Response {
    ([(CONTENT_TYPE, "application/json")], body.into()).into_response()
}

/// A failure: its status, and the reason as a sentence.
#[derive(Debug)]
pub struct Failure {
    status: StatusCode,
    reason: String,
}

impl Failure {
    /// Creates a failure.
    pub fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into() }
    }

    /// Creates the failure of a request that names something that is not there.
    pub fn not_found(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, reason)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match error {
            Error::ResourceExhausted(_) => StatusCode::PAYLOAD_TOO_LARGE,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.to_string())
    }
}

impl From<Failed> for Failure {
    fn from(_: Failed) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the server could not answer; its log may say why")
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.status, json(&serde_json::json!({ "error": self.reason }))).into_response()
    }
}
