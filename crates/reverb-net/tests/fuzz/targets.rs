//! The fuzz targets. An input of a stream is a list of messages, each after its length in two bytes.

use crate::common::{Receive, here, wire};
use crate::raw::{Answers, FakeServer};
use crate::world::{LAST, LAST_ID, World, measured, multiple_of, size_of_batch, world};
use bytes::Bytes;
use prost::Message;
use reverb_core::writer::{ChunkCompression, ColumnOptions, ColumnValue, StepBuffer, StreamChunks, Value, WriterItem};
use reverb_core::{DType, Error, KeySlots, Race, Table};
use reverb_net::client::writer::{Session, SessionOptions};
use reverb_net::client::{Checkpoint, Client, Get, Info, Mutate, Peek, RaceRequest};
use reverb_net::replay_v1::proto::{
    HelloResponse, InsertResponse, SampleRequest, SumsRequest, WriteItem, WriteRequest, WriteResponse, sample_request,
};
use reverb_net::replay_v1::sample_response::{Kind, SampleResponse};
use reverb_service::Call;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::Status;

/// Maximum number of messages of an input.
const MAX_MESSAGES: usize = 16;
/// Maximum number of items of one draw and of one race, and bytes of each on both ends.
const MAX_DRAWN: u64 = 1 << 20;
const MAX_RACED: u64 = 1 << 14;
const BYTES_PER_SAMPLE: u64 = 1024;

pub fn messages(mut input: &[u8]) -> Vec<Bytes> {
    let mut found = Vec::new();
    while let Some((len, rest)) = input.split_first_chunk::<2>()
        && found.len() < MAX_MESSAGES
    {
        let (message, rest) = rest.split_at(rest.len().min(usize::from(u16::from_le_bytes(*len))));
        found.push(Bytes::copy_from_slice(message));
        input = rest;
    }
    found
}

/// The outcome of a stream: its error, or how many items were accepted.
pub fn outcome(world: &World, ended: Result<(), Status>) -> String {
    let lengths: Vec<_> = world.tables().iter().map(|table| table.with_table(Table::len).min(3)).collect();
    let taken = ["none", "one", "two", "many"][lengths[0]];
    match ended {
        Ok(()) => format!("taken {taken}"),
        Err(status) => format!("{taken} {}", status.message()),
    }
}

/// Requests of an insert stream.
pub fn insert_requests(input: &[u8]) -> String {
    let world = world();
    let mut requests = messages(input);
    requests.push(wire::insert(LAST_ID, LAST, 1).encode_to_vec().into());
    let is_last = |answer: &Bytes| InsertResponse::decode(answer.clone()).unwrap().request_id == LAST_ID;
    let talk = || world.runtime.block_on(world.talk("Insert", requests, is_last));
    let ended = measured("an insert", multiple_of(input), talk);
    let words = outcome(world, ended);
    world.read_all(input);
    world.clear();
    words
}

/// Requests of the stream of a writer.
pub fn write_requests(input: &[u8]) -> String {
    static WRITERS: AtomicU64 = AtomicU64::new(1);
    let world = world();
    // Each input is a writer of its own, so that the items of one are not taken for those of another.
    let first = WriteRequest { writer_id: WRITERS.fetch_add(1, Relaxed), ..WriteRequest::default() };
    let mut requests = vec![first.encode_to_vec().into()];
    requests.extend(messages(input));
    let item = last_item();
    let last = WriteRequest {
        chunks: vec![wire::chunk(LAST_ID, 1)],
        items: vec![item],
        first_sequence: LAST_ID,
        ..WriteRequest::default()
    };
    requests.push(last.encode_to_vec().into());
    let is_last = |answer: &Bytes| {
        let WriteResponse { first, count, confirmed, failures, .. } = WriteResponse::decode(answer.clone()).unwrap();
        let mut all = confirmed.into_iter().chain(failures.iter().map(|failure| failure.sequence));
        (first <= LAST_ID && LAST_ID - first < count) || all.any(|sequence| sequence == LAST_ID)
    };
    let ended =
        measured("a write", multiple_of(input), || world.runtime.block_on(world.talk("Write", requests, is_last)));
    let words = outcome(world, ended);
    world.read_all(input);
    world.clear();
    words
}

fn last_item() -> WriteItem {
    WriteItem { table: LAST.into(), key: 1, priority: 1.0, chunk_key: LAST_ID, rows: 1, ..WriteItem::default() }
}

/// Requests of a sample stream.
pub fn sample_requests(input: &[u8]) -> String {
    let world = world();
    world.fill();
    let mut requests = messages(input);
    let draws = requests.iter().filter_map(|request| match SampleRequest::decode(request.clone()).ok()?.kind? {
        sample_request::Kind::Draw(draw) => Some(draw.at_most.min(MAX_DRAWN) + draw.ahead.min(MAX_DRAWN)),
        // All of them may win.
        sample_request::Kind::Race(race) => Some(2 * race.limit.min(MAX_RACED)),
        _ => None,
    });
    let most = multiple_of(input) as u64 + draws.sum::<u64>() * BYTES_PER_SAMPLE;
    let last = sample_request::Kind::Draw(wire::draw(LAST, 1));
    requests.push(SampleRequest { request_id: LAST_ID, kind: Some(last) }.encode_to_vec().into());
    let is_last = |answer: &Bytes| SampleResponse::decode(answer.clone()).unwrap().request_id == LAST_ID;
    let talk = || world.runtime.block_on(world.talk("Sample", requests, is_last));
    let ended = measured("a draw", most as usize, talk);
    let words = outcome(world, ended);
    world.clear();
    words
}

/// Requests of a stream to the limiter that the shards of a cluster keep together.
pub fn sums_requests(input: &[u8]) -> String {
    let world = world();
    let (shard, table) = world.shard();
    let mut requests = messages(input);
    let first = SumsRequest { table: "table".into(), learner: 7, shards: vec![1, 2], ..SumsRequest::default() };
    requests.insert(0, first.encode_to_vec().into());
    // It ends the stream.
    let wrong = SumsRequest { shards: vec![u32::MAX], ..SumsRequest::default() };
    requests.push(wrong.encode_to_vec().into());
    let talk = || world.runtime.block_on(World::talk_over(shard, "Sums", requests, |_| false, || false));
    let ended = measured("a report", multiple_of(input), talk);
    // What it was told must not harm what it says.
    let insert = || match table.insert(vec![crate::common::item(1)], here()) {
        Call::Waiting(waiting) => waiting.explain(),
        Call::Done(done) => format!("{done:?}"),
    };
    let inserted = measured("an insert", multiple_of(input), insert);
    assert!(inserted == "Ok(())" || inserted.starts_with("insert into table `table` waits: "), "{inserted}");
    ended.map_or_else(|status| status.message().to_owned(), |()| "taken".into())
}

/// Calls with one request: the number of the method, and the message.
pub fn unary_requests(input: &[u8]) -> String {
    let world = world();
    let Some((&method, message)) = input.split_first() else { return "empty".into() };
    let method = ["Hello", "Mutate", "Reset", "Info", "Checkpoint", "Peek", "Observe", "Get"][usize::from(method) % 8];
    world.fill();
    let request = Bytes::copy_from_slice(message);
    let answer = measured(method, multiple_of(input), || world.runtime.block_on(world.unary(method, request)));
    let words = match answer {
        Ok(_) => outcome(world, Ok(())),
        Err(status) => outcome(world, Err(status)),
    };
    if method == "Mutate" {
        world.read_all(input);
    }
    world.clear();
    format!("{method} {words}")
}

/// Answers to a client: the number of the method, and the messages.
pub fn answers(input: &[u8]) -> String {
    let Some((&method, message)) = input.split_first() else { return "empty".into() };
    let method =
        ["Hello", "Info", "Peek", "Checkpoint", "Mutate", "Insert", "Write", "Sample", "Get"][usize::from(method) % 9];
    let is_stream = matches!(method, "Insert" | "Write" | "Sample");
    let messages = if is_stream { messages(message) } else { vec![Bytes::copy_from_slice(message)] };
    // A client allocates the memory of a batch when its header arrives.
    let headers = messages.iter().filter_map(|message| match SampleResponse::decode(message.clone()).ok()?.kind? {
        Kind::Batch(batch) if method == "Sample" => Some(size_of_batch(&batch)),
        _ => None,
    });
    let most = headers.fold(multiple_of(input), usize::saturating_add);
    let (address, server) = fake_server();
    let hello = HelloResponse { version: 1, max_message_size: 1 << 20, ..HelloResponse::default() };
    let hello = if method == "Hello" { Bytes::copy_from_slice(message) } else { hello.encode_to_vec().into() };
    *server.answers.lock().unwrap() = Answers { hello, method, messages };
    let result = measured(method, most, || world().runtime.block_on(ask(address, method)));
    words_of(method, result)
}

fn words_of(method: &str, result: Result<(), Error>) -> String {
    match result {
        Ok(()) => format!("{method} taken"),
        Err(Error::Internal(text)) if !text.starts_with("cannot decode") => format!("{method} {text}"),
        Err(error) => format!("{method} {error}"),
    }
}

/// Answers to a client that races, and chooses the first arrival.
pub fn race_answers(input: &[u8]) -> String {
    let messages = messages(input);
    let most = messages.iter().filter_map(|message| match SampleResponse::decode(message.clone()).ok()?.kind? {
        Kind::Batch(batch) => Some(size_of_batch(&batch)),
        _ => None,
    });
    let most = most.fold(multiple_of(input), usize::saturating_add);
    let (address, server) = fake_server();
    let hello = HelloResponse { version: 1, capabilities: vec!["race".into()], ..HelloResponse::default() };
    *server.answers.lock().unwrap() = Answers { hello: hello.encode_to_vec().into(), method: "Sample", messages };
    words_of("race", measured("a race", most, || world().runtime.block_on(race(address))))
}

async fn race(address: &str) -> Result<(), Error> {
    let client = Client::new(address);
    let race = Race { interval: 2.0, limit: 2, by_size: false };
    let (table, hold) = ("table".into(), crate::common::SOON);
    let request = RaceRequest { table, race, squeeze_time: true, hold, claim: None };
    let mut call = client.begin_race(&request, Some(Instant::now() + crate::common::SOON)).await?;
    let report = call.report().await?;
    // What the server says must not harm the merge.
    let round = race.merge(2, &[report.clone(), report]);
    assert!(round.winners.iter().all(|won| won.probability.is_finite() && won.table_size >= 0), "{round:?}");
    call.choose(&[0])?.result().await.map(drop)
}

/// Makes a call that gets the answers of the fake server.
async fn ask(address: &str, method: &str) -> Result<(), Error> {
    let client = Arc::new(Client::new(address));
    // A client that is refused tries again until the deadline.
    let patience = if method == "Hello" { Duration::from_millis(20) } else { crate::common::SOON };
    let deadline = Some(Instant::now() + patience);
    match method {
        "Peek" => client.call(Peek { table: "table", count: 10, newest: true }, deadline).await.map(drop),
        "Get" => client.call(Get { table: "table", keys: &[1, 2], columns: &[] }, deadline).await.map(drop),
        "Checkpoint" => client.call(Checkpoint, deadline).await.map(drop),
        "Mutate" => client.call(Mutate::new("table", &[], &[1]), deadline).await.map(drop),
        "Insert" => client.insert(crate::common::rows("table", &[1, 2]), deadline).await.map(drop),
        "Write" => write(client).await,
        "Sample" => client.receive(&crate::common::draw("table", 2), deadline).await.map(drop),
        _ => client.call(Info, deadline).await.map(drop),
    }
}

/// Writes three items. The writer gives up as soon as its stream ends.
async fn write(client: Arc<Client>) -> Result<(), Error> {
    let dropped = StreamChunks::default();
    let options = ColumnOptions { num_keep_alive_refs: 1, max_chunk_length: Some(1) };
    let mut steps = StepBuffer::new(options, ChunkCompression::default(), dropped.clone()).unwrap();
    let options = SessionOptions { reconnect_timeout: Duration::ZERO, ..SessionOptions::default() };
    let session = Session::new(client, options, dropped);
    let mut items = Vec::new();
    for _ in 0..3 {
        let value = Value { dtype: DType::Int64, shape: &[], bytes: &7_i64.to_le_bytes() };
        steps.append(&[ColumnValue { column: 0, value, opens_rows: false }], false).unwrap();
        let row = steps.num_rows() - 1;
        let column = steps.select(0, row..row + 1, false).unwrap();
        items.push(WriterItem::new("table".into(), 1.0, [column].into(), steps.writer(), KeySlots::ALL, None).unwrap());
    }
    session.push(&Handle::current(), items)?;
    let result = session.flush(0, Some(Instant::now() + crate::common::SOON), |_| {}).await;
    let _discarded = session.close(Duration::ZERO).await;
    result
}

fn fake_server() -> (&'static str, &'static FakeServer) {
    static SERVER: OnceLock<(String, FakeServer)> = OnceLock::new();
    let (address, server) = SERVER.get_or_init(|| {
        let server = FakeServer::default();
        let serving = server.clone();
        let address = world().runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = format!("ipv4:{}", listener.local_addr().unwrap());
            let incoming = TcpListenerStream::new(listener).map(|socket| {
                let socket = socket?;
                // Answers in several packets would wait for the acknowledgement of the first.
                socket.set_nodelay(true)?;
                Ok::<_, std::io::Error>(socket)
            });
            tokio::spawn(tonic::transport::Server::builder().add_service(serving).serve_with_incoming(incoming));
            address
        });
        (address, server)
    });
    (address, server)
}
