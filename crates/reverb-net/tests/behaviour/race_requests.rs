//! Requests of races on the wire: what a stream holds, for how long, and what it refuses.

use crate::common::races::{at_rest, figures, once};
use crate::common::wire::{self, Samples, race};
use crate::common::{chunk_of, eventually, here, item, items, queue, server, uniform};
use crate::done;
use reverb_core::{DType, Layout, NewItem, Trajectory};
use reverb_net::replay_v1::proto::{self as replay, Choice, failure, sample_request};
use reverb_net::replay_v1::sample_response::Kind;
use reverb_net::server::End;
use reverb_service::WaitKind;
use smallvec::smallvec;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Request};

#[tokio::test(flavor = "multi_thread")]
async fn each_race_of_a_stream_has_its_own_time() {
    let table = once("table", 0..8, 1);
    let server = server(vec![table.clone()]);
    let mut service = wire::connect(server.port()).await;
    let mut samples = Samples::open(&mut service).await;
    let held = [(1, u64::MAX), (2, 60), (3, 20), (4, 600_000)];
    for (id, hold_ms) in held {
        samples.race(id, race("table", 2, hold_ms));
        assert_eq!(samples.report().await.1.unwrap().times.len(), 16);
    }
    eventually("two are freed", || figures(&table).1[0] == 4).await;
    for id in [2, 3] {
        samples.choose(id, &[0]);
        let (answered, answer) = samples.answer().await;
        assert_eq!((answered, answer.unwrap_err().kind()), (id, failure::Kind::DeadlineExceeded));
        samples.choose(id, &[0]);
        assert_eq!(samples.answer().await.1.unwrap_err().kind(), failure::Kind::InvalidArgument, "it was told");
    }
    samples.choose(1, &[0, 1]);
    samples.choose(4, &[1]);
    for (id, count) in [(1, 2), (4, 1)] {
        let (answered, answer) = samples.answer().await;
        assert_eq!((answered, answer.unwrap().1.len()), (id, 8 * count));
        samples.send(id, Some(sample_request::Kind::Received(true)));
    }
    at_rest(&table, 5).await;
    // Its time is not over, and nothing is held: the timer ends by itself.
    samples.race(5, race("table", 2, 20));
    samples.report().await.1.unwrap();
    samples.choose(5, &[]);
    at_rest(&table, 5).await;
    samples.race(5, race("table", 5, 20));
    assert_eq!(samples.report().await.1.unwrap().times.len(), 40, "the id is free");
    at_rest(&table, 5).await;
}

/// The task of the stream waits for its connection then.
#[tokio::test(flavor = "multi_thread")]
async fn draws_go_back_in_time_also_if_the_client_reads_no_answers() {
    const ROW: usize = 1 << 20;
    let table = once("table", 0..6, 1);
    let large = uniform("large");
    let layout = Layout::new(1, [(DType::UInt8, smallvec![ROW], 0)]).unwrap();
    let chunk = chunk_of(layout, vec![1; ROW]);
    let trajectory = Trajectory::rows(chunk, 0, 1).unwrap();
    done!(large.insert(vec![NewItem { trajectory, ..item(1) }], here()));
    let server = server(vec![table.clone(), large.clone()]);
    let mut service = wire::connect(server.port()).await;
    let mut samples = Samples::open(&mut service).await;
    samples.race(1, race("table", 4, 300));
    samples.report().await.1.unwrap();
    samples.draw(2, wire::draw("large", 64));
    eventually("the batch is on its way", || figures(&large).1[0] == 64).await;
    at_rest(&table, 6).await;
    assert_eq!(figures(&large).1[0], 64, "it is not read");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_choice_is_refused_and_a_right_one_still_works() {
    let table = once("table", 0..6, 1);
    let server = server(vec![table.clone()]);
    let mut service = wire::connect(server.port()).await;
    let mut samples = Samples::open(&mut service).await;
    samples.race(1, race("table", 4, 600_000));
    let report = samples.report().await.1.unwrap();
    assert_eq!((report.times.len(), report.weights.len(), report.is_cut), (32, 32, true));
    assert_eq!((report.weight, report.size, report.weight_left, report.size_left), (6.0, 6, 2.0, 2));
    for (winners, text) in [
        (&[4][..], "expected ascending positions below 4, got 4 as number 1 of 1"),
        (&[2, 1], "expected ascending positions below 4, got 1 as number 2 of 2"),
        (&[2, 2], "expected ascending positions below 4, got 2 as number 2 of 2"),
        (&[0, u32::MAX], "expected ascending positions below 4, got 4294967295 as number 2 of 2"),
        (&[0, 1, 2, 3, 4], "expected at most 4 winners, got 5"),
    ] {
        samples.choose(1, winners);
        let (id, answer) = samples.answer().await;
        let failure = answer.unwrap_err();
        assert_eq!((id, failure.kind(), &*failure.text), (1, failure::Kind::InvalidArgument, text));
    }
    samples.send(1, Some(sample_request::Kind::Choice(Choice { winners: vec![0; 5].into() })));
    assert_eq!(samples.answer().await.1.unwrap_err().text, "expected 4 bytes for each winner, got 5");
    samples.choose(7, &[0]);
    let (id, answer) = samples.answer().await;
    assert_eq!((id, &*answer.unwrap_err().text), (7, "no race with request id 7 awaits a choice"));
    assert_eq!(figures(&table), (2, [4, 0, 0]), "all are held");
    // A receipt is none of a choice.
    samples.send(1, Some(sample_request::Kind::Received(true)));
    samples.choose(1, &[1, 3]);
    let (id, answer) = samples.answer().await;
    assert_eq!((id, answer.unwrap().0.keys.len()), (1, 16));
    assert_eq!(figures(&table), (4, [2, 2, 0]));
    samples.choose(1, &[1]);
    assert_eq!(samples.answer().await.1.unwrap_err().kind(), failure::Kind::InvalidArgument, "it has chosen");
    samples.send(1, Some(sample_request::Kind::Received(true)));
    at_rest(&table, 4).await;
    assert_eq!(figures(&table).1, [0, 2, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_is_answered_when_the_table_has_so_much_and_can_be_withdrawn() {
    let table = once("table", 0..3, 1);
    let server = server(vec![table.clone()]);
    let mut service = wire::connect(server.port()).await;
    let mut samples = Samples::open(&mut service).await;
    let wait = |table: &str, at_least, of_draws, min_size_to_sample| {
        let table = table.into();
        let wait = replay::Wait { table, at_least, of_draws, min_size_to_sample, is_ahead: true };
        Some(sample_request::Kind::Wait(wait))
    };
    samples.send(1, wait("nowhere", 1, false, 1));
    assert_eq!(samples.answer().await.1.unwrap_err().text, "table");
    // At once: there are so many, or the limiter is not the one seen.
    for (id, wait) in [(2, wait("table", 3, false, 1)), (3, wait("table", 3, true, 1)), (4, wait("table", 9, true, 2))]
    {
        samples.send(id, wait);
        let stocked = samples.responses.message().await.unwrap().unwrap();
        assert_eq!((stocked.request_id, stocked.kind), (id, Some(Kind::Stocked(true))));
    }
    samples.send(5, wait("table", 4, false, 1));
    samples.send(5, wait("table", 4, false, 1));
    assert!(samples.answer().await.1.unwrap_err().text.contains("request id 5 is already in use"));
    samples.send(6, wait("table", 4, true, 1));
    eventually("both wait", || table.waits(10).len() == 2).await;
    assert!(table.waits(10).iter().all(|wait| wait.kind == WaitKind::Ahead));
    samples.send(5, Some(sample_request::Kind::Cancel(true)));
    eventually("one waits", || table.waits(10).len() == 1).await;
    done!(table.insert(items(3..4), here()));
    let stocked = samples.responses.message().await.unwrap().unwrap();
    assert_eq!((stocked.request_id, stocked.kind), (6, Some(Kind::Stocked(true))));
    samples.send(7, wait("table", u64::MAX, false, 1));
    eventually("it waits", || table.waits(10).len() == 1).await;
    drop(samples);
    eventually("none waits", || table.waits(10).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_races_are_refused_by_name_and_the_stream_goes_on() {
    let table = once("table", 0..6, 1);
    let server = server(vec![table.clone(), queue("queue", 4)]);
    let mut service = wire::connect(server.port()).await;
    let mut samples = Samples::open(&mut service).await;
    let good = || race("table", 2, 600_000);
    let bad = [
        (replay::Race { table: "nowhere".into(), ..good() }, "table, queue"),
        (replay::Race { interval: f64::NAN, ..good() }, "above 0 and finite, got NaN"),
        (replay::Race { interval: f64::INFINITY, ..good() }, "above 0 and finite, got inf"),
        (replay::Race { interval: 0.0, ..good() }, "above 0, got 0"),
        (replay::Race { interval: -1.0, ..good() }, "above 0, got -1"),
        (replay::Race { limit: 0, ..good() }, "at least 1, got 0"),
        (replay::Race { limit: 16_385, ..good() }, "16385 items exceeds the maximum of 16384 items"),
        (replay::Race { limit: u64::MAX, ..good() }, "exceeds the maximum of 16384 items"),
        (replay::Race { hold_ms: 0, ..good() }, "at least 1 ms, got 0"),
        (replay::Race::default(), "table, queue"),
    ];
    for (id, (bad, text)) in (1..).zip(bad) {
        samples.race(id, bad);
        let (answered, answer) = samples.report().await;
        let failure = answer.expect_err(text);
        assert!(answered == id && failure.text.contains(text), "{failure:?}");
        assert_ne!(failure.kind(), failure::Kind::Internal);
    }
    assert_eq!(figures(&table), (6, [0; 3]));
    samples.race(50, good());
    samples.report().await.1.unwrap();
    samples.race(50, good());
    assert_eq!(samples.report().await.1.unwrap_err().text, "request id 50 is already in use");
    samples.draw(50, wire::draw("table", 1));
    assert_eq!(samples.report().await.1.unwrap_err().text, "request id 50 is already in use");
    samples.draw(51, wire::draw("queue", 1));
    samples.race(51, good());
    assert_eq!(samples.report().await.1.unwrap_err().text, "request id 51 is already in use");
    samples.draw(52, wire::draw("table", 1));
    samples.answer().await.1.unwrap();
    samples.race(52, good());
    assert_eq!(samples.report().await.1.unwrap_err().text, "request id 52 is already in use");
    samples.race(53, good());
    assert_eq!(samples.report().await.1.unwrap().times.len(), 16);
}

#[tokio::test(flavor = "multi_thread")]
async fn races_that_await_a_choice_count_among_the_draws_of_their_stream() {
    let table = uniform("table");
    done!(table.insert(items(0..6), here()));
    let server = server(vec![table.clone()]);
    let mut service = wire::connect(server.port()).await;
    let mut samples = Samples::open(&mut service).await;
    for id in 0..4096 {
        samples.race(id, race("table", 1, 600_000));
        samples.report().await.1.unwrap();
    }
    for refused in [true, false] {
        samples.race(5000, race("table", 1, 600_000));
        samples.draw(5001, wire::draw("table", 1));
        for _ in 0..2 {
            let response = samples.responses.message().await.unwrap().unwrap();
            let is_failure = matches!(response.kind, Some(Kind::Failure(_)));
            assert_eq!(is_failure, refused, "{response:?}");
        }
        samples.send(7, Some(sample_request::Kind::Cancel(true)));
        samples.choose(8, &[]);
    }
}

/// The client may have chosen before it learned that the server is about to stop.
#[tokio::test(flavor = "multi_thread")]
async fn a_choice_after_the_last_receipts_were_asked_for_fails_when_the_server_has_stopped() {
    let table = once("table", 0..5, 1);
    let mut server = server(vec![table.clone()]);
    let mut service = wire::connect(server.port()).await;
    let (requests, stream) = mpsc::unbounded_channel();
    let mut request = Request::new(UnboundedReceiverStream::new(stream));
    request.metadata_mut().insert("reverb-sample-stream", "7".parse().unwrap());
    let mut samples = Samples { requests, responses: service.sample(request).await.unwrap().into_inner() };
    samples.draw(1, wire::draw("table", 1));
    samples.answer().await.1.unwrap();
    samples.race(2, race("table", 2, 600_000));
    samples.report().await.1.unwrap();
    let stopped = tokio::task::spawn_blocking(move || server.end(End::Returns));
    let settle = samples.responses.message().await.unwrap().unwrap();
    assert!(matches!(settle.kind, Some(Kind::Settle(_))), "{settle:?}");
    samples.choose(2, &[0]);
    samples.race(3, race("table", 2, 600_000));
    samples.choose(4, &[]);
    samples.send(1, Some(sample_request::Kind::Received(true)));
    samples.send(0, Some(sample_request::Kind::Settled(true)));
    for id in [2, 3] {
        let (answered, answer) = samples.report().await;
        assert_eq!((answered, answer.unwrap_err().kind()), (id, failure::Kind::Cancelled));
    }
    assert_eq!(samples.responses.message().await.unwrap_err().code(), Code::Unavailable);
    stopped.await.unwrap().unwrap();
    assert_eq!(figures(&table), (4, [0, 1, 0]), "the batch alone was received");
}
