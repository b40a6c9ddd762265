//! `/api/v1`: the documents of [`crate::documents`] as JSON.
//!
//! Tables and columns are addressed by their numbers, because their names may contain anything. Failures are JSON, too:
//! an object with the reason as `error`.

mod answer;
mod histograms;
mod items;
mod query;

pub use answer::Failure;

use super::admission::{API, Caller, Route};
use super::state::HttpState;
use crate::documents;
use answer::{Shared, json};
use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use axum::routing::get;
use query::Query;
use reverb_secure::Role;
use serde::Serialize;

/// The routes below [`API`].
pub fn routes() -> [Route; 12] {
    use Role::{Use, View};
    let route = |path, needs, answer| Route::new(format!("{API}{path}"), needs, answer);
    [
        route("/role", View, get(async |Extension(caller): Extension<Caller>| json(&caller.document()))),
        route("/server", View, get(async |state: Shared| read(state, |s| documents::server(&s.replay)).await)),
        route("/verdict", View, get(async |state: Shared| read(state, |s| documents::verdict(&s.replay)).await)),
        route("/tables", View, get(async |state: Shared| read(state, |s| documents::tables(&s.replay)).await)),
        route("/waits", View, get(async |state: Shared| read(state, |s| documents::waits(&s.replay)).await)),
        route("/clients", View, get(async |state: Shared| read(state, |s| documents::clients(&s.replay)).await)),
        route(
            "/checkpoints",
            View,
            get(async |state: Shared| read(state, |s| documents::checkpoints(&s.replay)).await),
        ),
        route("/history", View, get(history)),
        route("/log", View, get(log)),
        route("/tables/{table}/histograms", View, get(histograms::histograms)),
        // What is in items, rather than how many there are.
        route("/tables/{table}/items", Use, get(items::items)),
        route("/tables/{table}/items/{key}/columns/{column}", Use, get(items::column)),
    ]
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
