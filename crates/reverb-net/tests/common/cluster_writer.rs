//! Writers of a cluster, whose items are numbered by their priorities.

use super::SOON;
use super::test_shard::{TestShard, client_of, options};
use reverb_core::writer::{ChunkCompression, ColumnOptions, ColumnValue, StepBuffer, StreamChunks, Value, WriterItem};
use reverb_core::{DType, Error};
use reverb_net::client::Client;
use reverb_net::client::writer::{Session, SessionOptions};
use reverb_net::transport::cluster::{ClusterOptions, OnShardLoss, Placement};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// A short time, after which a writer may give a shard up.
pub const QUICK: Duration = Duration::from_millis(300);

/// The options of a writer to be made.
pub struct WriterOf<'a> {
    pub shards: &'a [TestShard],
    pub on_shard_loss: OnShardLoss,
    pub placement: Placement,
    pub options: SessionOptions,
}

impl<'a> WriterOf<'a> {
    pub fn new(shards: &'a [TestShard], on_shard_loss: OnShardLoss) -> Self {
        Self { shards, on_shard_loss, placement: Placement::Episode, options: SessionOptions::default() }
    }

    /// The writer waits so long for a lost shard.
    pub fn patient(mut self, reconnect_timeout: Duration) -> Self {
        self.options.reconnect_timeout = reconnect_timeout;
        self
    }

    pub fn unreached(self) -> ClusterWriter {
        let cluster = ClusterOptions { placement: self.placement, ..options(self.on_shard_loss) };
        let client = Arc::new(client_of(self.shards.iter().map(|shard| shard.server.port()), cluster));
        let dropped = StreamChunks::default();
        let session = Session::new(client.clone(), self.options, dropped.clone());
        ClusterWriter { steps: steps(dropped.clone()), session, client, dropped }
    }

    /// Makes the writer, which has reached all shards then.
    pub async fn start(self) -> ClusterWriter {
        let writer = self.unreached();
        writer.session.reach(None).await.unwrap();
        writer
    }
}

fn steps(dropped: StreamChunks) -> StepBuffer {
    let options = ColumnOptions { num_keep_alive_refs: 8, max_chunk_length: Some(1) };
    StepBuffer::new(options, ChunkCompression::default(), dropped).unwrap()
}

pub struct ClusterWriter {
    pub steps: StepBuffer,
    pub session: Session,
    pub client: Arc<Client>,
    dropped: StreamChunks,
}

impl ClusterWriter {
    pub fn address(&self) -> &str {
        self.client.address()
    }

    pub fn road_name(&self) -> String {
        self.client.road_name().unwrap_or_default()
    }

    /// The steps of another environment of the writer.
    pub fn other_steps(&self) -> StepBuffer {
        steps(self.dropped.clone())
    }

    /// Appends a step, whose value is a number. Returns an item of the last steps, whose priority is that number.
    pub fn item(&mut self, length: u64, number: u64) -> WriterItem {
        Self::item_of(&self.session, &mut self.steps, length, number)
    }

    fn item_of(session: &Session, steps: &mut StepBuffer, length: u64, number: u64) -> WriterItem {
        let value = Value { dtype: DType::Int64, shape: &[], bytes: &number.to_le_bytes() };
        steps.append(&[ColumnValue { column: 0, value, opens_rows: false }], false).unwrap();
        let rows = steps.num_rows();
        let column = steps.select(0, rows - length..rows, false).unwrap();
        let slots = session.key_slots(steps);
        WriterItem::new("table".into(), number as f64, [column].into(), steps.writer(), slots, None).unwrap()
    }

    pub fn push(&self, item: WriterItem) -> Result<bool, Error> {
        self.session.push(&Handle::current(), [item])
    }

    /// Writes an item of one step. Returns its key.
    pub fn write(&mut self, number: u64) -> u64 {
        self.write_steps(1, number)
    }

    pub fn write_steps(&mut self, length: u64, number: u64) -> u64 {
        let item = self.item(length, number);
        let key = item.key;
        self.push(item).unwrap();
        key
    }

    /// Writes an item of another environment.
    pub fn write_of(&self, steps: &mut StepBuffer, number: u64) -> u64 {
        self.write_to("table", steps, number)
    }

    /// Writes an item of another environment to a table.
    pub fn write_to(&self, table: &str, steps: &mut StepBuffer, number: u64) -> u64 {
        let mut item = Self::item_of(&self.session, steps, 1, number);
        item.table = table.into();
        let key = item.key;
        self.push(item).unwrap();
        key
    }

    /// Writes an item, and waits until it is in its table.
    pub async fn try_write(&mut self, number: u64) -> Result<(), Error> {
        let item = self.item(1, number);
        self.push(item)?;
        self.flush().await
    }

    pub async fn flush(&self) -> Result<(), Error> {
        self.session.flush(0, Some(Instant::now() + SOON), |_| {}).await
    }
}
