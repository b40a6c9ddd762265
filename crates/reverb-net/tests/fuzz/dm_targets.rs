//! The fuzz targets of dm-reverb's protocol. Inputs have the form of those of our protocol.

use crate::common::Receive;
use crate::common::dm_inserts::{chunk, item, request};
use crate::raw::{Answers, FakeDmServer};
use crate::targets::{messages, outcome};
use crate::world::{LAST, LAST_ID, measured, multiple_of, world};
use bytes::Bytes;
use prost::Message;
use reverb_core::{Error, SelectorKind, Table};
use reverb_formats::definitions::selector_options;
use reverb_formats::proto::schema::{PrioritizedItem, TableInfo};
use reverb_net::client::{Client, Info};
use reverb_net::dm_reverb::proto::{
    InsertStreamResponse, SampleStreamRequest, SampleStreamResponse, ServerInfoResponse, Timeout, Uint128,
};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::TcpListenerStream;

const SERVICE: &str = "/deepmind.reverb.ReverbService";
/// Time in which a client gives up a server whose description it cannot read.
const PATIENCE: Duration = Duration::from_millis(20);

/// Maximum number of items of one draw, and bytes of each on both ends.
const MAX_DRAWN: i64 = 1 << 20;
const BYTES_PER_SAMPLE: usize = 1024;

fn path(method: &str) -> String {
    format!("{SERVICE}/{method}")
}

/// A request for samples that does not wait for long.
pub fn samples(table: &str, num_samples: i64) -> SampleStreamRequest {
    SampleStreamRequest { table: table.into(), num_samples, rate_limiter_timeout: Some(Timeout { milliseconds: 1 }) }
}

/// Requests of an insert stream. What was inserted is then sampled, too.
pub fn dm_insert_requests(input: &[u8]) -> String {
    let world = world();
    let mut requests = messages(input);
    let last = request(&[chunk(LAST_ID, &[1])], &[item(LAST, LAST_ID, LAST_ID)], &[LAST_ID]);
    requests.push(last.encode_to_vec().into());
    let is_last = |answer: &Bytes| InsertStreamResponse::decode(answer.clone()).unwrap().keys.contains(&LAST_ID);
    let talk = || world.runtime.block_on(world.talk(&path("InsertStream"), requests, is_last));
    let ended = measured("an insert", multiple_of(input), talk);
    let words = outcome(world, ended);
    if !world.tables()[0].with_table(Table::is_empty) {
        let requests = vec![samples("table", 5).encode_to_vec().into()];
        let mut left = 5;
        let talk = || {
            world.runtime.block_on(world.talk(&path("SampleStream"), requests, |answer| {
                let answer = SampleStreamResponse::decode(answer.clone()).unwrap();
                left -= answer.entries.iter().filter(|entry| entry.end_of_sequence).count();
                left == 0
            }))
        };
        measured("a sample", multiple_of(input), talk).unwrap();
    }
    world.read_all(input);
    world.clear();
    words
}

/// Requests of a sample stream.
pub fn dm_sample_requests(input: &[u8]) -> String {
    let world = world();
    world.fill();
    let mut requests = messages(input);
    // Streams are read up to a number of answers, so not all samples of a request are drawn.
    let numbers = requests.iter().filter_map(|request| SampleStreamRequest::decode(request.clone()).ok());
    let drawn: i64 = numbers.map(|request| request.num_samples.clamp(0, MAX_DRAWN)).sum();
    let most = multiple_of(input) + drawn as usize * BYTES_PER_SAMPLE;
    requests.push(samples(LAST, 1).encode_to_vec().into());
    let is_last = |answer: &Bytes| {
        let answer = SampleStreamResponse::decode(answer.clone()).unwrap();
        let infos = answer.entries.iter().filter_map(|entry| entry.info.as_ref());
        infos.map(|info| PrioritizedItem::decode(info.item.clone()).unwrap()).any(|item| item.table == LAST)
    };
    let talk = || world.runtime.block_on(world.talk(&path("SampleStream"), requests, is_last));
    let ended = measured("a sample", most, talk);
    let words = outcome(world, ended);
    world.clear();
    words
}

/// Calls with one request: the number of the method, and the message.
pub fn dm_unary_requests(input: &[u8]) -> String {
    let world = world();
    let Some((&method, message)) = input.split_first() else { return "empty".into() };
    let methods = ["MutatePriorities", "Reset", "ServerInfo", "Checkpoint", "InitializeConnection"];
    let method = methods[usize::from(method) % methods.len()];
    world.fill();
    let request = Bytes::copy_from_slice(message);
    let call = || world.runtime.block_on(world.unary(&path(method), request));
    let answer = measured(method, multiple_of(input), call);
    // The texts of errors have the names of tables.
    let words = answer.map_or_else(|status| format!("{:?}", status.code()), |_| outcome(world, Ok(())));
    world.clear();
    format!("{method} {words}")
}

/// Answers to a client: the number of the method, and the messages.
pub fn dm_answers(input: &[u8]) -> String {
    let Some((&method, message)) = input.split_first() else { return "empty".into() };
    let methods = ["ServerInfo", "SampleStream", "InsertStream"];
    let method = methods[usize::from(method) % methods.len()];
    let is_stream = method != "ServerInfo";
    let messages = if is_stream { messages(message) } else { vec![Bytes::copy_from_slice(message)] };
    let (address, server) = fake_server();
    *server.0.answers.lock().unwrap() = Answers { hello: server_info().encode_to_vec().into(), method, messages };
    let result = measured(method, multiple_of(input), || world().runtime.block_on(ask(address, method)));
    match result {
        Ok(()) => format!("{method} taken"),
        Err(error) => format!("{method} {error}"),
    }
}

/// What a server with one table says of itself.
pub fn server_info() -> ServerInfoResponse {
    let fifo = Some(selector_options(&SelectorKind::Fifo));
    let info = TableInfo {
        name: "table".into(),
        sampler_options: fifo,
        remover_options: fifo,
        max_size: 10,
        ..TableInfo::default()
    };
    let tables_state_id = Some(Uint128 { high: 1, low: 2 });
    ServerInfoResponse { tables_state_id, table_info: vec![info.encode_to_vec().into()] }
}

/// Makes a call that gets the answers of the fake server.
async fn ask(address: &str, method: &str) -> Result<(), Error> {
    let client = Client::new(address);
    // Streams that a server ends may be opened again until the deadline.
    let deadline = Some(Instant::now() + PATIENCE * if method == "ServerInfo" { 1 } else { 10 });
    match method {
        "SampleStream" => client.receive(&crate::common::draw("table", 2), deadline).await.map(drop),
        "InsertStream" => client.insert(crate::common::rows("table", &[1, 2]), deadline).await.map(drop),
        _ => client.call(Info, deadline).await.map(drop),
    }
}

fn fake_server() -> (&'static str, &'static FakeDmServer) {
    static SERVER: OnceLock<(String, FakeDmServer)> = OnceLock::new();
    let (address, server) = SERVER.get_or_init(|| {
        let server = FakeDmServer::default();
        let serving = server.clone();
        let address = world().runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = format!("ipv4:{}", listener.local_addr().unwrap());
            let incoming = TcpListenerStream::new(listener).map(|socket| {
                let socket = socket?;
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
