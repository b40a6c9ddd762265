//! What a server counts of its connections and calls, and what it tells of its health and its services.

use crate::common::dm_reverb_client::{channel, sample, samples};
use crate::common::wire::chunk;
use crate::common::{self, Receive, SOON, addresses, draw, eventually, queue, rows, uniform};
use reverb_core::Result;
use reverb_net::client::{Client, Info, Reset};
use reverb_net::replay_v1::proto::{WriteItem, WriteRequest};
use reverb_net::server::{ListenOptions, Server};
use reverb_net::{METHODS, replay_v1};
use reverb_observe::documents::{clients, server as describe};
use reverb_observe::http::{HttpOptions, HttpServer, HttpState};
use reverb_observe::{CallCount, Calls};
use reverb_service::{DrawRequest, Peer, Replay, StreamKind, TableHandle, Transport, process_name};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_stream::{StreamExt, iter};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::{v1::ServerReflectionRequest, v1alpha};

struct Watched {
    server: Server,
    calls: Arc<Calls>,
}

fn watched(tables: Vec<TableHandle>) -> Watched {
    let (runtime, replay) = (Handle::current(), Replay::new(tables, common::MAX_MESSAGE_SIZE).unwrap());
    let state = Arc::new(HttpState::new(replay.clone(), &METHODS));
    let calls = state.calls.clone();
    let http = HttpServer::start(&runtime, state, &HttpOptions::default()).unwrap();
    let server = Server::start(&runtime, replay, &ListenOptions::default(), Some(http)).unwrap();
    Watched { server, calls }
}

impl Watched {
    fn peers(&self) -> Vec<Arc<Peer>> {
        self.server.replay().connections.list()
    }

    fn count(&self, service: &str, method: &str, code: &str) -> u64 {
        let is_it = |call: &&CallCount| (call.service, call.method, call.code) == (service, method, code);
        self.calls.counts().iter().find(is_it).map_or(0, |call| call.count)
    }

    async fn channel(&self) -> Channel {
        let address = format!("http://127.0.0.1:{}", self.server.port());
        Endpoint::from_shared(address).unwrap().connect().await.unwrap()
    }
}

fn soon() -> Option<Instant> {
    Some(Instant::now() + SOON)
}

fn items(peer: &Peer) -> (u64, u64) {
    (peer.traffic.inserts.load(Relaxed), peer.traffic.samples.load(Relaxed))
}

#[tokio::test(flavor = "multi_thread")]
async fn each_connection_counts_its_traffic_and_the_totals_survive_it() -> Result<()> {
    let watched = watched(vec![uniform("table")]);
    let connections = &watched.server.replay().connections;
    let roads = [Transport::Tcp, Transport::Unix];
    for (number, (address, road)) in addresses(&watched.server).iter().zip(roads).enumerate() {
        let client = Client::new(address);
        client.insert(rows("table", &[1; 1000]), soon()).await?;
        client.receive(&draw("table", 7), soon()).await?;
        let peers = watched.peers();
        let [peer] = peers.as_slice() else { panic!("expected one connection: {peers:?}") };
        assert_eq!((peer.name(), peer.road, items(peer)), (process_name().as_str(), road, (1000, 7)));
        let bytes = (peer.traffic.receive_bytes.load(Relaxed), peer.traffic.transmit_bytes.load(Relaxed));
        assert!(bytes.0 > 8000 && bytes.1 > 7 * 8, "{bytes:?}");
        assert_eq!(StreamKind::ALL.map(|kind| connections.num_streams(kind)), [1, 1, 0]);
        assert_eq!(peer.traffic.streams.load(Relaxed), 2);
        assert_eq!(connections.totals()[number].open, 1);

        drop(client);
        eventually("the connection is closed", || connections.list().is_empty()).await;
        eventually("its streams have ended", || StreamKind::ALL.iter().all(|&kind| connections.num_streams(kind) == 0))
            .await;
        let total = connections.totals()[number];
        assert_eq!((total.transport, total.open, total.opened), (road, 0, 1));
        assert!(total.receive_bytes >= bytes.0 && total.transmit_bytes >= bytes.1, "{total:?}");
    }
    let document = describe(watched.server.replay());
    let totals = connections.totals();
    assert_eq!(document.receive_bytes, totals[0].receive_bytes + totals[1].receive_bytes);
    assert_eq!(document.connections, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_in_the_same_process_are_one_client_without_a_connection() -> Result<()> {
    let watched = watched(vec![queue("table", 10)]);
    let client = Client::new(&format!("localhost:{}", watched.server.port()));
    client.insert(rows("table", &[1, 2, 3]), soon()).await?;
    client.receive(&draw("table", 2), soon()).await?;
    assert!(watched.peers().is_empty());
    let [here] = clients(watched.server.replay()).clients.try_into().unwrap();
    assert_eq!((here.transport, here.inserts, here.samples), ("same_process", 3, 2));
    assert_eq!(here.name, process_name());
    let replay = watched.server.replay();
    let table = &replay.tables()[0];
    let item = table.sample(DrawRequest::exactly(1), replay.this_process());
    let waiting: Vec<_> = (0..100).map(|_| table.sample(DrawRequest::exactly(1), replay.this_process())).collect();
    let [here] = clients(replay).clients.try_into().unwrap();
    assert_eq!(here.waits.iter().map(|wait| wait.count).collect::<Vec<_>>(), [100], "all are counted");
    drop((item, waiting));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn items_of_writers_and_of_clients_of_dm_reverb_are_counted() {
    let watched = watched(vec![uniform("table")]);
    let mut writers = common::wire::connect(watched.server.port()).await;
    let item =
        |key| WriteItem { table: "table".into(), key, priority: 1.0, chunk_key: 1, rows: 1, ..WriteItem::default() };
    let request = WriteRequest {
        writer_id: 7,
        first_sequence: 1,
        chunks: vec![chunk(1, 3)],
        items: vec![item(1), item(2), item(3)],
        ..WriteRequest::default()
    };
    let stream = tokio_stream::StreamExt::chain(iter([request]), tokio_stream::pending());
    let mut answers = writers.write(stream).await.unwrap().into_inner();
    assert_eq!(answers.message().await.unwrap().unwrap().count, 3);
    assert_eq!(items(&watched.peers()[0]), (3, 0));
    assert_eq!(watched.server.replay().connections.num_streams(StreamKind::Write), 1);

    let mut service = common::dm_inserts::connect(watched.server.port()).await;
    let item = common::dm_inserts::item("table", 9, 1);
    let request = common::dm_inserts::request(&[common::dm_inserts::chunk(1, &[1])], &[item], &[]);
    let (keys, status) = common::dm_inserts::talk(&mut service, vec![request]).await;
    assert_eq!((keys.as_slice(), status.is_none()), ([9].as_slice(), true));
    let mut stream =
        samples::<reverb_formats::proto::schema::SampleStreamResponse>(&channel(watched.server.port()).await).await;
    stream.send(sample("table", 5, None));
    stream.answer().await.unwrap();
    let counts: Vec<_> = watched.peers().iter().map(|peer| (peer.name().to_owned(), items(peer))).collect();
    assert_eq!(counts[1], ("dm-reverb".into(), (1, 0)));
    assert_eq!(counts[2].0, "dm-reverb");
    assert!(counts[2].1.0 == 0 && counts[2].1.1 >= 1, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_counted_by_method_and_result() -> Result<()> {
    const REPLAY: &str = "reverb.replay.v1.Replay";
    let watched = watched(vec![uniform("table")]);
    let client = Client::new(&addresses(&watched.server)[0]);
    client.insert(rows("table", &[1]), soon()).await?;
    client.call(Info, soon()).await?;
    client.call(Reset { table: "unknown" }, soon()).await.unwrap_err();
    // A call is counted when its answer has been sent, which the client may have before that.
    for (method, result) in [("Hello", "OK"), ("Info", "OK"), ("Reset", "NotFound")] {
        eventually("the call is counted", || watched.count(REPLAY, method, result) == 1).await;
    }
    assert_eq!(watched.count(REPLAY, "Insert", "OK"), 0, "the stream is open");
    drop(client);
    // The client has opened both.
    for method in ["Insert", "Sample"] {
        eventually("the stream has ended", || {
            watched.count(REPLAY, method, "OK") + watched.count(REPLAY, method, "Canceled") == 1
        })
        .await;
    }

    let before = watched.calls.counts().len();
    let mut grpc = tonic::client::Grpc::new(watched.channel().await);
    for number in 0..200 {
        for path in [format!("/{REPLAY}/Method{number}"), format!("/service{number}.Unknown/Insert")] {
            grpc.ready().await.unwrap();
            let codec = tonic_prost::ProstCodec::<HealthCheckRequest, HealthCheckRequest>::default();
            let path = path.parse().unwrap();
            let status = grpc.unary(Request::new(HealthCheckRequest::default()), path, codec).await.unwrap_err();
            assert_eq!(status.code(), Code::Unimplemented);
        }
    }
    for service in [REPLAY, "other"] {
        eventually("all calls are counted", || watched.count(service, "other", "Unimplemented") == 200).await;
    }
    assert_eq!(watched.calls.counts().len(), before + 2, "{:?}", watched.calls.counts());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_told_until_the_server_stops() {
    let mut watched = watched(vec![queue("table", 1)]);
    let mut health = HealthClient::new(watched.channel().await);
    let request = |service: &str| HealthCheckRequest { service: service.into() };
    let mut watches = Vec::new();
    for service in ["", "reverb.replay.v1.Replay", "deepmind.reverb.ReverbService"] {
        let status = health.check(request(service)).await.unwrap().into_inner().status();
        assert_eq!(status, ServingStatus::Serving, "{service}");
        let mut watch = health.watch(request(service)).await.unwrap().into_inner();
        assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
        watches.push(watch);
    }
    assert_eq!(health.check(request("unknown")).await.unwrap_err().code(), Code::NotFound);
    let mut unknown = health.watch(request("unknown")).await.unwrap().into_inner();
    assert_eq!(unknown.message().await.unwrap().unwrap().status(), ServingStatus::ServiceUnknown);

    tokio::task::block_in_place(|| watched.server.stop()).unwrap();
    for watch in &mut watches {
        let last = timeout(SOON, watch.message()).await.unwrap().unwrap().unwrap();
        assert_eq!(last.status(), ServingStatus::NotServing);
        assert!(timeout(SOON, watch.message()).await.unwrap().unwrap().is_none(), "the stream ends well");
    }
}

/// Health is for strangers too, of whom a server with tokens keeps nothing large.
#[tokio::test(flavor = "multi_thread")]
async fn health_reads_no_large_messages() {
    let watched = watched(vec![queue("table", 1)]);
    let mut health = HealthClient::new(watched.channel().await);
    let request = |size| HealthCheckRequest { service: "s".repeat(size) };
    assert_eq!(health.check(request(512)).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(health.check(request(4096)).await.unwrap_err().code(), Code::OutOfRange);
    assert_eq!(health.watch(request(4096)).await.unwrap_err().code(), Code::OutOfRange);
}

/// Such headers refuse calls of the service itself; see `same_server`.
#[tokio::test(flavor = "multi_thread")]
async fn health_and_reflection_answer_clients_of_other_servers() {
    let watched = watched(vec![queue("table", 1)]);
    let mut request = Request::new(HealthCheckRequest::default());
    request.metadata_mut().insert("reverb-server", "00112233445566778899aabbccddeeff".parse().unwrap());
    let mut hello = Request::new(replay_v1::proto::InfoRequest::default());
    hello.metadata_mut().insert("reverb-server", "00112233445566778899aabbccddeeff".parse().unwrap());
    let refused = common::wire::connect(watched.server.port()).await.info(hello).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
    HealthClient::new(watched.channel().await).check(request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn reflection_lists_all_services_and_finds_messages() {
    let watched = watched(vec![queue("table", 1)]);
    let mut reflection = ServerReflectionClient::new(watched.channel().await);
    let (requests, stream) = mpsc::unbounded_channel();
    let answers = reflection.server_reflection_info(UnboundedReceiverStream::new(stream)).await.unwrap();
    let mut answers = answers.into_inner();
    let mut ask = async |message_request| {
        let message_request = Some(message_request);
        requests.send(ServerReflectionRequest { host: String::new(), message_request }).unwrap();
        answers.next().await.unwrap().unwrap().message_response.unwrap()
    };
    let MessageResponse::ListServicesResponse(list) = ask(MessageRequest::ListServices(String::new())).await else {
        panic!("no list")
    };
    let names: BTreeSet<_> = list.service.iter().map(|service| service.name.as_str()).collect();
    for name in ["reverb.replay.v1.Replay", "deepmind.reverb.ReverbService", "grpc.health.v1.Health"] {
        assert!(names.contains(name), "{names:?}");
    }
    for symbol in ["reverb.replay.v1.InsertRequest", "deepmind.reverb.ChunkData", "tensorflow.TensorProto"] {
        let MessageResponse::FileDescriptorResponse(files) =
            ask(MessageRequest::FileContainingSymbol(symbol.into())).await
        else {
            panic!("{symbol} was not found")
        };
        assert!(!files.file_descriptor_proto[0].is_empty());
    }
    // The predecessor that older tools ask.
    let mut old = v1alpha::server_reflection_client::ServerReflectionClient::new(watched.channel().await);
    let list = v1alpha::server_reflection_request::MessageRequest::ListServices(String::new());
    let request = v1alpha::ServerReflectionRequest { host: String::new(), message_request: Some(list) };
    let mut answers = old.server_reflection_info(iter([request])).await.unwrap().into_inner();
    answers.next().await.unwrap().unwrap().message_response.unwrap();
}
