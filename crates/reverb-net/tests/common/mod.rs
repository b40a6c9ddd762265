//! Servers for tests, with the tables that the tests of the service use.
#![allow(dead_code, reason = "each test file is a separate program that uses only a part of this module")]

pub mod any;
pub mod cluster;
pub mod cluster_writer;
pub mod dm_inserts;
pub mod dm_reverb;
pub mod dm_reverb_client;
pub mod faucet;
pub mod gate;
pub mod races;
pub mod splitter;
#[path = "../../../reverb-service/tests/common/mod.rs"]
mod tables;
pub mod test_shard;
pub mod tokens;
pub mod wire;

use reverb_core::Result;
use reverb_net::client::{Client, Sampled, Started};
use reverb_net::server::{ListenOptions, Server};
use reverb_service::{Batch, BatchRequest, Replay, RowInsert, TableHandle};
use std::pin::Pin;
use std::time::{Duration, Instant};
pub use tables::*;
use tokio::runtime::Handle;

pub const MAX_MESSAGE_SIZE: u64 = 4 << 20;
pub const SOON: Duration = Duration::from_secs(60);

pub fn server(tables: Vec<TableHandle>) -> Server {
    let replay = Replay::new(tables, MAX_MESSAGE_SIZE).unwrap();
    Server::start(&Handle::current(), replay, &ListenOptions::default(), None).unwrap()
}

/// Returns the addresses of both roads over the network.
pub fn addresses(server: &Server) -> [String; 2] {
    [format!("ipv4:127.0.0.1:{}", server.port()), format!("unix:{}", server.unix_path().unwrap().display())]
}

/// Returns an insert of items of one row into one table.
pub fn rows(table: &str, values: &[i64]) -> RowInsert {
    RowInsert {
        chunk: chunk(values),
        more: Vec::new(),
        rows_per_item: 1,
        tables: vec![(table.into(), vec![1.0].into())],
    }
}

pub fn draw(table: &str, count: usize) -> BatchRequest {
    BatchRequest { table: table.into(), draw: exactly(count), squeeze_time: true }
}

pub fn bytes(batch: &Batch, column: usize) -> &[u8] {
    let column = &batch.layout.columns[column];
    // SAFETY: the buffer of a batch that has arrived is initialised completely.
    let buffer = unsafe { std::slice::from_raw_parts(batch.buffer.as_ptr(), batch.buffer.len()) };
    &buffer[column.offset..column.offset + column.size_bytes]
}

pub fn int64s(batch: &Batch, column: usize) -> Vec<i64> {
    bytes(batch, column).chunks_exact(8).map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap())).collect()
}

/// Draws batches that count as received at once.
pub trait Receive {
    fn receive<'a>(&'a self, request: &'a BatchRequest, deadline: Option<Instant>) -> Receiving<'a>;

    fn receive_persistently<'a>(
        &'a self,
        request: &'a BatchRequest,
        deadline: Option<Instant>,
        reconnect_timeout: Duration,
    ) -> Receiving<'a>;
}

pub type Receiving<'a> = Pin<Box<dyn Future<Output = Result<Batch>> + Send + 'a>>;

impl Receive for Client {
    fn receive<'a>(&'a self, request: &'a BatchRequest, deadline: Option<Instant>) -> Receiving<'a> {
        Box::pin(received(self.sample(request, deadline)))
    }

    fn receive_persistently<'a>(
        &'a self,
        request: &'a BatchRequest,
        deadline: Option<Instant>,
        reconnect_timeout: Duration,
    ) -> Receiving<'a> {
        Box::pin(received(self.sample_persistently(request, deadline, reconnect_timeout)))
    }
}

async fn received(sampling: Started<'_, Sampled>) -> Result<Batch> {
    let Sampled { batch, draw } = sampling.await?;
    draw.map_or(Ok(()), |mut draw| draw.received(false))?;
    Ok(batch)
}

/// Waits until a condition becomes true on the server.
pub async fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !is_true() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Asserts that the server still inserts and samples.
pub async fn assert_serves(server: &Server, table: &str) {
    let client = Client::new(&addresses(server)[0]);
    let deadline = Some(Instant::now() + SOON);
    client.insert(rows(table, &[42]), deadline).await.unwrap();
    client.receive(&draw(table, 1), deadline).await.unwrap();
}
