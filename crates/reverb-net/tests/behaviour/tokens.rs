//! Servers with tokens: who may call what, and how calls end when a token is gone.

use crate::common::tokens::{TokensFile, by, call, channel, is_refused, token, with_header};
use crate::common::wire::{chunk, draw, insert};
use crate::common::{SOON, eventually, uniform};
use parking_lot::Mutex;
use reverb_core::words::listed;
use reverb_net::METHODS;
use reverb_net::dm_reverb::proto::SampleStreamRequest;
use reverb_net::dm_reverb::rpc::reverb_service_client::ReverbServiceClient;
use reverb_net::replay_v1::proto::{
    InfoRequest, InsertRequest, NewerRequest, SampleRequest, WriteItem, WriteRequest, sample_request,
};
use reverb_net::replay_v1::rpc::replay_client::ReplayClient;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tokio_stream::{Stream, StreamExt};
use tonic::{Code, Status, Streaming};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

const ROLES: [(&str, &str); 3] = [("viewer", "view"), ("actor", "use"), ("boss", "admin")];

/// The methods that each role may call beside those of the roles before it.
const MAY: [&[&str]; 3] = [
    &["Hello", "Info", "Observe", "ServerInfo", "InitializeConnection", "ServerReflectionInfo"],
    &[
        "Sample",
        "Peek",
        "Get",
        "Newer",
        "Insert",
        "Write",
        "Mutate",
        "Sums",
        "SampleStream",
        "InsertStream",
        "MutatePriorities",
    ],
    &["Reset", "Checkpoint", "Configure", "Bench"],
];

#[tokio::test(flavor = "multi_thread")]
async fn each_method_is_for_its_role_on_every_road() {
    let file = TokensFile::new(&ROLES);
    let server = file.server(vec![uniform("table")]);
    for over_unix in [false, true] {
        let channel = channel(&server, over_unix).await;
        for (service, method) in METHODS.into_iter().filter(|(_, method)| *method != "other") {
            let path = format!("/{service}/{method}");
            let least = MAY.iter().position(|methods| methods.contains(&method));
            for (place, caller) in ["viewer", "actor", "boss", "stranger", ""].into_iter().enumerate() {
                let result = call(&channel, &path, by(caller, ())).await;
                let expected = match least {
                    // Health, which probes ask.
                    None => None,
                    Some(_) if place > 2 => Some(Code::Unauthenticated),
                    Some(least) => (place < least).then_some(Code::PermissionDenied),
                };
                // A flood of strangers is told so.
                let refused = is_refused(&result).map(|code| match code {
                    Code::ResourceExhausted => Code::Unauthenticated,
                    code => code,
                });
                assert_eq!(refused, expected, "{path} by {caller:?}, {over_unix}: {result:?}");
            }
        }
    }
    let open = METHODS.into_iter().filter(|(_, method)| *method != "other" && !MAY.concat().contains(method));
    assert_eq!(open.collect::<Vec<_>>(), [("grpc.health.v1.Health", "Check"), ("grpc.health.v1.Health", "Watch")]);
}

#[tokio::test]
async fn a_refusal_says_what_is_missing() {
    let file = TokensFile::new(&ROLES);
    let server = file.server(vec![uniform("table")]);
    let channel = channel(&server, false).await;
    let text = |result: Result<(), Status>| result.unwrap_err().message().to_owned();
    let sample = "/reverb.replay.v1.Replay/Sample";
    assert_eq!(text(call(&channel, sample, by("viewer", ())).await), "token `viewer` has role view; Sample needs use");
    let none = text(call(&channel, sample, by("", ())).await);
    assert!(none.contains("REVERB_TOKEN"), "{none}");
    let unknown = text(call(&channel, "/reverb.replay.v1.Replay/Future", by("", ())).await);
    assert_eq!(unknown, none, "a stranger does not learn which methods there are");
    let future = call(&channel, "/reverb.replay.v1.Replay/Future", by("viewer", ())).await.unwrap_err();
    assert_eq!(future.code(), Code::Unimplemented);
    for value in ["Bearer", "Basic Ym9zcw==", &token("boss"), &format!("Bearer {} ", token("boss"))] {
        let result = call(&channel, sample, with_header(value.to_owned(), ())).await;
        assert_eq!(is_refused(&result), Some(Code::Unauthenticated), "{value}");
    }
}

/// A request that never ends, of which no message is ever sent.
fn silent<T>() -> impl Stream<Item = T> {
    tokio_stream::pending()
}

#[tokio::test]
async fn a_call_is_refused_before_its_messages_are_read() {
    let file = TokensFile::new(&ROLES);
    let server = file.server(vec![uniform("table")]);
    let mut service = ReplayClient::new(channel(&server, false).await);
    for (caller, code) in [("viewer", Code::PermissionDenied), ("", Code::Unauthenticated)] {
        let refused = timeout(SOON, service.insert(by(caller, silent::<InsertRequest>()))).await.unwrap();
        assert_eq!(refused.unwrap_err().code(), code);
        let refused = timeout(SOON, service.write(by(caller, silent::<WriteRequest>()))).await.unwrap();
        assert_eq!(refused.unwrap_err().code(), code);
    }
}

fn write(value: i64) -> WriteRequest {
    let item = WriteItem {
        table: "table".into(),
        key: value as u64,
        priority: 1.0,
        chunk_key: 1,
        rows: 1,
        ..WriteItem::default()
    };
    WriteRequest {
        writer_id: 7,
        first_sequence: 1,
        chunks: vec![chunk(1, 3)],
        items: vec![item],
        ..WriteRequest::default()
    }
}

/// Sends one message, and keeps the stream open.
fn open<T>(first: T) -> impl Stream<Item = T> {
    tokio_stream::once(first).chain(silent())
}

async fn end<T>(mut stream: Streaming<T>) -> Status {
    let last = async {
        loop {
            match stream.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream has ended without a word"),
                Err(status) => return status,
            }
        }
    };
    timeout(SOON, last).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_end_with_their_token_and_others_go_on() {
    let file = TokensFile::new(&[("actor", "use"), ("learner", "use"), ("boss", "admin")]);
    let empty = uniform("empty");
    let server = file.server(vec![uniform("table"), empty]);
    let channel = channel(&server, false).await;
    let mut service = ReplayClient::new(channel.clone());
    let waiting = || SampleRequest { request_id: 1, kind: Some(sample_request::Kind::Draw(draw("empty", 1))) };
    let newer = NewerRequest { table: "empty".into(), seen: None, ..NewerRequest::default() };
    let mut ends = Vec::new();
    for caller in ["actor", "boss"] {
        let inserts = service.insert(by(caller, open(insert(1, "table", 1)))).await.unwrap().into_inner();
        let writes = service.write(by(caller, open(write(1)))).await.unwrap().into_inner();
        let samples = service.sample(by(caller, open(waiting()))).await.unwrap().into_inner();
        let theirs = SampleStreamRequest { table: "empty".into(), num_samples: 1, ..SampleStreamRequest::default() };
        let mut dm_reverb = ReverbServiceClient::new(channel.clone());
        let dm_samples = dm_reverb.sample_stream(by(caller, open(theirs))).await.unwrap().into_inner();
        let (mut unary, newer) = (service.clone(), by(caller, newer.clone()));
        ends.push(vec![
            tokio::spawn(end(inserts)),
            tokio::spawn(end(writes)),
            tokio::spawn(end(samples)),
            tokio::spawn(end(dm_samples)),
            tokio::spawn(async move { timeout(SOON, unary.newer(newer)).await.unwrap().unwrap_err() }),
        ]);
    }
    let mut kept = service.insert(by("learner", open(insert(1, "table", 1)))).await.unwrap().into_inner();
    assert!(kept.message().await.unwrap().is_some());
    let is_open = || ends.iter().flatten().all(|end| !end.is_finished());
    eventually("all streams are open", || {
        server
            .replay()
            .connections
            .list()
            .iter()
            .any(|peer| peer.traffic.streams.load(std::sync::atomic::Ordering::Relaxed) >= 9)
    })
    .await;
    assert!(is_open());
    // One token is gone, another has a lesser role.
    file.write(&[("learner", "use"), ("boss", "use")]);
    server.reload();
    for (end, caller) in ends
        .into_iter()
        .zip(["actor", "boss"])
        .flat_map(|(ends, caller)| ends.into_iter().map(move |end| (end, caller)))
    {
        let status = end.await.unwrap();
        assert_eq!(
            (status.code(), status.message()),
            (Code::Unauthenticated, format!("token `{caller}` was removed, or has a lesser role now").as_str())
        );
    }
    assert_eq!(
        is_refused(&call(&channel, "/reverb.replay.v1.Replay/Info", by("actor", ())).await),
        Some(Code::Unauthenticated)
    );
    assert!(service.info(by("boss", InfoRequest {})).await.is_ok());
    assert!(timeout(Duration::from_millis(50), kept.message()).await.is_err(), "the stream of another goes on");
}

#[tokio::test]
async fn a_writer_belongs_to_its_token() {
    let file = TokensFile::new(&[("actor", "use"), ("rival", "use")]);
    let table = uniform("table");
    let server = file.server(vec![table.clone()]);
    let mut service = ReplayClient::new(channel(&server, false).await);
    let mut own = service.write(by("actor", open(write(1)))).await.unwrap().into_inner();
    assert!(own.message().await.unwrap().is_some());
    // The rival names the same writer, and neither takes its stream nor learns that the item is there.
    let mut others = service.write(by("rival", open(write(2)))).await.unwrap().into_inner();
    assert!(others.message().await.unwrap().is_some());
    assert_eq!(table.with_table(|table| table.len()), 2);
    assert!(timeout(Duration::from_millis(50), own.message()).await.is_err(), "its stream was taken over");
    // The owner comes back: its first item is known.
    let mut again = service.write(by("actor", open(write(3)))).await.unwrap().into_inner();
    assert!(again.message().await.unwrap().is_some());
    assert_eq!((end(own).await.code(), table.with_table(|table| table.len())), (Code::Cancelled, 2));
}

#[tokio::test]
async fn a_flood_of_wrong_tokens_is_told_so_and_locks_nobody_out() {
    let file = TokensFile::new(&ROLES);
    let server = file.server(vec![uniform("table")]);
    let channel = channel(&server, false).await;
    let mut codes = Vec::new();
    for _ in 0..300 {
        codes.push(is_refused(&call(&channel, "/reverb.replay.v1.Replay/Info", by("stranger", ())).await).unwrap());
    }
    assert!(codes.contains(&Code::ResourceExhausted) && codes[..10] == [Code::Unauthenticated; 10], "{codes:?}");
    let served = call(&channel, "/reverb.replay.v1.Replay/Info", by("viewer", ())).await;
    assert!(served.is_ok(), "{served:?}");
}

#[tokio::test]
async fn no_log_holds_a_token() {
    let seen = Seen::default();
    let _guard = tracing::subscriber::set_default(seen.clone());
    let file = TokensFile::new(&ROLES);
    let server = file.server(vec![uniform("table")]);
    let channel = channel(&server, false).await;
    for caller in ["viewer", "actor", "boss", "stranger"] {
        for method in ["Hello", "Sample", "Reset"] {
            let _refused = call(&channel, &format!("/reverb.replay.v1.Replay/{method}"), by(caller, ())).await;
        }
    }
    let seen = seen.0.lock();
    assert!(seen.contains("END_HEADERS"), "the frames of HTTP/2 are logged at this level");
    assert!(seen.contains("\"event\":\"connect\"") && seen.contains("\"event\":\"refuse\""));
    let found: Vec<_> = seen.lines().filter(|line| line.contains("secret-of")).map(str::to_owned).collect();
    assert!(found.is_empty(), "{}", listed(&found));
}

/// Everything that is logged on this thread.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<String>>);

impl Visit for &Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _infallible = writeln!(self.0.lock(), "{}={value:?}", field.name());
    }
}

impl Subscriber for Seen {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        attributes.record(&mut &*self);
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, record: &Record<'_>) {
        record.record(&mut &*self);
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut &*self);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
