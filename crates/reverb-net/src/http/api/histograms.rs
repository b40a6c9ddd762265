//! Histograms of a table, which are kept for a while.

use super::answer::{Failure, Shared, json_bytes};
use super::items::table_number;
use crate::observe;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::Response;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Time for which an answer is kept.
const KEPT: Duration = Duration::from_secs(5);

/// The latest histograms of each table as JSON.
#[derive(Debug, Default)]
pub struct HistogramCache(Mutex<HashMap<usize, (Instant, Bytes)>>);

impl HistogramCache {
    fn get(&self, table: usize) -> Option<Bytes> {
        let kept = self.0.lock();
        kept.get(&table).filter(|(at, _)| at.elapsed() < KEPT).map(|(_, json)| json.clone())
    }

    /// Keeps an answer, and drops those that are too old.
    fn keep(&self, table: usize, json: Bytes) {
        let mut kept = self.0.lock();
        kept.retain(|_, (at, _)| at.elapsed() < KEPT);
        kept.insert(table, (Instant::now(), json));
    }
}

/// `GET /api/v1/tables/{table}/histograms`.
pub async fn histograms(State(state): Shared, Path(table): Path<String>) -> Result<Response, Failure> {
    let number = table_number(&state, &table)?;
    if let Some(kept) = state.histograms.get(number) {
        return Ok(json_bytes(kept));
    }
    let made = state.heavy(move |state| {
        // Another request may have made them while this one waited for its turn.
        state.histograms.get(number).unwrap_or_else(|| {
            let document = observe::histograms(&state.replay.tables()[number]);
            let json = Bytes::from(serde_json::to_vec(&document).unwrap_or_default());
            state.histograms.keep(number, json.clone());
            json
        })
    });
    Ok(json_bytes(made.await?))
}
