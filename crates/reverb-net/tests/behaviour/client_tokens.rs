//! What clients with a token show to whom, and what they do when they are refused.

use crate::common::gate::Gate;
use crate::common::{self, Receive, SOON, draw, eventually, queue, rows, server, uniform};
use reverb_core::writer::{ChunkCompression, ColumnOptions, ColumnValue, StepBuffer, StreamChunks, Value, WriterItem};
use reverb_core::{DType, Error, KeySlots};
use reverb_net::Endpoint;
use reverb_net::client::writer::{Session, SessionOptions};
use reverb_net::client::{Client, Info, Mutate, Peek, health};
use reverb_net::server::Server;
use reverb_secure::{Secret, TokenSource};
use std::collections::BTreeSet;
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio::runtime::Handle;
use tonic::Code;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

const TOKEN: &str = "rvb_the-token-of-the-test";

fn soon() -> Option<Instant> {
    Some(Instant::now() + SOON)
}

fn with_token(address: &str) -> Endpoint {
    Endpoint { token: Some(TokenSource::Given(Secret::from(TOKEN.to_owned()))), ..Endpoint::from(address) }
}

/// An endpoint whose token may be sent to the gate.
fn through(gate: &Gate) -> Endpoint {
    Endpoint { allow_insecure: true, ..with_token(&format!("ipv4:127.0.0.1:{}", gate.port)) }
}

/// A server, and a gate before it that lets nobody in yet.
async fn gated(hides_ours: bool) -> (Server, Gate) {
    let server = server(vec![uniform("table"), queue("empty", 10)]);
    let gate = Gate::before(server.port(), hides_ours).await;
    (server, gate)
}

/// A writer of items of one step.
struct Writer {
    steps: StepBuffer,
    session: Arc<Session>,
}

impl Writer {
    fn new(endpoint: Endpoint) -> Self {
        let dropped = StreamChunks::default();
        let options = ColumnOptions { num_keep_alive_refs: 1, max_chunk_length: Some(1) };
        let steps = StepBuffer::new(options, ChunkCompression::default(), dropped.clone()).unwrap();
        let options = SessionOptions { reconnect_timeout: SOON, ..SessionOptions::default() };
        Self { steps, session: Arc::new(Session::new(Arc::new(Client::new(endpoint)), options, dropped)) }
    }

    async fn write(&mut self) -> Result<(), Error> {
        let value = Value { dtype: DType::Int64, shape: &[], bytes: &1_i64.to_le_bytes() };
        self.steps.append(&[ColumnValue { column: 0, value, opens_rows: false }], false).unwrap();
        let rows = self.steps.num_rows();
        let column = self.steps.select(0, rows - 1..rows, false).unwrap();
        let item =
            WriterItem::new("table".into(), 1.0, [column].into(), self.steps.writer(), KeySlots::ALL, None).unwrap();
        self.session.push(&Handle::current(), [item])?;
        self.session.flush(0, soon(), |_| {}).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_call_of_either_protocol_and_each_probe_shows_the_token() {
    for (hides_ours, service) in [(false, "reverb.replay.v1.Replay"), (true, "deepmind.reverb.ReverbService")] {
        let (_server, gate) = gated(hides_ours).await;
        gate.let_in(TOKEN);
        let client = Client::new(through(&gate));
        client.insert(rows("table", &[1]), soon()).await.unwrap();
        client.receive(&draw("table", 1), soon()).await.unwrap();
        client.call(Mutate::new("table", &[(1, 2.0)], &[]), soon()).await.unwrap();
        assert_eq!(client.call(Info, soon()).await.unwrap().len(), 2);
        Writer::new(through(&gate)).write().await.unwrap();
        assert!(health::is_serving(&through(&gate), "", SOON).await.unwrap());
        let calls = gate.calls();
        for call in &calls {
            assert_eq!(call.bearer, Some(format!("Bearer {TOKEN}")), "{}", call.path);
        }
        let methods: BTreeSet<_> =
            calls.iter().filter_map(|call| call.path.strip_prefix(&format!("/{service}/"))).collect();
        let expected: &[_] = if hides_ours {
            &["InsertStream", "MutatePriorities", "SampleStream", "ServerInfo"]
        } else {
            &["Hello", "Info", "Insert", "Mutate", "Sample", "Write"]
        };
        assert_eq!(methods.into_iter().collect::<Vec<_>>(), expected);
        assert!(calls.iter().any(|call| call.path.starts_with("/grpc.health.v1.Health/")));
    }
}

/// Whether an error is the refusal with which the gate answers.
fn assert_refused(error: &Error, code: Code) {
    match code {
        Code::Unauthenticated => assert!(matches!(error, Error::Unauthenticated(_)), "{error:?}"),
        _ => assert!(matches!(error, Error::PermissionDenied(_)), "{error:?}"),
    }
    assert!(!error.is_transient() && error.to_string().contains("the gate is closed"), "{error}");
    assert!(!error.to_string().contains(TOKEN), "{error}");
}

const REFUSALS: [Code; 2] = [Code::Unauthenticated, Code::PermissionDenied];

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_refused_asks_once_and_tries_nothing_instead() {
    for code in REFUSALS {
        let (_server, gate) = gated(false).await;
        gate.refuse(code);
        let (client, request) = (Client::new(through(&gate)), draw("table", 1));
        let errors = [
            client.insert(rows("table", &[1]), None).await.map(drop),
            client.receive(&request, None).await.map(drop),
            client.receive_persistently(&request, None, SOON).await.map(drop),
            client.begin_sample(&request, None, None, false).await.map(drop),
            client.call(Info, None).await.map(drop),
            client.call(Peek { table: "table", count: 1, newest: true }, None).await.map(drop),
            health::is_serving(&through(&gate), "", SOON).await.map(drop),
            Writer::new(through(&gate)).write().await,
        ];
        let calls = gate.calls();
        assert_eq!(calls.len(), errors.len());
        errors.into_iter().for_each(|result| assert_refused(&result.unwrap_err(), code));
        assert!(calls.iter().all(|call| !call.path.contains("deepmind")), "{calls:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_ends_streams_that_run_and_the_next_call_shows_the_token_again() {
    for (hides_ours, code) in [(false, REFUSALS[0]), (false, REFUSALS[1]), (true, REFUSALS[0]), (true, REFUSALS[1])] {
        let (server, gate) = gated(hides_ours).await;
        gate.let_in(TOKEN);
        let client = Arc::new(Client::new(through(&gate)));
        let mut writer = Writer::new(through(&gate));
        writer.write().await.unwrap();
        let waiting: Vec<_> = [false, true]
            .map(|persists| {
                let client = client.clone();
                tokio::spawn(async move {
                    let request = draw("empty", 1);
                    match persists {
                        true => client.receive_persistently(&request, None, SOON).await.map(drop),
                        false => client.receive(&request, None).await.map(drop),
                    }
                })
            })
            .into();
        let waits = || server.replay().tables()[1].status().info.waiting_samples;
        eventually("both draws wait", || waits() == Some(2)).await;
        gate.refuse(code);
        for draw in waiting {
            assert_refused(&draw.await.unwrap().unwrap_err(), code);
        }
        let ended = async {
            loop {
                if let Err(error) = writer.write().await {
                    return error;
                }
            }
        };
        assert_refused(&ended.await, code);
        assert_refused(&client.insert(rows("table", &[1]), None).await.unwrap_err(), code);
        gate.let_in(TOKEN);
        client.insert(rows("table", &[1]), soon()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_in_a_file_is_read_for_each_connection() {
    let (_server, gate) = gated(false).await;
    let path = std::env::temp_dir().join(format!("reverb-net-token-{}", std::process::id()));
    let endpoint = Endpoint { token: Some(TokenSource::File(path.clone())), ..through(&gate) };
    let missing = Client::new(endpoint.clone()).call(Info, None).await.map(drop).unwrap_err();
    assert!(missing.to_string().contains(path.to_str().unwrap()), "{missing}");
    std::fs::write(&path, "rvb_old").unwrap();
    gate.let_in("rvb_old");
    let client = Client::new(endpoint);
    client.call(Info, None).await.unwrap();
    gate.refuse(Code::Unauthenticated);
    std::fs::write(&path, "rvb_new\n").unwrap();
    gate.let_in("rvb_new");
    let answers = async { while client.call(Info, None).await.is_err() {} };
    tokio::time::timeout(SOON, answers).await.unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(gate.calls().last().unwrap().bearer.as_deref(), Some("Bearer rvb_new"));
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_go_on_with_the_new_token_of_the_file_when_the_old_one_is_revoked() {
    let (server, gate) = gated(false).await;
    let path = std::env::temp_dir().join(format!("reverb-net-rotated-{}", std::process::id()));
    std::fs::write(&path, "rvb_old").unwrap();
    gate.let_in("rvb_old");
    let endpoint = Endpoint { token: Some(TokenSource::File(path.clone())), ..through(&gate) };
    let mut writer = Writer::new(endpoint.clone());
    writer.write().await.unwrap();
    let client = Client::new(endpoint);
    let drawing = tokio::spawn(async move {
        client.receive_persistently(&draw("empty", 1), None, SOON).await.map(|batch| common::int64s(&batch, 0))
    });
    let waits = || server.replay().tables()[1].status().info.waiting_samples;
    eventually("the draw waits", || waits() == Some(1)).await;
    std::fs::write(&path, "rvb_new").unwrap();
    gate.let_in("rvb_new");
    writer.write().await.unwrap();
    Client::new(&common::addresses(&server)[0]).insert(rows("empty", &[1]), soon()).await.unwrap();
    assert_eq!(drawing.await.unwrap().unwrap(), [1]);
    // A file without a token that the server knows is final again.
    std::fs::write(&path, "rvb_wrong").unwrap();
    gate.refuse(Code::Unauthenticated);
    let ended = async {
        loop {
            if let Err(error) = writer.write().await {
                return error;
            }
        }
    };
    assert_refused(&ended.await, Code::Unauthenticated);
    std::fs::remove_file(&path).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_not_sent_without_tls_unless_that_is_allowed() {
    let (_server, gate) = gated(false).await;
    gate.let_in(TOKEN);
    let port = gate.port;
    let addresses = [
        format!("ipv4:127.0.0.1:{port}"),
        format!("localhost:{port}"),
        format!("dns:///localhost:{port}"),
        format!("ipv4:127.0.0.1:{port},127.0.0.2:{port}"),
    ];
    for address in addresses {
        let client = Client::new(with_token(&address));
        let errors = [
            client.call(Info, None).await.map(drop).unwrap_err(),
            client.insert(rows("table", &[1]), None).await.map(drop).unwrap_err(),
            client.receive_persistently(&draw("table", 1), None, SOON).await.map(drop).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, Error::InvalidArgument(_)), "{address}: {error:?}");
            let text = error.to_string();
            assert!(text.contains("grpcs://") && text.contains("allow_insecure=True"), "{text}");
            assert!(!text.contains(TOKEN), "{text}");
        }
    }
    assert!(gate.calls().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_a_token_is_told_how_to_give_one() {
    let (_server, gate) = gated(false).await;
    let endpoint = Endpoint { token: None, ..through(&gate) };
    let asked = [
        Client::new(endpoint.clone()).call(Info, None).await.map(drop).unwrap_err(),
        health::is_serving(&endpoint, "", Duration::from_secs(60)).await.map(drop).unwrap_err(),
    ];
    for error in asked {
        assert_refused(&error, Code::Unauthenticated);
        assert!(error.to_string().contains("REVERB_TOKEN_FILE"), "{error}");
    }
    assert!(gate.calls().iter().all(|call| call.bearer.is_none()));
}

/// Keeps all that is logged, at any level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Visit for Log {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        writeln!(self.0.lock().unwrap(), "{field}: {value:?}").unwrap();
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        attributes.record(&mut self.clone());
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut self.clone());
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The other end is no program of HTTP/2: that would log what it reads, in this process.
#[test]
fn no_log_at_any_level_has_the_token_and_no_table_of_http_2() {
    let log = Log::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let received = tracing::subscriber::with_default(log.clone(), || {
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = format!("ipv4:{}", listener.local_addr().unwrap());
            let client = Client::new(Endpoint { allow_insecure: true, ..with_token(&address) });
            let calling = tokio::spawn(async move { client.call(Info, soon()).await.map(drop) });
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut received = Vec::new();
            // The header is never indexed, and its name is number 23 of the table that each end knows.
            while !received.windows(2).any(|bytes| bytes == [0x1f, 0x08]) {
                assert_ne!(stream.read_buf(&mut received).await.unwrap(), 0);
            }
            calling.abort();
            received
        })
    });
    assert!(!received.windows(TOKEN.len()).any(|bytes| bytes == TOKEN.as_bytes()), "HTTP/2 packs texts");
    let log = log.0.lock().unwrap();
    assert!(log.contains("frame: Headers"), "HTTP/2 logs what it sends: {log}");
    assert!(!log.contains(TOKEN) && !log.contains("Bearer"), "{log}");
}
