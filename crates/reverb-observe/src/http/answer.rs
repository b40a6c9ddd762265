//! Answers in words.

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

/// Makes an answer of one line.
pub fn text(status: StatusCode, line: &str) -> Response {
    (status, [(CONTENT_TYPE, "text/plain; charset=utf-8")], format!("{line}\n")).into_response()
}
