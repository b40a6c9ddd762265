//! The files of the live page, from the folder `web` of this crate.

use super::state::HttpState;
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::sync::Arc;

/// The routes of the page: `/` and its files.
pub fn router() -> Router<Arc<HttpState>> {
    Router::new().route("/", get(page))
}

async fn page() -> Response {
    ([(CONTENT_TYPE, "text/html; charset=utf-8")], include_bytes!("../../web/index.html")).into_response()
}
