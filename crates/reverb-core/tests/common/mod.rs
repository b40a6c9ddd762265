//! Tables and items for tests.
#![allow(dead_code, reason = "each test file is a program of its own, and none uses all of this")]

pub mod counted;
pub mod drawn;
pub mod histogram;
pub mod plain;

use bytes::Bytes;
use reverb_core::{
    Chunk, DType, EpisodeIds, Layout, NewItem, RateLimiterConfig, SelectorKind, StepRange, Table, TableConfig,
    Trajectory, random_key,
};
use smallvec::smallvec;
use std::sync::Arc;

/// One selector of each kind.
pub const SELECTORS: [SelectorKind; 6] = [
    SelectorKind::Fifo,
    SelectorKind::Lifo,
    SelectorKind::Uniform,
    SelectorKind::MinHeap,
    SelectorKind::MaxHeap,
    SelectorKind::Prioritized { priority_exponent: 0.7 },
];

/// Allows any operation as soon as the table has this number of items.
pub fn min_size(min_size_to_sample: i64) -> RateLimiterConfig {
    RateLimiterConfig { samples_per_insert: 1.0, min_size_to_sample, min_diff: -f64::MAX, max_diff: f64::MAX }
}

/// The limiter of `Table.queue`.
pub fn queue(size: i64) -> RateLimiterConfig {
    RateLimiterConfig { samples_per_insert: 1.0, min_size_to_sample: 1, min_diff: 0.0, max_diff: size as f64 }
}

pub fn config(sampler: SelectorKind, remover: SelectorKind, max_size: u64) -> TableConfig {
    TableConfig {
        name: "table".into(),
        sampler,
        remover,
        max_size,
        max_times_sampled: 0,
        rate_limiter: min_size(1),
        signature: None,
        max_bytes: None,
        seed: Some(1),
    }
}

pub fn prioritized(priority_exponent: f64) -> SelectorKind {
    SelectorKind::Prioritized { priority_exponent }
}

/// A chunk of one float32 column: 4 bytes a row.
pub fn chunk(rows: usize, episode: u64) -> Arc<Chunk> {
    let layout = Layout::new(rows, [(DType::Float32, smallvec![], 0)]).unwrap();
    let data = Bytes::from(vec![0; layout.size_bytes]);
    let episodes = EpisodeIds::Same(episode);
    Arc::new(Chunk::new(random_key(), episodes, StepRange::default(), Arc::new(layout), data).unwrap())
}

/// An item of one row in a chunk and an episode of its own.
pub fn item(key: u64, priority: f64) -> NewItem {
    row_item(key, priority, &chunk(1, key), 0)
}

pub fn row_item(key: u64, priority: f64, chunk: &Arc<Chunk>, row: u32) -> NewItem {
    NewItem {
        key,
        priority,
        takes_largest: false,
        others: None,
        times_sampled: 0,
        trajectory: Trajectory::rows(chunk.clone(), row, 1).unwrap(),
    }
}

/// The keys in the table, oldest first.
pub fn keys(table: &Table) -> Vec<u64> {
    table.snapshot().items().map(|item| item.key).collect()
}

/// Sum of `(observed - expected)² / expected`.
pub fn chi_square(counts: &[u64], probabilities: &[f64]) -> f64 {
    let draws: u64 = counts.iter().sum();
    let terms = counts.iter().zip(probabilities).map(|(&count, p)| {
        let expected = p * draws as f64;
        (count as f64 - expected).powi(2) / expected
    });
    terms.sum()
}

/// A bound that a chi-square value of `freedom` degrees exceeds about once in a million cases.
pub fn chi_square_bound(freedom: usize) -> f64 {
    let freedom = freedom as f64;
    freedom + 4.9 * (2.0 * freedom).sqrt() + 16.0
}
