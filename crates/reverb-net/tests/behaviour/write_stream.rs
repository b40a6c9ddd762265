//! Messages that our writers never send. Each gets an error, and the server continues to work.

use crate::common::wire::{self, chunk, compressed};
use crate::common::{MAX_MESSAGE_SIZE, SOON, assert_serves, here, queue, server, silent, uniform};
use reverb_core::Codec;
use reverb_net::replay_v1::proto::{Chunk, WriteItem, WriteRequest, WriteResponse, failure::Kind};
use reverb_net::replay_v1::rpc::replay_client::ReplayClient;
use reverb_service::{Call, DrawRequest};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::{iter, wrappers::ReceiverStream};
use tonic::transport::Channel;
use tonic::{Code, Status};

fn item(table: &str, key: u64, chunk_key: u64, rows: u32) -> WriteItem {
    WriteItem { table: table.into(), key, priority: 1.0, chunk_key, rows, ..WriteItem::default() }
}

fn request(first_sequence: u64, items: Vec<WriteItem>) -> WriteRequest {
    WriteRequest { writer_id: 7, first_sequence, chunks: vec![chunk(1, 3)], items, ..WriteRequest::default() }
}

/// Sends messages on a new stream. Returns all answers, and the result of the stream.
async fn talk(
    service: &mut ReplayClient<Channel>,
    messages: Vec<WriteRequest>,
) -> (Vec<WriteResponse>, Option<Status>) {
    let mut responses = service.write(iter(messages)).await.unwrap().into_inner();
    let mut answers = Vec::new();
    loop {
        match responses.message().await {
            Ok(Some(answer)) => answers.push(answer),
            Ok(None) => return (answers, None),
            Err(status) => return (answers, Some(status)),
        }
    }
}

#[tokio::test]
async fn items_are_answered_one_by_one_and_a_bad_one_affects_no_other() {
    let server = server(vec![uniform("table")]);
    let mut service = wire::connect(server.port()).await;
    let items = vec![
        item("table", 1, 1, 1),
        item("nowhere", 2, 1, 1),
        item("table", 3, 99, 1),
        item("table", 4, 1, 4),
        // A row without its time axis, like a column that is squeezed.
        item("table", 5, 1, 0),
        WriteItem { priority: f64::NAN, ..item("table", 6, 1, 1) },
        item("table", 7, 1, 3),
    ];
    let (answers, status) = talk(&mut service, vec![request(1, items)]).await;
    assert!(status.is_none(), "{status:?}");
    let failures: Vec<_> = answers
        .iter()
        .flat_map(|answer| &answer.failures)
        .map(|failure| (failure.sequence, failure.failure.as_ref().unwrap().kind()))
        .collect();
    let invalid = Kind::InvalidArgument;
    let expected = [(2, Kind::TableNotFound), (3, invalid), (4, invalid), (6, Kind::InvalidPriority)];
    assert_eq!(failures, expected);
    assert_eq!(server.replay().tables()[0].with_table(reverb_core::Table::len), 3);
    assert_serves(&server, "table").await;
}

#[tokio::test]
async fn a_stream_without_a_writer_or_with_impossible_numbers_is_refused() {
    let server = server(vec![uniform("table")]);
    let mut service = wire::connect(server.port()).await;
    let nameless = WriteRequest { writer_id: 0, ..request(1, vec![item("table", 1, 1, 1)]) };
    let overflowing = request(u64::MAX, vec![item("table", 1, 1, 1), item("table", 2, 1, 1)]);
    for message in [nameless, overflowing] {
        let (answers, status) = talk(&mut service, vec![message]).await;
        assert!(answers.is_empty());
        assert_eq!(status.unwrap().code(), Code::InvalidArgument);
    }
    assert_serves(&server, "table").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_chunks_decode_to_more_than_allowed_is_refused_before_it_is_decoded() {
    let server = server(vec![uniform("table")]);
    let mut service = wire::connect(server.port()).await;
    for codec in [Codec::Lz4, Codec::Zstd] {
        let half = compressed((MAX_MESSAGE_SIZE / 2000) as u32, codec);
        let message = |chunks: Vec<Chunk>| {
            let chunks = (1..).zip(chunks).map(|(key, chunk)| Chunk { key, ..chunk }).collect();
            WriteRequest { chunks, ..request(1, vec![item("table", 1, 1, 1)]) }
        };
        // The last chunk is damaged, which a server that decodes it would say.
        let damaged = Chunk { data: vec![255; 100].into(), ..half.clone() };
        let (answers, status) = talk(&mut service, vec![message(vec![half.clone(), half.clone(), damaged])]).await;
        let status = status.expect("the message is too large");
        assert!(answers.is_empty());
        assert_eq!(status.code(), Code::InvalidArgument);
        for part in ["message of a writer", "6291000 bytes", "4194304 bytes", "max_message_size"] {
            assert!(status.message().contains(part), "{part}: {status:?}");
        }
        // The next stream of the writer goes on, up to the limit.
        let (answers, status) = talk(&mut service, vec![message(vec![half.clone(), half])]).await;
        assert!(status.is_none(), "{status:?}");
        assert_eq!((answers[0].first, answers[0].count), (1, 1));
    }
    assert_serves(&server, "table").await;
}

#[tokio::test]
async fn items_that_are_sent_again_are_confirmed_and_not_inserted_again() {
    let server = server(vec![uniform("table")]);
    let mut service = wire::connect(server.port()).await;
    // The server remembers the writer of a broken stream, and forgets the writer of a stream that ended in order.
    let bad =
        WriteRequest { first_sequence: u64::MAX, items: vec![WriteItem::default(); 2], ..WriteRequest::default() };
    let (answers, status) = talk(&mut service, vec![request(1, vec![item("table", 1, 1, 1)]), bad]).await;
    assert_eq!((answers.len(), answers[0].first, answers[0].count), (1, 1, 1));
    assert!(status.is_some());
    let table = &server.replay().tables()[0];
    table.mutate(&[], &[1]).unwrap();
    let again = request(1, vec![item("table", 1, 1, 1), item("table", 2, 1, 1)]);
    let (answers, status) = talk(&mut service, vec![again]).await;
    assert!(status.is_none(), "{status:?}");
    assert_eq!(answers.iter().map(|answer| answer.count + answer.confirmed.len() as u64).sum::<u64>(), 2);
    assert_eq!(table.with_table(reverb_core::Table::len), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn released_chunks_count_as_long_as_waiting_items_hold_them() {
    const CHUNK_BYTES: u64 = 2 << 20;
    const MOST: u64 = 150;
    let server = server(vec![queue("queue", 1)]);
    let mut service = wire::connect(server.port()).await;
    let (requests, stream) = mpsc::channel(1);
    let mut responses = service.write(ReceiverStream::new(stream)).await.unwrap().into_inner();
    let big = |sequence| WriteRequest {
        writer_id: 7,
        first_sequence: sequence,
        // The key is always the same, so each chunk must be released before the next one.
        chunks: vec![chunk(1, (CHUNK_BYTES / 8) as u32)],
        items: vec![item("queue", sequence, 1, 1)],
        release: vec![1],
        ..WriteRequest::default()
    };
    let mut sent = 0;
    while sent < MOST
        && let Ok(result) = timeout(Duration::from_secs(2), requests.send(big(sent + 1))).await
    {
        result.unwrap();
        sent += 1;
    }
    // The limit of the stream is 64 MiB. The connection itself also takes some messages.
    assert!(sent * CHUNK_BYTES <= 96 << 20, "the server has read {sent} chunks of {CHUNK_BYTES} bytes");

    // Items that enter the table make room for the rest of the stream.
    let table = server.replay().tables()[0].clone();
    let learner = tokio::spawn(async move {
        for _ in 0..MOST {
            match table.sample(DrawRequest::exactly(1), here()) {
                Call::Done(drawn) => drop(drawn.unwrap()),
                Call::Waiting(waiting) => drop(waiting.result(None, silent).await.unwrap()),
            }
        }
    });
    let writer = tokio::spawn(async move {
        for sequence in sent + 1..=MOST {
            requests.send(big(sequence)).await.unwrap();
        }
    });
    let mut confirmed = 0;
    while let Some(answer) = timeout(SOON, responses.message()).await.expect("the stream stands still").unwrap() {
        assert!(answer.failures.is_empty());
        confirmed += answer.count + answer.confirmed.len() as u64;
    }
    assert_eq!(confirmed, MOST);
    writer.await.unwrap();
    learner.await.unwrap();
}

/// More chunks than those whose bookkeeping alone would fill the limit of a stream.
#[tokio::test]
async fn chunks_that_were_released_do_not_slow_a_stream_with_a_waiting_item() {
    const CHUNKS: u64 = 140_000;
    let server = server(vec![queue("blocked", 1), uniform("table")]);
    let mut service = wire::connect(server.port()).await;
    let (requests, stream) = mpsc::channel(1);
    let mut responses = service.write(ReceiverStream::new(stream)).await.unwrap().into_inner();
    let many = WriteRequest {
        chunks: (1..=CHUNKS).map(|key| chunk(key, 1)).collect(),
        release: (1..=CHUNKS).collect(),
        ..request(1, vec![item("table", 1, 1, 1)])
    };
    let blocked = request(2, vec![item("blocked", 2, 1, 1), item("blocked", 3, 1, 1)]);
    let flowing = request(4, vec![item("table", 4, 1, 1)]);
    for message in [many, blocked, flowing] {
        requests.send(message).await.unwrap();
    }
    let mut confirmed = Vec::new();
    while confirmed.len() < 3 {
        let answer = timeout(SOON, responses.message()).await.expect("the stream stands still").unwrap().unwrap();
        confirmed.extend(answer.first..answer.first + answer.count);
        confirmed.extend(answer.confirmed);
    }
    assert_eq!(confirmed, [1, 2, 4]);
}

#[tokio::test]
async fn an_item_that_waits_must_not_be_sent_again_on_the_same_stream() {
    let server = server(vec![queue("queue", 1)]);
    let mut service = wire::connect(server.port()).await;
    let items = vec![item("queue", 1, 1, 1), item("queue", 2, 1, 1)];
    let again = WriteRequest { chunks: vec![], ..request(2, vec![item("queue", 2, 1, 1)]) };
    let (_, status) = talk(&mut service, vec![request(1, items), again]).await;
    assert_eq!(status.unwrap().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_writer_that_leaves_out_every_second_number_is_refused() {
    let server = server(vec![uniform("table")]);
    let mut service = wire::connect(server.port()).await;
    let message = |index: u64| WriteRequest {
        chunks: if index == 0 { vec![chunk(1, 3)] } else { vec![] },
        ..request(2 * index + 2, vec![item("table", index, 1, 1)])
    };
    let (_, status) = talk(&mut service, (0..20_000).map(message).collect()).await;
    let status = status.expect("the server remembers a gap for each item");
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
}
