//! Histograms of a table.

use super::answer::{Failure, Shared, json_bytes};
use super::items::table_number;
use crate::documents;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::Response;

/// `GET /api/v1/tables/{table}/histograms`.
pub async fn histograms(State(state): Shared, Path(table): Path<String>) -> Result<Response, Failure> {
    let number = table_number(&state, &table)?;
    if let Some(kept) = state.histograms.get(number) {
        return Ok(json_bytes(kept));
    }
    let made = state.heavy(move |state| {
        // Another request may have made them while this one waited for its turn.
        state.histograms.get(number).unwrap_or_else(|| {
            let document = documents::histograms(&state.replay.tables()[number]);
            let json = Bytes::from(serde_json::to_vec(&document).unwrap_or_default());
            state.histograms.keep(number, json.clone());
            json
        })
    });
    Ok(json_bytes(made.await?))
}
