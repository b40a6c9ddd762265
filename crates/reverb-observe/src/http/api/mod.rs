//! `/api/v1`: the documents of [`crate::documents`] as JSON.
//!
//! Tables and columns are addressed by their numbers, because their names may contain anything. Failures are JSON, too:
//! an object with the reason as `error`.

mod answer;
mod histograms;
mod items;
mod query;

use super::state::HttpState;
use crate::documents;
use answer::{Failure, Shared, json};
use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use query::Query;
use serde::Serialize;
use std::sync::Arc;

/// The routes below `/api/v1`.
pub fn router() -> Router<Arc<HttpState>> {
    Router::new()
        .route("/server", get(async |state: Shared| read(state, |s| documents::server(&s.replay)).await))
        .route("/verdict", get(async |state: Shared| read(state, |s| documents::verdict(&s.replay)).await))
        .route("/tables", get(async |state: Shared| read(state, |s| documents::tables(&s.replay)).await))
        .route("/waits", get(async |state: Shared| read(state, |s| documents::waits(&s.replay)).await))
        .route("/clients", get(async |state: Shared| read(state, |s| documents::clients(&s.replay)).await))
        .route("/checkpoints", get(async |state: Shared| read(state, |s| documents::checkpoints(&s.replay)).await))
        .route("/history", get(history))
        .route("/log", get(log))
        .route("/tables/{table}/histograms", get(histograms::histograms))
        .route("/tables/{table}/items", get(items::items))
        .route("/tables/{table}/items/{key}/columns/{column}", get(items::column))
        .fallback(async || Failure::new(StatusCode::NOT_FOUND, "there is no such address below /api/v1"))
}

/// Makes a document on a thread that may wait for the lock of a table.
async fn read<T: Serialize + Send + 'static>(
    State(state): Shared,
    make: impl FnOnce(&HttpState) -> T + Send + 'static,
) -> Result<Response, Failure> {
    Ok(state.heavy(move |state| json(&make(state))).await?)
}

async fn history(State(state): Shared, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let since = Query::new(query.as_deref()).number("since")?.unwrap_or(0);
    read(State(state), move |state| state.history.since(since)).await
}

async fn log(state: Shared, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let since = Query::new(query.as_deref()).number("since")?.unwrap_or(0);
    read(state, move |_| documents::log(since)).await
}
