//! A server whose memory is measured while it gets arbitrary messages, and the reads of what it has accepted.

use crate::common::{self, Receive, any::count_panics, config, here, item, items, queue};
use crate::done;
use crate::memory::peak_of;
use crate::raw::call;
use bytes::Bytes;
use prost::Message;
use reverb_core::{RateLimiterConfig, Table, TableConfig};
use reverb_net::client::Client;
use reverb_net::replay_v1::proto::{self as replay, PeekRequest, SampleRequest, sample_request};
use reverb_net::replay_v1::sample_response::{Kind, Payload, SampleResponse};
use reverb_net::server::Server;
use reverb_service::write_ledger::Ledgers;
use reverb_service::{BatchRequest, DrawRequest, TableHandle};
use reverb_store::checkpoint::{CheckpointOptions, Checkpointer, LoadOptions};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_stream::iter;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

/// Bytes that may be allocated for each byte of a message: an empty message inside it takes two bytes, and up to two
/// hundred in memory, in a list that doubles as it grows.
const BYTES_PER_BYTE: usize = 256;
/// Bytes of a connection, of its pieces of batches on their way, and of the threads.
const BUFFERS: usize = 8 << 20;
/// Batches above this size are not copied.
const COPIED_BYTES: usize = 64 << 20;
/// Number of answers of a stream that are read at most, and number of waits of 20 ms without an answer after which a
/// stream of dm-reverb is given up.
const MAX_ANSWERS: usize = 1000;
const IDLE_TURNS: usize = 25;
/// The table whose draws and inserts show that all requests before them were processed.
pub const LAST: &str = "last";
/// The number of the last request of a stream.
pub const LAST_ID: u64 = 1 << 40;

/// A server and a connection to it.
pub struct World {
    pub runtime: Runtime,
    pub server: Server,
    pub channel: Channel,
    near: Client,
    panics: &'static AtomicUsize,
    /// A shard of a cluster, a connection to it, and its table.
    shard: (Server, Channel, TableHandle),
}

/// Returns the server of this process.
pub fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let panics = count_panics();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let connect = async |server: &Server| {
            let address = format!("http://127.0.0.1:{}", server.port());
            Endpoint::from_shared(address).unwrap().connect().await.unwrap()
        };
        let (server, channel, shard) = runtime.block_on(async {
            let (server, table) = (common::server(tables()), kept_together());
            let shard = common::cluster::shard(0, &table);
            let (channel, of_shard) = (connect(&server).await, connect(&shard).await);
            (server, channel, (shard, of_shard, table))
        });
        let near = Client::new(&format!("localhost:{}", server.port()));
        World { runtime, server, channel, near, panics, shard }
    })
}

/// A table of a shard whose limiter keeps a ratio.
fn kept_together() -> TableHandle {
    let rate_limiter =
        RateLimiterConfig { samples_per_insert: 1.0, min_size_to_sample: 1, min_diff: -500.0, max_diff: 500.0 };
    TableHandle::new(Table::new(TableConfig { rate_limiter, ..config("table") }).unwrap())
}

fn tables() -> Vec<TableHandle> {
    let table = Table::new(TableConfig { max_size: 1000, ..config("table") }).unwrap();
    vec![TableHandle::new(table), queue("queue", 8), common::uniform(LAST)]
}

/// Runs a step and checks that it allocates at most `most` bytes, besides buffers, and that no thread panics.
pub fn measured<T>(what: &str, most: usize, step: impl FnOnce() -> T) -> T {
    let panics = world().panics.load(Relaxed);
    let (result, peak) = peak_of(step);
    assert!(peak <= most.saturating_add(BUFFERS), "{what} took {peak} bytes; {most} were expected");
    assert_eq!(world().panics.load(Relaxed), panics, "{what} made a thread panic");
    result
}

/// Returns the number of bytes that may be allocated for a message.
pub fn multiple_of(input: &[u8]) -> usize {
    BYTES_PER_BYTE * input.len()
}

impl World {
    pub fn tables(&self) -> &[TableHandle] {
        self.server.replay().tables()
    }

    /// The connection to a shard of a cluster, and its table.
    pub fn shard(&self) -> (&Channel, &TableHandle) {
        (&self.shard.1, &self.shard.2)
    }

    /// Empties all tables. Waits until the requests of the last connection are withdrawn.
    pub fn clear(&self) {
        let deadline = Instant::now() + common::SOON;
        for table in self.tables() {
            let waits = || {
                let status = table.status();
                let busy = [status.info.waiting_inserts, status.info.waiting_samples, status.info.undelivered_samples];
                busy.into_iter().flatten().any(|count| count > 0)
            };
            while waits() {
                assert!(Instant::now() < deadline, "a request of a dropped stream still waits: {:?}", table.status());
                std::thread::sleep(Duration::from_micros(100));
            }
            table.reset().unwrap();
        }
    }

    /// Fills the tables with eight items each.
    pub fn fill(&self) {
        self.tables()[..2].iter().for_each(|table| done!(table.insert(items(0..8), here())));
        done!(self.tables()[2].insert(vec![item(1)], here()));
    }

    /// Sends messages on a new stream of a method, reads the answers until `is_last` of one, or until so many requests
    /// wait that the stream is not read, or after [`MAX_ANSWERS`]. Returns the status of the stream, if it has ended with an error.
    pub async fn talk(
        &self,
        method: &str,
        messages: Vec<Bytes>,
        is_last: impl FnMut(&Bytes) -> bool,
    ) -> Result<(), Status> {
        let is_full = || self.tables().iter().any(|table| table.status().info.waiting_inserts >= Some(1000));
        Self::talk_over(&self.channel, method, messages, is_last, is_full).await
    }

    /// As [`World::talk`], over any channel. `is_full` says whether so many requests wait.
    pub async fn talk_over(
        channel: &Channel,
        method: &str,
        messages: Vec<Bytes>,
        mut is_last: impl FnMut(&Bytes) -> bool,
        is_full: impl Fn() -> bool,
    ) -> Result<(), Status> {
        // The stream is open until this function returns: the server may end it once the client has sent all.
        let (open, stream) = mpsc::unbounded_channel();
        messages.into_iter().for_each(|message| drop(open.send(message)));
        let mut answers = call(channel, method, UnboundedReceiverStream::new(stream)).await?;
        let (mut idle, mut answered) = (0, 0);
        loop {
            match tokio::time::timeout(Duration::from_millis(20), answers.message()).await {
                Ok(Ok(Some(answer))) if is_last(&answer) => return Ok(()),
                Ok(Ok(Some(_))) if answered == MAX_ANSWERS => return Ok(()),
                Ok(Ok(Some(_))) => (idle, answered) = (0, answered + 1),
                Ok(Ok(None)) => return Ok(()),
                Ok(Err(status)) => return Err(status),
                Err(_) if is_full() => return Ok(()),
                // Streams of dm-reverb have one request at a time, and the first may wait for ever.
                Err(_) if idle == IDLE_TURNS && method.starts_with('/') => return Ok(()),
                Err(_) => idle += 1,
            }
        }
    }

    /// Draws items of a table over the network and in this process, peeks at them, and saves and loads them.
    pub fn read_all(&self, input: &[u8]) {
        // A draw from an empty table would wait.
        if self.tables()[0].with_table(Table::is_empty) {
            return;
        }
        let most = multiple_of(input);
        for squeeze_time in [false, true] {
            let size = measured("a draw", most, || self.runtime.block_on(self.draw(squeeze_time)));
            let Some(size) = size.filter(|&size| size <= COPIED_BYTES) else { continue };
            let draw = DrawRequest { at_least: 1, at_most: 3, ahead: 0, is_ahead: false };
            let request = BatchRequest { table: "table".into(), draw, squeeze_time };
            // The items differ from those of the draw before.
            let most_copied = most + 6 * COPIED_BYTES.max(size);
            measured("a draw in the same process", most_copied, || {
                let _stacked_or_not = self.runtime.block_on(async { self.near.receive(&request, None).await });
            });
        }
        for newest in [false, true] {
            let request = PeekRequest { table: "table".into(), count: 20, newest }.encode_to_vec();
            // A copy of each item for the message, for its frame, and for the reader of this test.
            measured("a peek", most + 6 * COPIED_BYTES, || {
                let _shown_or_not = self.runtime.block_on(self.unary("Peek", request.into()));
            });
        }
        measured("a save", most, || self.save());
        measured("loading what was saved", most, load);
    }

    /// Draws a batch and discards its bytes as they arrive. Returns its size in bytes, or `None` if it fails.
    async fn draw(&self, squeeze_time: bool) -> Option<usize> {
        let draw =
            replay::Draw { table: "table".into(), at_least: 1, at_most: 3, squeeze_time, ..replay::Draw::default() };
        let request = SampleRequest { request_id: 1, kind: Some(sample_request::Kind::Draw(draw)) };
        let mut answers = call(&self.channel, "Sample", iter([request.encode_to_vec().into()])).await.unwrap();
        let (mut size, mut read) = (None, 0);
        while let Some(answer) = answers.message().await.unwrap() {
            let SampleResponse { kind, payload, .. } = SampleResponse::decode(answer).unwrap();
            match kind {
                Some(Kind::Batch(batch)) => size = Some(size_of_batch(&batch)),
                Some(Kind::Failure(_)) => return None,
                Some(Kind::Notice(_) | Kind::Settle(_) | Kind::RaceReport(_) | Kind::Stocked(_)) | None => {}
            }
            let Payload::Bytes(bytes) = payload else { panic!("it has no bytes") };
            read += bytes.len();
            if size.is_some_and(|size| read >= size || size > COPIED_BYTES) {
                break;
            }
        }
        size
    }

    /// Makes a call with one request and one answer.
    pub async fn unary(&self, method: &str, request: Bytes) -> Result<Option<Bytes>, Status> {
        let mut answers: Streaming<Bytes> = call(&self.channel, method, iter([request])).await?;
        answers.message().await
    }

    fn save(&self) {
        let checkpointer = Checkpointer::open(options()).unwrap();
        checkpointer.save(self.tables()).unwrap();
        checkpointer.close().unwrap();
    }
}

/// Returns the size in bytes of the columns of a batch.
pub fn size_of_batch(batch: &replay::Batch) -> usize {
    let sizes = batch.columns.iter().map(|column| match reverb_core::DType::from_number(column.dtype) {
        Ok(reverb_core::DType::String) => column.string_bytes as usize,
        Ok(dtype) => column.shape.iter().fold(dtype.size(), |size, &dim| size.saturating_mul(dim as usize)),
        Err(_) => 0,
    });
    sizes.fold(0, |end: usize, size| end.checked_next_multiple_of(64).unwrap_or(end).saturating_add(size))
}

/// Loads what was saved last into new tables, as the next start of the server would.
fn load() {
    let checkpointer = Checkpointer::open(options()).unwrap();
    let loaded = checkpointer.restore(&tables(), &Ledgers::default(), common::MAX_MESSAGE_SIZE).unwrap();
    checkpointer.close().unwrap();
    assert!(loaded.is_some(), "nothing was loaded");
    std::fs::remove_dir_all(loaded.unwrap()).unwrap();
}

fn options() -> CheckpointOptions {
    CheckpointOptions {
        root: folder(),
        group: String::new(),
        fallback: None,
        keep: 1,
        compression: 0,
        interval: None,
        save_on_stop: false,
        is_temporary: false,
        must_be_writable: false,
        durability: None,
        accept_loss: false,
        load: LoadOptions::default(),
    }
}

fn folder() -> PathBuf {
    std::env::temp_dir().join(format!("reverb-fuzz-net-{}", std::process::id()))
}
