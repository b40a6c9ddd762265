//! `/api/v1`: the documents of [`crate::observe`] as JSON.

use super::state::HttpState;
use crate::observe;
use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;
use std::sync::Arc;

/// The routes below `/api/v1`.
pub fn router() -> Router<Arc<HttpState>> {
    Router::new()
        .route("/server", get(async |State(state): Shared| json(&observe::server(&state.replay, &state.facts))))
        .route("/tables", get(async |State(state): Shared| json(&observe::tables(&state.replay))))
        .route("/waits", get(async |State(state): Shared| json(&observe::waits(&state.replay))))
        .route("/clients", get(async |State(state): Shared| json(&observe::clients(&state.replay))))
        .route("/checkpoints", get(async |State(state): Shared| json(&observe::checkpoints(&state.replay))))
}

type Shared = State<Arc<HttpState>>;

fn json(document: &impl Serialize) -> Response {
    let body = serde_json::to_vec(document).unwrap_or_default();
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}
