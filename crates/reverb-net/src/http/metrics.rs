//! `/metrics`: the state of a server for Prometheus, read when it is asked for.

mod collector;
mod families;
mod plain;
mod process;
mod service;
mod tables;

use super::state::HttpState;
use axum::Router;
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use collector::collect;
use std::sync::Arc;

/// Media type of the OpenMetrics format.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The route `/metrics`.
pub fn router() -> Router<Arc<HttpState>> {
    Router::new().route("/metrics", get(metrics))
}

async fn metrics(State(state): State<Arc<HttpState>>, headers: HeaderMap) -> Response {
    let collected = tokio::task::spawn_blocking(move || collect(&state)).await;
    let Ok(Ok(text)) = collected else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    if plain::is_preferred(&headers.get_all(ACCEPT).iter().filter_map(|one| one.to_str().ok()).collect::<Vec<_>>()) {
        ([(CONTENT_TYPE, plain::MEDIA_TYPE)], plain::from_open_metrics(&text)).into_response()
    } else {
        ([(CONTENT_TYPE, OPEN_METRICS)], text).into_response()
    }
}
