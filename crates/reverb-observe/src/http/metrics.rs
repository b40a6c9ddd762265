//! `/metrics`: the state of a server for Prometheus, read when it is asked for.

use super::admission::Route;
use super::state::HttpState;
use crate::metrics::{collect, plain};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use reverb_secure::Role;
use std::sync::Arc;

/// Media type of the OpenMetrics format.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The route `/metrics`. `sums_tables` shows all tables as one.
pub fn route(sums_tables: bool) -> Route {
    let answer = move |state: State<Arc<HttpState>>, headers: HeaderMap| metrics(state.0, headers, sums_tables);
    Route::new("/metrics", Role::View, get(answer))
}

async fn metrics(state: Arc<HttpState>, headers: HeaderMap, sums_tables: bool) -> Response {
    let text = match state.heavy(move |state| collect(&state.replay, &state.calls, &state.security, sums_tables)).await
    {
        Ok(text) => text,
        Err(failed) => return failed.into_response(),
    };
    if plain::is_preferred(&headers.get_all(ACCEPT).iter().filter_map(|one| one.to_str().ok()).collect::<Vec<_>>()) {
        ([(CONTENT_TYPE, plain::MEDIA_TYPE)], plain::from_open_metrics(&text)).into_response()
    } else {
        ([(CONTENT_TYPE, OPEN_METRICS)], text).into_response()
    }
}
