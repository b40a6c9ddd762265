//! Our client and a server of dm-reverb that answers as a test tells it.

use crate::common::dm_reverb::{
    Answer, Running, Then, chunk, chunk_of, info, numbers, responses, sample, serve, snappy, table, tensor,
};
use crate::common::{Receive, SOON, draw, eventually, int64s, uniform};
use reverb_core::Error;
use reverb_net::client::{Checkpoint, Client, Get, Info, Mutate, Newer, Observe, Peek, Reset};
use reverb_net::dm_reverb::proto::sample_stream_response::SampleEntry;
use reverb_net::dm_reverb::proto::{SampleStreamRequest, SampleStreamResponse};
use reverb_net::server::{ListenOptions, Server};
use reverb_service::{BatchRequest, DrawRequest, Replay};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tonic::Status;

const SHORT: Duration = Duration::from_millis(50);

async fn start(script: impl Fn(usize, &SampleStreamRequest) -> Answer + Send + Sync + 'static) -> (Running, Client) {
    let server = serve(0, vec![table("queue", true), table("table", false)], script).await;
    let client = Client::new(&server.address());
    (server, client)
}

fn soon() -> Option<Instant> {
    Some(Instant::now() + SOON)
}

fn response(entries: Vec<SampleEntry>) -> SampleStreamResponse {
    SampleStreamResponse { entries }
}

fn values(values: impl IntoIterator<Item = i64>) -> SampleStreamResponse {
    response(values.into_iter().map(|value| sample(value, 1)).collect())
}

#[tokio::test]
async fn the_reference_is_asked_only_after_our_service_was_refused_on_the_same_connection() {
    let (server, client) = start(numbers).await;
    let statuses = client.call(Info, soon()).await.unwrap();
    assert_eq!(client.road_name().unwrap(), "tcp (dm-reverb)");
    let names: Vec<_> = statuses.iter().map(|status| (&*status.info.config.name, status.info.current_size)).collect();
    assert_eq!(names, [("queue", 3), ("table", 3)]);
    assert!(statuses.iter().all(|status| status.info.size_bytes.is_none() && status.insert_wait.is_none()));
    let calls = server.log.lock().calls.clone();
    let (connection, _) = calls.iter().find(|(_, path)| path == "/deepmind.reverb.ReverbService/ServerInfo").unwrap();
    let first = calls.iter().find(|(client, _)| client == connection).unwrap();
    assert_eq!(first.1, "/reverb.replay.v1.Replay/Hello");
    let others = calls.iter().filter(|(client, _)| client != connection);
    assert!(others.into_iter().all(|(_, path)| path == "/reverb.replay.v1.Replay/Hello"), "{calls:?}");
}

#[tokio::test]
async fn samples_arrive_whole_however_the_server_splits_them() {
    let (_server, client) = start(|_, _| {
        let part = |info, data, end_of_sequence| SampleEntry { info, data, end_of_sequence };
        let split = info(9, &[vec![(1, 1, 2, 0), (2, 0, 1, 0)]]);
        responses(vec![
            response(vec![part(Some(split), vec![], false)]),
            response(vec![part(None, vec![chunk(2, &[30, 40])], false), part(None, vec![], false)]),
            response(vec![part(None, vec![chunk(1, &[0, 10, 20])], true), sample(50, 3)]),
        ])
    })
    .await;
    let batch = client.receive(&draw("table", 2), soon()).await.unwrap();
    assert_eq!(int64s(&batch, 0), [10, 20, 30, 50, 51, 52]);
    assert_eq!(batch.info.keys(), [9, 51]);
    assert_eq!((batch.info.probabilities()[0], batch.info.priorities()[0]), (0.25, 0.5));
    assert_eq!((batch.info.table_sizes()[0], batch.info.times_sampled()[0]), (3, 7));
}

#[tokio::test]
async fn a_stream_that_ends_early_is_opened_again_for_the_rest() {
    let (server, client) = start(|number, _| match number {
        0 => Answer { responses: vec![values([1])], then: Then::End },
        1 => Answer {
            responses: vec![response(vec![SampleEntry { end_of_sequence: false, ..sample(9, 1) }])],
            then: Then::End,
        },
        _ => responses(vec![values([2, 3])]),
    })
    .await;
    let batch = client.receive(&draw("queue", 3), soon()).await.unwrap();
    assert_eq!(int64s(&batch, 0), [1, 2, 3]);
    let log = server.log.lock();
    assert_eq!(log.requests.iter().map(|request| request.num_samples).collect::<Vec<_>>(), [3, 2, 2]);
}

#[tokio::test]
async fn draws_ask_for_more_only_where_that_takes_nothing_from_others() {
    let (server, client) = start(numbers).await;
    let request = |table: &str| BatchRequest {
        draw: DrawRequest { at_least: 2, at_most: 5, ahead: 10, is_ahead: false },
        ..draw(table, 1)
    };
    assert_eq!(client.receive(&request("queue"), soon()).await.unwrap().info.len(), 2);
    assert_eq!(client.receive(&request("table"), None).await.unwrap().info.len(), 15);
    let log = server.log.lock();
    assert_eq!(log.requests.iter().map(|request| request.num_samples).collect::<Vec<_>>(), [2, 15]);
    let timeouts = log.requests.iter().map(|request| request.rate_limiter_timeout.unwrap().milliseconds);
    assert!(timeouts.zip([1..=60_000, -1..=-1]).all(|(timeout, range)| range.contains(&timeout)));
    assert_eq!(log.streams[0], log.streams[1], "the second draw uses the stream of the first");
}

#[tokio::test]
async fn a_deadline_that_has_passed_is_not_a_wait_without_end() {
    let (server, client) = start(|_, request| match request.table.as_str() {
        "queue" => {
            let text = "Rate Limiter: Timeout exceeded before the right to insert was acquired.";
            Answer { responses: vec![], then: Then::Fail(Status::deadline_exceeded(text)) }
        }
        _ => Answer { responses: vec![], then: Then::Hang },
    })
    .await;
    client.call(Info, soon()).await.unwrap();
    for table in ["queue", "table"] {
        let error = client.receive(&draw(table, 1), Some(Instant::now())).await.unwrap_err();
        assert!(
            matches!(&error, Error::DeadlineExceeded(text) if text.ends_with("before the right to insert was acquired.")),
            "{error:?}"
        );
    }
    let log = server.log.lock();
    assert!(log.requests.iter().all(|request| request.rate_limiter_timeout.unwrap().milliseconds == 1));
}

#[tokio::test]
async fn samples_that_come_after_the_deadline_are_given_to_the_next_draw() {
    let told = Arc::new(Notify::new());
    let tell = told.clone();
    let (_server, client) = start(move |number, _| match number {
        0 => Answer { responses: vec![values([1])], then: Then::When(told.clone(), vec![values([2, 3])]) },
        _ => Answer { responses: vec![], then: Then::Fail(Status::deadline_exceeded("not now")) },
    })
    .await;
    client.call(Info, soon()).await.unwrap();
    let late = client.receive(&draw("queue", 3), Some(Instant::now() + SHORT)).await.unwrap();
    assert_eq!(int64s(&late, 0), [1]);
    // A draw that waits meanwhile gets them, although it has no request of its own at the server.
    let mut next = client.begin_sample(&draw("queue", 2), soon(), None, false).await.unwrap();
    assert!(!next.is_ready());
    tell.notify_one();
    assert_eq!(int64s(&next.result().await.unwrap(), 0), [2, 3]);
}

#[tokio::test]
async fn samples_that_do_not_fit_together_are_drawn_one_by_one_afterwards() {
    let (server, client) = start(|_, _| {
        let bytes = chunk_of(7, &[tensor(4, &[1], &snappy(&[5]))]);
        let other =
            SampleEntry { info: Some(info(7, &[vec![(7, 0, 1, 0)]])), data: vec![bytes], end_of_sequence: true };
        responses(vec![response(vec![sample(1, 1), other])])
    })
    .await;
    let error = client.receive(&draw("queue", 2), soon()).await.unwrap_err();
    assert!(matches!(&error, Error::InvalidArgument(text) if text.contains("cannot be stacked")), "{error:?}");
    for key in [2, 7] {
        assert_eq!(client.receive(&draw("queue", 1), soon()).await.unwrap().info.keys(), [key]);
    }
    assert_eq!(server.log.lock().requests.len(), 1);
}

#[tokio::test]
async fn draws_from_a_queue_keep_its_order_however_many_begin_together() {
    let (_server, client) = start(|number, request| {
        let first = number as i64 * request.num_samples;
        responses(vec![values(first..first + request.num_samples)])
    })
    .await;
    let request = draw("queue", 4);
    let mut pending = Vec::new();
    for _ in 0..8 {
        pending.push(client.begin_sample(&request, soon(), None, false).await.unwrap());
    }
    let mut drawn = Vec::new();
    for mut draw in pending {
        drawn.extend(int64s(&draw.result().await.unwrap(), 0));
        draw.received(false).unwrap();
    }
    assert_eq!(drawn, (0..32).collect::<Vec<_>>());
}

#[tokio::test]
async fn draws_that_take_nothing_from_others_are_under_way_together() {
    let (server, client) = start(|number, request| match number {
        0 => Answer { responses: vec![], then: Then::Hang },
        _ => numbers(number, request),
    })
    .await;
    let request = draw("table", 1);
    let waiting = client.begin_sample(&request, None, soon(), false).await.unwrap();
    eventually("the first request is there", || server.log.lock().requests.len() == 1).await;
    client.receive(&request, soon()).await.unwrap();
    let closed = || server.log.lock().closed;
    assert_eq!(closed(), 0);
    drop(waiting);
    eventually("a withdrawn draw ends its stream", || closed() == 1).await;
    client.receive(&request, soon()).await.unwrap();
}

#[tokio::test]
async fn a_key_alone_does_not_identify_a_chunk() {
    let (_server, client) = start(|number, _| {
        let value = if number < 2 { 10 } else { 20 };
        let entry = SampleEntry { data: vec![chunk(1, &[value])], ..sample(0, 1) };
        responses(vec![response(vec![entry])])
    })
    .await;
    for value in [10, 10, 20] {
        assert_eq!(int64s(&client.receive(&draw("table", 1), soon()).await.unwrap(), 0), [value]);
    }
}

/// Samples that cannot be used, each with a part of the error.
fn hostile() -> Vec<(&'static str, Vec<SampleEntry>)> {
    let whole = |info, data| SampleEntry { info: Some(info), data, end_of_sequence: true };
    let slice = |key, offset, length, index| info(5, &[vec![(key, offset, length, index)]]);
    let good = || chunk(1, &[1, 2, 3]);
    let tensor_of = |dtype, dims: &[u64], content: &[u8]| vec![chunk_of(1, &[tensor(dtype, dims, content)])];
    let mut bomb = vec![0x80, 0x80, 0x80, 0x80, 0x04];
    bomb.extend([0; 100]);
    vec![
        ("more samples than it was asked for", vec![sample(1, 1), sample(2, 1)]),
        ("no description", vec![SampleEntry { info: None, ..sample(1, 1) }]),
        ("without its last part", vec![SampleEntry { end_of_sequence: false, ..sample(1, 1) }, sample(1, 1)]),
        ("chunk 2 is missing", vec![whole(slice(2, 0, 1, 0), vec![good()])]),
        ("Cannot slice (2, 4)", vec![whole(slice(1, 2, 2, 0), vec![good()])]),
        ("not a valid number of a row", vec![whole(slice(1, -1, 1, 0), vec![good()])]),
        ("must not be empty", vec![whole(slice(1, 0, 0, 0), vec![good()])]),
        ("column 1 in chunk 1", vec![whole(slice(1, 0, 1, 1), vec![good()])]),
        ("trajectory is missing", vec![whole(Default::default(), vec![good()])]),
        ("must not be empty", vec![whole(info(5, &[]), vec![good()])]),
        (
            "different dtypes",
            vec![whole(
                info(5, &[vec![(1, 0, 1, 0), (2, 0, 1, 0)]]),
                vec![good(), chunk_of(2, &[tensor(4, &[1], &snappy(&[5]))])],
            )],
        ),
        ("require 16 bytes", vec![whole(slice(1, 0, 1, 0), tensor_of(9, &[2], &snappy(&[0; 8])))]),
        ("cannot decompress", vec![whole(slice(1, 0, 1, 0), tensor_of(4, &[1 << 30], &bomb))]),
        ("more than the", vec![whole(slice(1, 0, 1, 0), tensor_of(4, &[1 << 31], &bomb))]),
        ("Snappy", vec![whole(slice(1, 0, 1, 0), tensor_of(4, &[4], &[4, 0xff, 0, 0]))]),
        ("has no tensors", vec![whole(slice(1, 0, 1, 0), vec![chunk_of(1, &[])])]),
        ("invalid message", vec![whole(slice(1, 0, 1, 0), vec![vec![0x0f; 9].into()])]),
    ]
}

#[tokio::test]
async fn samples_that_cannot_be_used_are_errors_and_the_client_goes_on() {
    let (_server, client) = start(|number, request| match hostile().into_iter().nth(number) {
        Some((_, entries)) => responses(vec![response(entries)]),
        None => numbers(number, request),
    })
    .await;
    let mut unexpected = Vec::new();
    for (expected, _) in hostile() {
        match client.receive(&draw("table", 1), soon()).await.unwrap_err() {
            Error::DataLoss(text) if text.contains(expected) => {}
            error => unexpected.push((expected, error)),
        }
    }
    assert!(unexpected.is_empty(), "{unexpected:?}");
    client.receive(&draw("table", 1), soon()).await.unwrap();
}

#[tokio::test]
async fn samples_that_nobody_asked_for_end_their_stream() {
    let (server, client) = start(|number, request| match number {
        0 => responses(vec![values([1]), values([2])]),
        _ => numbers(number, request),
    })
    .await;
    let begun = Instant::now();
    // They may arrive only after the stream was checked.
    while server.log.lock().closed == 0 {
        assert!(begun.elapsed() < SOON);
        client.receive(&draw("table", 1), soon()).await.unwrap();
    }
}

#[tokio::test]
async fn a_draw_finds_the_next_server_at_the_address_whichever_it_is() {
    let (server, client) = start(numbers).await;
    let (port, request) = (server.port, draw("table", 1));
    client.receive(&request, soon()).await.unwrap();
    drop(server);
    let drawing = client.receive_persistently(&request, soon(), SOON);
    let starting = serve(port, vec![table("table", false)], numbers);
    let (batch, server) = tokio::join!(drawing, starting);
    assert_eq!(batch.unwrap().info.len(), 1);

    drop(server);
    eventually("the client notices", || client.connection().is_none()).await;
    let ours = loop {
        let replay = Replay::new(vec![uniform("table")], 1 << 20).unwrap();
        let options = ListenOptions { port: Some(port), ..ListenOptions::default() };
        match Server::start(&Handle::current(), replay, &options, None) {
            Ok(server) => break server,
            Err(_) => tokio::time::sleep(SHORT).await,
        }
    };
    let remote = Client::new(&format!("ipv4:127.0.0.1:{port}"));
    assert_eq!(client.call(Info, soon()).await.unwrap().len(), 1);
    assert_eq!(client.road_name(), {
        remote.call(Info, soon()).await.unwrap();
        remote.road_name()
    });
    drop(ours);
    let _server = serve(port, vec![table("table", false)], numbers).await;
    let batch = client.receive_persistently(&request, soon(), SOON).await.unwrap();
    assert_eq!((batch.info.len(), client.road_name().unwrap()), (1, "tcp (dm-reverb)".into()));
}

/// The channel of a lost connection opens another by itself, which may be the first to know of the new server.
#[tokio::test]
async fn a_call_over_a_connection_to_a_server_that_was_replaced_is_unavailable_at_most() {
    let replay = Replay::new(vec![uniform("table")], 1 << 20).unwrap();
    let ours = Server::start(&Handle::current(), replay, &ListenOptions::default(), None).unwrap();
    let port = ours.port();
    let client = Client::new(&format!("ipv4:127.0.0.1:{port}"));
    client.call(Info, soon()).await.unwrap();
    let stale = client.road_now().unwrap();
    drop(ours);
    let _server = serve(port, vec![table("table", false)], numbers).await;
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < SOON);
        match stale.clone().call(Mutate::new("table", &[], &[1]), soon()).await {
            Err(Error::Unavailable(text)) if text.contains("another server listens there") => break,
            Err(Error::Unavailable(_)) => tokio::time::sleep(SHORT).await,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(client.call(Mutate::new("table", &[], &[1]), soon()).await.unwrap(), None);
    assert_eq!(client.road_name().unwrap(), "tcp (dm-reverb)");
}

#[tokio::test]
async fn a_draw_that_loses_its_server_is_unavailable() {
    let (server, client) = start(|_, _| Answer { responses: vec![], then: Then::Hang }).await;
    let request = draw("table", 1);
    let mut waiting = client.begin_sample(&request, None, soon(), false).await.unwrap();
    eventually("the request is there", || server.log.lock().requests.len() == 1).await;
    drop(server);
    assert!(matches!(waiting.result().await.unwrap_err(), Error::Unavailable(_)));
    eventually("the client notices", || client.connection().is_none()).await;
}

#[tokio::test]
async fn a_draw_that_the_server_cancels_goes_on() {
    let (_server, client) = start(|number, request| match number {
        0 => Answer { responses: vec![], then: Then::Fail(Status::cancelled("RateLimiter has been cancelled")) },
        _ => numbers(number, request),
    })
    .await;
    client.receive_persistently(&draw("table", 1), soon(), SOON).await.unwrap();
}

#[tokio::test]
async fn calls_say_what_the_server_refuses_or_lacks() {
    let (_server, client) = start(numbers).await;
    assert_eq!(client.call(Mutate::new("table", &[(1, 2.0)], &[3]), soon()).await.unwrap(), None);
    let refused = client.call(Mutate::new("table", &[(1, -2.0)], &[]), soon()).await.unwrap_err();
    assert!(refused.to_string().contains("Priority must not be negative."), "{refused:?}");
    let late = client.call(Reset { table: "table" }, Some(Instant::now() + SHORT)).await.unwrap_err();
    assert!(matches!(late, Error::DeadlineExceeded(_)), "{late:?}");
    let unsaved = client.call(Checkpoint, soon()).await.unwrap_err();
    assert!(matches!(&unsaved, Error::InvalidArgument(text) if text.contains("no Checkpointer")), "{unsaved:?}");
    let peeked = client.call(Peek { table: "table", count: 1, newest: true }, soon()).await.unwrap_err();
    assert!(matches!(&peeked, Error::Unimplemented(text) if text.contains("dm-reverb 0.14")), "{peeked:?}");
    let got = client.call(Get { table: "table", keys: &[1], columns: &[] }, soon()).await.unwrap_err();
    assert!(matches!(&got, Error::Unimplemented(text) if text.contains("read items by their keys")), "{got:?}");
    let newer = client.call(Newer { table: "table", seen: None }, soon()).await.unwrap_err();
    assert!(matches!(&newer, Error::Unimplemented(text) if text.contains("wait for another item")), "{newer:?}");
    let observed = client.call(Observe, soon()).await.unwrap_err();
    assert!(matches!(&observed, Error::Unimplemented(text) if text.contains("dm-reverb 0.14")), "{observed:?}");
    let unknown = client.receive(&draw("other", 1), soon()).await.unwrap_err();
    let expected = "Priority table other was not found; this server has: queue, table";
    assert_eq!(unknown.to_string(), expected);
    assert_eq!(client.call(Reset { table: "other" }, soon()).await.unwrap_err().to_string(), expected);
    assert_eq!(client.call(Mutate::new("other", &[], &[1]), soon()).await.unwrap_err().to_string(), expected);
}
