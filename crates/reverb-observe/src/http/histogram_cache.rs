//! Histograms that were made a short time ago.

use axum::body::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Time for which an answer is kept.
const KEPT: Duration = Duration::from_secs(5);

/// The latest histograms of each table as JSON.
#[derive(Debug, Default)]
pub struct HistogramCache(Mutex<HashMap<usize, (Instant, Bytes)>>);

impl HistogramCache {
    /// Returns the kept answer of a table.
    pub fn get(&self, table: usize) -> Option<Bytes> {
        let kept = self.0.lock();
        kept.get(&table).filter(|(at, _)| at.elapsed() < KEPT).map(|(_, json)| json.clone())
    }

    /// Keeps an answer, and drops those that are too old.
    pub fn keep(&self, table: usize, json: Bytes) {
        let mut kept = self.0.lock();
        kept.retain(|_, (at, _)| at.elapsed() < KEPT);
        kept.insert(table, (Instant::now(), json));
    }
}
