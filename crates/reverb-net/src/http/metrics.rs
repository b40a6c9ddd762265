//! `/metrics`, in the OpenMetrics format.

use super::state::HttpState;
use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use std::sync::Arc;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The route `/metrics`.
pub fn router() -> Router<Arc<HttpState>> {
    Router::new().route("/metrics", get(metrics))
}

async fn metrics(State(_state): State<Arc<HttpState>>) -> Response {
    let mut text = String::new();
    let _infallible = encode(&mut text, &Registry::default());
    ([(CONTENT_TYPE, OPEN_METRICS)], text).into_response()
}
