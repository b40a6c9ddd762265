//! Tables, items and servers for tests.
#![allow(dead_code, reason = "each test file is a program of its own, and none uses all of this")]

pub mod any;
pub mod wire;

use bytes::Bytes;
use reverb_core::{
    Chunk, DType, Drawn, EpisodeIds, Layout, NewItem, RateLimiterConfig, SelectorKind, StepRange, Table, TableConfig,
    Trajectory, encode_strings, random_key,
};
use reverb_transport::client::{Batch, BatchRequest, Client, RowInsert};
use reverb_transport::server::{ListenOptions, Server};
use reverb_transport::{DrawRequest, Replay, TableHandle};
use smallvec::smallvec;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

pub const MAX_MESSAGE_SIZE: u64 = 4 << 20;
pub const SOON: Duration = Duration::from_secs(20);

pub fn config(name: &str) -> TableConfig {
    TableConfig {
        name: name.into(),
        sampler: SelectorKind::Uniform,
        remover: SelectorKind::Fifo,
        max_size: 1_000_000,
        max_times_sampled: 0,
        rate_limiter: RateLimiterConfig {
            samples_per_insert: 1.0,
            min_size_to_sample: 1,
            min_diff: -f64::MAX,
            max_diff: f64::MAX,
        },
        signature: None,
        max_bytes: None,
        seed: Some(1),
    }
}

/// Items that can be drawn again and again.
pub fn uniform(name: &str) -> TableHandle {
    TableHandle::new(Table::new(config(name)).unwrap())
}

/// First in, first out, each once, at most `size` at a time.
pub fn queue(name: &str, size: u64) -> TableHandle {
    let limiter =
        RateLimiterConfig { samples_per_insert: 1.0, min_size_to_sample: 1, min_diff: 0.0, max_diff: size as f64 };
    let sampler = SelectorKind::Fifo;
    let config = TableConfig { sampler, max_size: size, max_times_sampled: 1, rate_limiter: limiter, ..config(name) };
    TableHandle::new(Table::new(config).unwrap())
}

pub fn server(tables: Vec<TableHandle>) -> Server {
    let replay = Replay::new(tables, MAX_MESSAGE_SIZE).unwrap();
    Server::start(&Handle::current(), replay, &ListenOptions::default()).unwrap()
}

/// Addresses of both roads over the network.
pub fn addresses(server: &Server) -> [String; 2] {
    [format!("ipv4:127.0.0.1:{}", server.port()), format!("unix:{}", server.unix_path().unwrap().display())]
}

/// A chunk of one int64 column that holds `values`.
pub fn chunk(values: &[i64]) -> Arc<Chunk> {
    let layout = Layout::new(values.len(), [(DType::Int64, smallvec![], 0)]).unwrap();
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    chunk_of(layout, data)
}

pub fn chunk_of(layout: Layout, data: impl Into<Bytes>) -> Arc<Chunk> {
    let episodes = EpisodeIds::PerRow(random_key());
    Arc::new(Chunk::new(random_key(), episodes, StepRange::default(), Arc::new(layout), data.into()).unwrap())
}

/// A chunk of a column of strings.
pub fn strings(texts: &[&str]) -> Arc<Chunk> {
    let region = encode_strings(texts.iter().map(|text| text.as_bytes())).unwrap();
    let layout = Layout::new(texts.len(), [(DType::String, smallvec![], region.len())]).unwrap();
    chunk_of(layout, region)
}

pub fn item(key: u64) -> NewItem {
    let trajectory = Trajectory::rows(chunk(&[key as i64]), 0, 1).unwrap();
    NewItem { key, priority: 1.0, times_sampled: 0, trajectory }
}

pub fn items(keys: impl IntoIterator<Item = u64>) -> Vec<NewItem> {
    keys.into_iter().map(item).collect()
}

pub fn keys(drawn: &[Drawn]) -> Vec<u64> {
    drawn.iter().map(|drawn| drawn.key).collect()
}

/// The result of a call that is done.
#[macro_export]
macro_rules! done {
    ($call:expr) => {
        match $call {
            reverb_transport::Call::Done(result) => result.unwrap(),
            reverb_transport::Call::Waiting(_) => panic!("the call waits"),
        }
    };
}

/// The wait of a call that is not done.
#[macro_export]
macro_rules! waits {
    ($call:expr) => {
        match $call {
            reverb_transport::Call::Done(_) => panic!("the call does not wait"),
            reverb_transport::Call::Waiting(waiting) => waiting,
        }
    };
}

pub fn silent(_: &str) {}

pub fn exactly(count: usize) -> DrawRequest {
    DrawRequest::exactly(count)
}

/// Items of one row each, into one table.
pub fn rows(table: &str, values: &[i64]) -> RowInsert {
    RowInsert { chunk: chunk(values), rows_per_item: 1, tables: vec![(table.into(), vec![1.0])] }
}

pub fn draw(table: &str, count: usize) -> BatchRequest {
    BatchRequest { table: table.into(), draw: exactly(count), squeeze_time: true }
}

pub fn bytes(batch: &Batch, column: usize) -> &[u8] {
    let column = &batch.layout.columns[column];
    // SAFETY: a batch that has arrived is filled to its end.
    let buffer = unsafe { std::slice::from_raw_parts(batch.buffer.as_ptr(), batch.buffer.len()) };
    &buffer[column.offset..column.offset + column.size_bytes]
}

pub fn int64s(batch: &Batch, column: usize) -> Vec<i64> {
    bytes(batch, column).chunks_exact(8).map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap())).collect()
}

/// Waits until something becomes true on the server.
pub async fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !is_true() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The server still does its work.
pub async fn assert_serves(server: &Server, table: &str) {
    let client = Client::new(&addresses(server)[0]);
    let deadline = Some(Instant::now() + SOON);
    client.insert(rows(table, &[42]), deadline).await.unwrap();
    client.sample(&draw(table, 1), deadline).await.unwrap();
}
