//! Clients whose calls and streams reach different servers, and heartbeats on streams that wait.

use crate::common::splitter::split_streams;
use crate::common::wire::{chunk, connect, draw as wire_draw, insert};
use crate::common::{self, MAX_MESSAGE_SIZE, Receive, SOON, addresses, config, draw, queue, rows, uniform};
use reverb_core::{Error, RateLimiterConfig, Table, TableConfig};
use reverb_net::client::{Checkpoint, Client, Get, Info, Mutate, Newer, Peek, Reset};
use reverb_net::replay_v1::proto::{
    CheckpointRequest, GetRequest, InfoRequest, InsertRequest, MutateRequest, NewerRequest, PeekRequest, ResetRequest,
    SampleRequest, WriteItem, WriteRequest, WriteResponse, sample_request,
};
use reverb_net::server::{ListenOptions, Server};
use reverb_service::{Replay, TableHandle};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tonic::{Code, Request, Status};

const SPLIT: &str = "streams of one client reach different servers (";
const ADVICE: &str = "): a balancer splits it; use mode tcp, or stick by the header reverb-session";

fn soon() -> Option<Instant> {
    Some(Instant::now() + SOON)
}

fn len(table: &TableHandle) -> usize {
    table.with_table(|table| table.len())
}

/// Starts a server that sends heartbeats often.
fn server(tables: Vec<TableHandle>) -> Server {
    let options = ListenOptions { heartbeat: Duration::from_millis(5), ..ListenOptions::default() };
    Server::start(&Handle::current(), Replay::new(tables, MAX_MESSAGE_SIZE).unwrap(), &options, None).unwrap()
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a request that names the server it is meant for.
fn meant_for<T>(server: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("reverb-session", "5".parse().unwrap());
    request.metadata_mut().insert("reverb-server", server.parse().unwrap());
    request
}

fn write() -> WriteRequest {
    let item =
        WriteItem { table: "table".into(), key: 1, priority: 1.0, chunk_key: 1, rows: 1, ..WriteItem::default() };
    let chunks = vec![chunk(1, 3)];
    WriteRequest { writer_id: 7, first_sequence: 1, chunks, items: vec![item], ..WriteRequest::default() }
}

fn sample(table: &str) -> SampleRequest {
    SampleRequest { request_id: 1, kind: Some(sample_request::Kind::Draw(wire_draw(table, 1))) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_refuses_calls_and_streams_for_another_one() {
    let table = uniform("table");
    let server = server(vec![table.clone()]);
    let client = Client::new(&addresses(&server)[0]);
    client.insert(rows("table", &[1]), soon()).await.unwrap();
    let mut service = connect(server.port()).await;
    let other = "0123456789abcdef0123456789abcdef";
    let table_name = || "table".to_owned();
    let endless = tokio_stream::pending::<()>;
    let sampling = endless().map(|()| SampleRequest::default());
    let inserting = tokio_stream::once(insert(1, "table", 1)).chain(endless().map(|()| InsertRequest::default()));
    let writing = tokio_stream::once(write()).chain(endless().map(|()| WriteRequest::default()));
    let refused: Vec<Option<Status>> = vec![
        service.insert(meant_for(other, inserting)).await.err(),
        service.write(meant_for(other, writing)).await.err(),
        service.sample(meant_for(other, tokio_stream::once(sample("table")).chain(sampling))).await.err(),
        service.mutate(meant_for(other, MutateRequest { table: table_name(), ..Default::default() })).await.err(),
        service.reset(meant_for(other, ResetRequest { table: table_name() })).await.err(),
        service.info(meant_for(other, InfoRequest {})).await.err(),
        service.checkpoint(meant_for(other, CheckpointRequest {})).await.err(),
        service.peek(meant_for(other, PeekRequest { table: table_name(), count: 1, newest: true })).await.err(),
        service.newer(meant_for(other, NewerRequest { table: table_name(), ..Default::default() })).await.err(),
        service.get(meant_for(other, GetRequest { table: table_name(), keys: vec![1], columns: vec![] })).await.err(),
    ];
    let own = hex(&server.replay().id());
    for status in refused {
        let status = status.expect("the call is refused");
        assert_eq!(status.code(), Code::Unavailable);
        assert_eq!(status.message(), format!("{SPLIT}01234567, {}{ADVICE}", &own[..8]));
    }
    assert_eq!(len(&table), 1, "a refused call was applied");
    let status = table.status();
    let info = &status.info;
    assert_eq!((info.waiting_inserts, info.waiting_samples, info.undelivered_samples), (Some(0), Some(0), Some(0)));

    // A call for this server, and one of a client of an earlier edition.
    service.info(meant_for(&own, InfoRequest {})).await.unwrap();
    service.info(InfoRequest {}).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_a_balancer_splits_says_so_in_every_call() {
    let tables = [uniform("table"), uniform("table")];
    let servers: Vec<_> = tables.iter().map(|table| server(vec![table.clone()])).collect();
    for server in &servers {
        Client::new(&addresses(server)[0]).insert(rows("table", &[1]), soon()).await.unwrap();
    }
    let port = split_streams(servers.iter().map(Server::port).collect()).await;
    let client = || Client::new(&format!("ipv4:127.0.0.1:{port}"));
    let (first, request) = (client(), draw("table", 1));
    let updates = [(1, 2.0)];
    let mut errors = Vec::new();
    for client in [&first, &client()] {
        // The first calls may be over before the connection knows that one of its streams is refused.
        while client.call(Info, soon()).await.is_ok() {}
        errors.push(client.insert(rows("table", &[2]), soon()).await.unwrap_err());
        errors.push(client.receive(&request, soon()).await.map(drop).unwrap_err());
        errors.push(client.receive_persistently(&request, soon(), SOON).await.map(drop).unwrap_err());
        errors.push(client.begin_sample(&request, soon(), None, false).await.map(drop).unwrap_err());
        errors.push(client.call(Mutate::new("table", &updates, &[]), soon()).await.map(drop).unwrap_err());
        errors.push(client.call(Reset { table: "table" }, soon()).await.unwrap_err());
        errors.push(client.call(Info, soon()).await.map(drop).unwrap_err());
        errors.push(client.call(Checkpoint, soon()).await.map(drop).unwrap_err());
        errors.push(client.call(Peek { table: "table", count: 1, newest: true }, soon()).await.map(drop).unwrap_err());
        errors.push(client.call(Newer { table: "table", seen: None }, soon()).await.map(drop).unwrap_err());
        let get = Get { table: "table", keys: &[1], columns: &[] };
        errors.push(client.call(get, soon()).await.map(drop).unwrap_err());
    }
    for error in errors {
        assert!(matches!(error, Error::SplitClient { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.starts_with(SPLIT) && text.ends_with(ADVICE), "{text}");
    }
    assert_eq!(tables.map(|table| len(&table)), [1, 1], "a refused call was applied");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_of_one_client_reach_the_same_server_through_a_balancer_of_connections() {
    let servers: Vec<_> = (0..3).map(|_| server(vec![uniform("table")])).collect();
    let ports: Vec<_> = servers.iter().map(Server::port).collect();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("ipv4:{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        for port in ports.into_iter().cycle() {
            let (mut from, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut to = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
                tokio::io::copy_bidirectional(&mut from, &mut to).await
            });
        }
    });
    let client = Client::new(&address);
    client.insert(rows("table", &[1]), soon()).await.unwrap();
    let beside = client.beside(1 << 20);
    beside.insert(rows("table", &[2]), soon()).await.unwrap();
    let sizes = servers.iter().map(|server| len(&server.replay().tables()[0])).collect::<Vec<_>>();
    assert_eq!(sizes, [2, 0, 0]);
    // A client of its own goes to the next server.
    Client::new(&address).insert(rows("table", &[3]), soon()).await.unwrap();
    assert_eq!(servers.iter().map(|server| len(&server.replay().tables()[0])).sum::<usize>(), 3);
}

/// The streams that wait, with the header of newer clients or without.
#[tokio::test(flavor = "multi_thread")]
async fn streams_that_wait_send_heartbeats_to_clients_that_know_them() {
    let (full, empty) = (queue("table", 1), queue("empty", 1));
    let server = server(vec![full.clone(), empty.clone()]);
    let client = Client::new(&addresses(&server)[0]);
    client.insert(rows("table", &[1]), soon()).await.unwrap();
    let mut service = connect(server.port()).await;
    let own = hex(&server.replay().id());
    let endless = tokio_stream::pending::<()>;
    let inserting = || tokio_stream::once(insert(1, "table", 1)).chain(endless().map(|()| InsertRequest::default()));
    let sampling = || tokio_stream::once(sample("empty")).chain(endless().map(|()| SampleRequest::default()));
    let writing = || tokio_stream::once(write()).chain(endless().map(|()| WriteRequest::default()));

    let mut old_inserts = service.insert(inserting()).await.unwrap().into_inner();
    let mut old_samples = service.sample(sampling()).await.unwrap().into_inner();
    let mut inserts = service.insert(meant_for(&own, inserting())).await.unwrap().into_inner();
    let mut samples = service.sample(meant_for(&own, sampling())).await.unwrap().into_inner();
    let mut writes = service.write(meant_for(&own, writing())).await.unwrap().into_inner();
    for _ in 0..3 {
        assert_eq!(inserts.message().await.unwrap().unwrap(), Default::default());
        let sampled = samples.message().await.unwrap().unwrap();
        assert_eq!((sampled.request_id, sampled.kind.is_none()), (0, true));
    }
    for _ in 0..3 {
        // Those of a writer's stream have the reason for the wait.
        let WriteResponse { notice, .. } = writes.message().await.unwrap().unwrap();
        assert!(notice.starts_with("insert into table `table` waits: "), "{notice}");
    }

    client.insert(rows("empty", &[1]), soon()).await.unwrap();
    client.insert(rows("empty", &[1]), soon()).await.unwrap();
    assert_eq!(old_samples.message().await.unwrap().unwrap().request_id, 1, "a heartbeat for an older client");
    client.call(Reset { table: "table" }, soon()).await.unwrap();
    assert_eq!(old_inserts.message().await.unwrap().unwrap().request_id, 1, "a heartbeat for an older client");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_is_told_anew_what_its_items_wait_for_even_without_heartbeats() {
    let rate_limiter =
        RateLimiterConfig { samples_per_insert: 4.0, min_size_to_sample: 1, min_diff: 0.0, max_diff: 4.0 };
    let table = TableHandle::new(Table::new(TableConfig { rate_limiter, ..config("table") }).unwrap());
    let server = server(vec![table.clone()]);
    let client = Client::new(&addresses(&server)[0]);
    client.insert(rows("table", &[1]), soon()).await.unwrap();
    let mut service = connect(server.port()).await;
    let endless = tokio_stream::pending::<()>().map(|()| WriteRequest::default());
    let mut answers = service.write(tokio_stream::once(write()).chain(endless)).await.unwrap().into_inner();
    for missing in [4, 3, 2] {
        let until = format!("{missing} more samples until ");
        let is_told = async { while !answers.message().await.unwrap().unwrap().notice.contains(&until) {} };
        timeout(SOON, is_told).await.expect(&until);
        client.receive(&draw("table", 1), soon()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_ignores_the_heartbeats_of_clients() {
    let table = uniform("table");
    let server = server(vec![table.clone()]);
    let mut service = connect(server.port()).await;
    let beats = vec![InsertRequest::default(); 2];
    let inserts = tokio_stream::iter(beats).chain(tokio_stream::once(insert(1, "table", 1)));
    let mut answers = service.insert(inserts).await.unwrap().into_inner();
    assert_eq!(answers.message().await.unwrap().unwrap().request_id, 1);
    let writes = [write(), WriteRequest::default(), WriteRequest::default()];
    let mut answers = service.write(tokio_stream::iter(writes)).await.unwrap().into_inner();
    assert_eq!(answers.message().await.unwrap().unwrap().count, 1);
    assert!(answers.message().await.unwrap().is_none());
    let samples = [SampleRequest::default(), SampleRequest::default(), sample("table")];
    let mut answers = service.sample(tokio_stream::iter(samples)).await.unwrap().into_inner();
    assert_eq!(answers.message().await.unwrap().unwrap().request_id, 1);
}

/// A client sends heartbeats on its streams while a call waits there, and the call does not mind.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waits_through_heartbeats_gets_its_answer() {
    let table = queue("queue", 1);
    let server = server(vec![table.clone()]);
    let client = Client::new(&addresses(&server)[0]);
    let request = draw("queue", 1);
    let waiting = client.receive(&request, soon()).into_future();
    let fill = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        client.insert(rows("queue", &[7]), soon()).await.unwrap();
    };
    let (batch, ()) = tokio::join!(waiting, fill);
    assert_eq!(common::int64s(&batch.unwrap(), 0), [7]);
}
