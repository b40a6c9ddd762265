//! Keys of the items of a shard lie in its slots on every road, and keys that do not are noticed on every way in.

use crate::common::wire::{self, Inserts};
use crate::common::{
    MAX_MESSAGE_SIZE, Receive, SOON, addresses, chunk, config, dm_inserts, draw, eventually, queue, rows, server,
    uniform,
};
use reverb_core::published_room::Tally;
use reverb_core::writer::{ChunkCompression, ColumnOptions, ColumnValue, StepBuffer, StreamChunks, Value, WriterItem};
use reverb_core::{DType, KeySlots, MAX_SHARDS, NewItem, Table, Trajectory};
use reverb_net::client::writer::{Session, SessionOptions};
use reverb_net::client::{Client, Info};
use reverb_net::replay_v1::proto::{self, HelloRequest, InfoRequest, WriteItem, WriteRequest};
use reverb_net::server::{ListenOptions, Server};
use reverb_service::{Replay, Shard, TableHandle};
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

/// A key in slot 0, which shard 0 owns.
const FOREIGN: u64 = 5;

fn soon() -> Option<Instant> {
    Some(Instant::now() + SOON)
}

fn slots(id: u32) -> KeySlots {
    KeySlots::of_shard(id, MAX_SHARDS).unwrap()
}

fn shard_of(id: u32, tables: Vec<TableHandle>, port: Option<u16>) -> Server {
    let shard = Shard::new(id, MAX_SHARDS, "replay".into()).unwrap();
    let replay = Replay::of_shard(tables, MAX_MESSAGE_SIZE, Some(shard)).unwrap();
    Server::start(&Handle::current(), replay, &ListenOptions { port, ..ListenOptions::default() }, None).unwrap()
}

fn shard(id: u32) -> Server {
    shard_of(id, vec![uniform("table"), uniform("other")], None)
}

/// The addresses of all roads: Unix, TCP, and the same process.
fn roads(server: &Server) -> Vec<String> {
    [addresses(server).to_vec(), vec![format!("localhost:{}", server.port())]].concat()
}

fn keys_of(server: &Server, table: &str) -> Vec<u64> {
    server.replay().table(table).unwrap().with_table(|table| table.keys().collect())
}

/// Asserts that a server has so many items in a table, all with keys of its own.
#[track_caller]
fn assert_own(server: &Server, table: &str, count: usize, slots: KeySlots) {
    let keys = keys_of(server, table);
    assert_eq!(keys.len(), count);
    assert!(keys.iter().all(|&key| slots.contains(key)), "{keys:x?}");
    assert!(!server.replay().has_foreign_keys());
}

/// A writer of items of one step.
struct Writer {
    steps: StepBuffer,
    session: Session,
}

impl Writer {
    fn new(client: Client) -> Self {
        let dropped = StreamChunks::default();
        let options = ColumnOptions { num_keep_alive_refs: 1, max_chunk_length: Some(1) };
        let steps = StepBuffer::new(options, ChunkCompression::default(), dropped.clone()).unwrap();
        Self { steps, session: Session::new(Arc::new(client), SessionOptions::default(), dropped) }
    }

    fn item(&mut self) -> WriterItem {
        let value = Value { dtype: DType::Int64, shape: &[], bytes: &1_i64.to_le_bytes() };
        self.steps.append(&[ColumnValue { column: 0, value, opens_rows: false }], false).unwrap();
        let rows = self.steps.num_rows();
        let column = self.steps.select(0, rows - 1..rows, false).unwrap();
        let slots = self.session.key_slots(&self.steps);
        WriterItem::new("table".into(), 1.0, [column].into(), self.steps.writer(), slots, None).unwrap()
    }

    async fn write(&self, item: WriterItem) {
        self.session.push(&Handle::current(), [item]).unwrap();
        self.session.flush(0, soon(), |_| {}).await.unwrap();
    }
}

/// What a server says of its shard in both answers.
async fn told(server: &Server) -> Option<proto::Shard> {
    let mut service = wire::connect(server.port()).await;
    let hello = service.hello(HelloRequest { version: 1, ..HelloRequest::default() }).await.unwrap().into_inner();
    let info = service.info(InfoRequest {}).await.unwrap().into_inner();
    assert_eq!((&hello.shard, &hello.server_id), (&info.shard, &info.server_id));
    info.shard
}

async fn tells_foreign_keys(server: &Server) -> bool {
    let told = told(server).await.unwrap();
    assert_eq!((told.id, told.max_shards, &*told.cluster), (3, MAX_SHARDS, "replay"));
    assert_eq!(told.has_foreign_keys, server.replay().has_foreign_keys());
    told.has_foreign_keys
}

#[tokio::test(flavor = "multi_thread")]
async fn inserts_choose_keys_of_the_shard() {
    for id in [0, 3, 255] {
        let server = shard(id);
        for (count, address) in (1..).zip(roads(&server)) {
            let client = Client::new(&address);
            let mut insert = rows("table", &[1, 2, 3, 4, 5]);
            insert.tables.push(("other".into(), vec![2.0].into()));
            let keys = client.insert(insert, soon()).await.unwrap();
            assert!(keys.iter().all(|&key| slots(id).contains(key) && keys_of(&server, "other").contains(&key)));
            assert_own(&server, "table", 5 * count, slots(id));
        }
        assert_own(&server, "other", 15, slots(id));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_choose_keys_of_the_shard_that_their_client_has_reached() {
    let server = shard(3);
    for (count, address) in (1..).zip(roads(&server)) {
        let client = Client::new(&address);
        client.call(Info, soon()).await.unwrap();
        // Its own connection is made only when it sends.
        let mut writer = Writer::new(client.beside(1 << 20));
        for _ in 0..3 {
            let item = writer.item();
            writer.write(item).await;
        }
        assert_own(&server, "table", 3 * count, slots(3));
    }
    assert!(!tells_foreign_keys(&server).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_has_reached_no_server_chooses_keys_freely_until_then() {
    let server = shard(3);
    for address in addresses(&server) {
        let mut writer = Writer::new(Client::new(&address));
        assert_eq!(writer.session.key_slots(&writer.steps), KeySlots::ALL);
        let item = writer.item();
        writer.write(item).await;
        assert_eq!(writer.session.key_slots(&writer.steps), slots(3));
    }
    // In the same process, it knows before.
    let here = Writer::new(Client::new(&roads(&server)[2]));
    assert_eq!(here.session.key_slots(&here.steps), slots(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_no_shard_says_so_and_owns_all_keys() {
    let server = server(vec![uniform("table"), uniform("other")]);
    for address in roads(&server) {
        let client = Client::new(&address);
        client.insert(rows("table", &[1]), soon()).await.unwrap();
        let writer = Writer::new(client);
        assert_eq!(writer.session.key_slots(&writer.steps), KeySlots::ALL);
    }
    let mut service = wire::connect(server.port()).await;
    let mut inserts = Inserts::open(&mut service).await;
    inserts.send(wire::insert(1, "table", 3));
    assert!(inserts.answer().await.unwrap().failure.is_none());
    assert_eq!(told(&server).await, None);
    assert!(!server.replay().has_foreign_keys() && server.replay().shard().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_server_at_an_address_may_be_another_shard() {
    let server = shard(3);
    let address = addresses(&server)[0].clone();
    let client = Client::new(&address);
    client.insert(rows("table", &[1]), soon()).await.unwrap();
    let writer = Writer::new(client.beside(1 << 20));
    assert_eq!(writer.session.key_slots(&writer.steps), slots(3));
    let port = server.port();
    drop(server);
    let server = shard_of(7, vec![uniform("table")], Some(port));
    eventually("the client has noticed the end", || client.connection().is_none()).await;
    client.insert(rows("table", &[1, 2]), soon()).await.unwrap();
    assert_own(&server, "table", 2, slots(7));
    assert_eq!(writer.session.key_slots(&writer.steps), slots(7));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_insert_into_one_of_several_servers_has_keys_of_that_one() {
    let servers = [shard(3), shard(7)];
    let address = format!("{},127.0.0.1:{}", addresses(&servers[0])[0], servers[1].port());
    let client = Client::new(&address);
    for _ in 0..4 {
        client.insert(rows("table", &[1, 2]), soon()).await.unwrap();
    }
    let counts = servers.each_ref().map(|server| keys_of(server, "table").len());
    assert_eq!(counts.iter().sum::<usize>(), 8);
    for (server, (id, count)) in servers.iter().zip([3, 7].into_iter().zip(counts)) {
        assert_own(server, "table", count, slots(id));
    }
    // Nobody knows yet which one gets the next item of a writer.
    let writer = Writer::new(client.beside(1 << 20));
    assert_eq!(writer.session.key_slots(&writer.steps), KeySlots::ALL);
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_keys_of_an_insert_stream_are_noticed() {
    let server = shard(3);
    assert!(!tells_foreign_keys(&server).await);
    let mut service = wire::connect(server.port()).await;
    let mut inserts = Inserts::open(&mut service).await;
    // One that is refused is in no table.
    inserts.send(wire::insert(1, "missing", 3));
    assert!(inserts.answer().await.unwrap().failure.is_some());
    assert!(!tells_foreign_keys(&server).await);
    inserts.send(wire::insert(2, "table", 3));
    assert!(inserts.answer().await.unwrap().failure.is_none());
    assert!(tells_foreign_keys(&server).await);
    // It stays so, and the server goes on.
    server.replay().table("table").unwrap().reset().unwrap();
    assert!(tells_foreign_keys(&server).await);
    let client = Client::new(&addresses(&server)[0]);
    client.insert(rows("table", &[42]), soon()).await.unwrap();
    assert!(slots(3).contains(client.receive(&draw("table", 1), soon()).await.unwrap().info.keys()[0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_keys_of_a_write_stream_are_noticed() {
    let server = shard(3);
    let mut service = wire::connect(server.port()).await;
    let (requests, stream) = mpsc::unbounded_channel();
    let mut responses = service.write(UnboundedReceiverStream::new(stream)).await.unwrap().into_inner();
    for (sequence, key) in [(1, 3 << 56), (2, FOREIGN)] {
        let item =
            WriteItem { table: "table".into(), key, priority: 1.0, chunk_key: 1, rows: 1, ..WriteItem::default() };
        let chunks = if sequence == 1 { vec![wire::chunk(1, 1)] } else { Vec::new() };
        let request = WriteRequest {
            writer_id: 7,
            first_sequence: sequence,
            chunks,
            items: vec![item],
            ..WriteRequest::default()
        };
        requests.send(request).unwrap();
        assert_eq!(responses.message().await.unwrap().unwrap().count, 1);
        assert_eq!(tells_foreign_keys(&server).await, key == FOREIGN);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_keys_of_a_writer_are_noticed_whether_its_items_wait_or_not() {
    for (road, waits) in [(0, false), (0, true), (1, false), (1, true), (2, false), (2, true)] {
        let server = shard_of(3, vec![queue("table", 1)], None);
        let client = Client::new(&roads(&server)[road]);
        if waits {
            client.insert(rows("table", &[1]), soon()).await.unwrap();
        }
        let mut writer = Writer::new(client.beside(1 << 20));
        let mut item = writer.item();
        item.key = FOREIGN;
        writer.session.push(&Handle::current(), [item]).unwrap();
        if waits {
            let table = server.replay().table("table").unwrap();
            eventually("the item waits", || table.pulse().waiting_inserts == 1).await;
            client.receive(&draw("table", 1), soon()).await.unwrap();
        }
        writer.session.flush(0, soon(), |_| {}).await.unwrap();
        assert_eq!(keys_of(&server, "table"), [FOREIGN]);
        assert!(tells_foreign_keys(&server).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_keys_of_clients_of_dm_reverb_are_noticed() {
    let server = shard(3);
    let mut service = dm_inserts::connect(server.port()).await;
    for key in [3 << 56 | 1, FOREIGN] {
        let request = dm_inserts::request(&[dm_inserts::chunk(key, &[1])], &[dm_inserts::item("table", key, key)], &[]);
        let (keys, status) = dm_inserts::talk(&mut service, vec![request]).await;
        assert!(status.is_none() && keys == [key], "{status:?}");
        assert_eq!(tells_foreign_keys(&server).await, key == FOREIGN);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_keys_of_a_checkpoint_are_noticed() {
    for key in [3 << 56, FOREIGN] {
        let server = shard(3);
        let mut restored = Table::new(config("table")).unwrap();
        let trajectory = Trajectory::rows(chunk(&[1]), 0, 1).unwrap();
        let item = NewItem { key, priority: 1.0, takes_largest: false, others: None, times_sampled: 0, trajectory };
        restored.restore_item(item, 1).unwrap();
        server.replay().table("table").unwrap().restore(restored, &Tally::default());
        assert_eq!(tells_foreign_keys(&server).await, key == FOREIGN);
    }
}
