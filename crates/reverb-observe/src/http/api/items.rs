//! Items of a table and their columns. Nothing is drawn or counted.

use super::answer::{Failure, Shared, json, json_bytes};
use super::query::{Query, expected, number};
use crate::documents::{self, ColumnBytes};
use crate::http::admission::Caller;
use crate::http::state::HttpState;
use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use reverb_core::ItemView;
use reverb_service::TableHandle;
use reverb_service::peek::{ItemOrder, first_items};
use std::time::Duration;

/// Number of items in an answer unless the request names another.
const DEFAULT_COUNT: u64 = 20;
// limit (HTTP, metrics and logs): items of one answer over HTTP | {} | 400
/// Maximum number of items in an answer.
const MAX_COUNT: u64 = 100;
// limit (HTTP, metrics and logs): time for a search of items over HTTP, with the wait for others | {} | 503
/// Maximum time that a search waits for others to end, and takes.
const SEARCH_TIME: Duration = Duration::from_secs(20);

/// Returns the number of a table in an address.
pub fn table_number(state: &HttpState, table: &str) -> Result<usize, Failure> {
    let count = state.replay.tables().len();
    let number = number("table", table)?;
    usize::try_from(number).ok().filter(|&number| number < count).ok_or_else(|| {
        Failure::not_found(format!("there is no table {number}; the server has {count}, numbered from 0"))
    })
}

/// `GET /api/v1/tables/{table}/items`.
pub async fn items(
    State(state): Shared,
    Extension(caller): Extension<Caller>,
    Path(table): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Failure> {
    let number = table_number(&state, &table)?;
    let query = Query::new(query.as_deref());
    if let Some(key) = query.number("key")? {
        let described = state.heavy(move |state| {
            let table = &state.replay.tables()[number];
            item(table, key).map(|item| {
                caller.note_shown("get", table.name(), 1);
                json(&documents::items(table, &[item]))
            })
        });
        return described.await?;
    }
    let order = match query.text("order").unwrap_or("newest") {
        "newest" => ItemOrder::Newest,
        "oldest" => ItemOrder::Oldest,
        "highest" => ItemOrder::Highest,
        other => return Err(expected("order", "newest, oldest or highest", other)),
    };
    let count = query.number("count")?.unwrap_or(DEFAULT_COUNT);
    if !(1..=MAX_COUNT).contains(&count) {
        return Err(expected("count", &format!("a number from 1 to {MAX_COUNT}"), &count.to_string()));
    }
    let replay = state.replay.clone();
    let search = first_items(&replay, &replay.tables()[number], count as usize, order);
    let found = tokio::time::timeout(SEARCH_TIME, search).await.map_err(|_late| {
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, "other searches of the tables take too long; try again later")
    })??;
    let described = state.heavy(move |state| {
        let table = &state.replay.tables()[number];
        caller.note_shown("peek", table.name(), found.len());
        json(&documents::items(table, &found))
    });
    Ok(described.await?)
}

/// `GET /api/v1/tables/{table}/items/{key}/columns/{column}`: its description, or with `raw` its bytes.
pub async fn column(
    State(state): Shared,
    Extension(caller): Extension<Caller>,
    Path((table, key, column)): Path<(String, String, String)>,
    RawQuery(query): RawQuery,
) -> Result<Response, Failure> {
    let (table, key, number) = (table_number(&state, &table)?, number("key", &key)?, number("column", &column)?);
    let number = usize::try_from(number).unwrap_or(usize::MAX);
    let is_raw = Query::new(query.as_deref()).text("raw").is_some();
    let read = state.heavy(move |state| {
        let table = &state.replay.tables()[table];
        let item = item(table, key)?;
        caller.note_shown("get", table.name(), 1);
        let missing = || {
            let count = item.trajectory.num_columns();
            Failure::not_found(format!("item {key} has no column {number}; it has {count}, numbered from 0"))
        };
        if is_raw {
            return Ok(raw(documents::column_bytes(&item, number)?.ok_or_else(missing)?));
        }
        let described = documents::items(table, std::slice::from_ref(&item)).items.remove(0);
        described.columns.get(number).map(json).ok_or_else(missing)
    });
    read.await?
}

fn item(table: &TableHandle, key: u64) -> Result<ItemView, Failure> {
    let gone = || Failure::not_found(format!("item {key} is not in the table; it may have left it"));
    table.with_table(|table| table.get(key)).ok_or_else(gone)
}

fn raw(column: ColumnBytes) -> Response {
    let ColumnBytes { dtype, shape, bytes } = column;
    let shape = shape.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let headers = [("x-reverb-dtype", dtype.to_owned()), ("x-reverb-shape", shape)];
    if dtype == "string" {
        return (headers, json_bytes(bytes)).into_response();
    }
    (headers, [(CONTENT_TYPE, "application/octet-stream")], bytes).into_response()
}
