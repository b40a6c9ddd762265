//! Insert streams of dm-reverb whose client is hostile or too fast, and those of a server that stops.

use crate::common::dm_inserts::{
    Inserts, Service, chunk, chunk_of, connect, item, item_of, literal, request, slice, talk, tensor,
};
use crate::common::{MAX_MESSAGE_SIZE, SOON, assert_serves, eventually, exactly, here, queue, server, silent, uniform};
use bytes::Bytes;
use reverb_core::Table;
use reverb_formats::proto::tensorflow::TensorProto;
use reverb_net::dm_reverb::proto::{InsertStreamRequest, ServerInfoRequest};
use reverb_service::{Call, TableHandle};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

/// Sends a message and returns the text with which it is refused.
async fn refusal(service: &mut Service, message: InsertStreamRequest) -> String {
    let (keys, status) = talk(service, vec![message]).await;
    let status = status.expect("a refusal");
    assert!(keys.is_empty());
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    status.message().to_owned()
}

/// A chunk of few bytes that declares a megabyte: a text that is repeated.
fn repeated_text(key: u64) -> InsertStreamRequest {
    let text = TensorProto { string_val: vec![vec![b'x'; 1000].into()], ..tensor(7, &[1000], vec![]) };
    request(&[chunk_of(key, vec![text])], &[], &[])
}

#[tokio::test]
async fn chunks_that_declare_more_than_the_limit_are_refused() {
    let server = server(vec![uniform("table")]);
    let mut service = connect(server.port()).await;
    let text =
        refusal(&mut service, request(&[chunk_of(1, vec![tensor(9, &[1 << 20], literal(&[0; 8]))])], &[], &[])).await;
    assert_eq!(
        text,
        "chunk 1 has 8388608 bytes, more than the 4194304 bytes that max_message_size (an argument of reverb.Server) allows"
    );
    for dims in [&[i64::MAX, 2][..], &[-1], &[1 << 40], &[0, i64::MAX]] {
        refusal(&mut service, request(&[chunk_of(1, vec![tensor(9, dims, literal(&[0; 8]))])], &[], &[])).await;
        refusal(&mut service, request(&[chunk_of(1, vec![tensor(7, dims, vec![0; 8])])], &[], &[])).await;
    }
    assert_serves(&server, "table").await;
}

#[tokio::test]
async fn the_chunks_of_one_message_share_its_limit() {
    let server = server(vec![uniform("table")]);
    let mut service = connect(server.port()).await;
    let chunks = |count| (0..count).flat_map(|key| repeated_text(key).chunks).collect();
    let message = |count| InsertStreamRequest { chunks: chunks(count), ..InsertStreamRequest::default() };
    let text = refusal(&mut service, message(5)).await;
    assert!(text.contains("more than the 4194304 bytes that max_message_size"), "{text}");
    let (_, status) = talk(&mut service, vec![message(4), message(4)]).await;
    assert!(status.is_none(), "{status:?}");
    // A chunk also takes memory if it has no data.
    let empty = InsertStreamRequest {
        chunks: (0..20_000).flat_map(|key| request(&[chunk(key, &[1])], &[], &[]).chunks).collect(),
        ..InsertStreamRequest::default()
    };
    let text = refusal(&mut service, empty).await;
    assert!(text.starts_with("the memory of the chunks of a message has"), "{text}");
    assert_serves(&server, "table").await;
}

#[tokio::test]
async fn messages_above_the_limit_are_refused_by_the_name_of_the_option() {
    let server = server(vec![uniform("table")]);
    let mut service = connect(server.port()).await;
    let large = vec![0; MAX_MESSAGE_SIZE as usize + (17 << 20)];
    let message = InsertStreamRequest { chunks: vec![large.into()], ..InsertStreamRequest::default() };
    let text = refusal(&mut service, message).await;
    assert!(text.contains("max_message_size"), "{text}");
    assert_serves(&server, "table").await;
}

#[tokio::test]
async fn messages_of_entries_without_content_are_refused() {
    let server = server(vec![uniform("table")]);
    let mut service = connect(server.port()).await;
    for message in [
        InsertStreamRequest { chunks: vec![Bytes::new(); 4 << 20], ..InsertStreamRequest::default() },
        InsertStreamRequest { items: vec![Bytes::new(); 4 << 20], ..InsertStreamRequest::default() },
        InsertStreamRequest { keep_chunk_keys: vec![0; 16 << 20], ..InsertStreamRequest::default() },
    ] {
        let (_, status) = talk(&mut service, vec![message]).await;
        let status = status.expect("a refusal");
        assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    }
    assert_serves(&server, "table").await;
}

/// Draws single items until so many are drawn.
async fn draw(table: TableHandle, count: u64) -> Vec<u64> {
    let mut keys = Vec::new();
    for _ in 0..count {
        let drawn = match table.sample(exactly(1), here()) {
            Call::Done(drawn) => drawn,
            Call::Waiting(waiting) => waiting.result(None, silent).await,
        };
        keys.extend(drawn.unwrap().iter().map(|drawn| drawn.key));
    }
    keys
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_not_read_while_its_waiting_items_hold_much_memory() {
    const CHUNK_BYTES: u64 = 2 << 20;
    const MOST: u64 = 150;
    let server = server(vec![queue("queue", 1)]);
    let mut service = connect(server.port()).await;
    let (requests, stream) = mpsc::channel(1);
    let mut responses = service.insert_stream(ReceiverStream::new(stream)).await.unwrap().into_inner();
    let numbers: Vec<i64> = (0..(CHUNK_BYTES / 8) as i64).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a)).collect();
    // The chunk is dropped at once, so only its item holds it.
    let big = move |key| request(&[chunk(1, &numbers)], &[item("queue", key, 1)], &[]);
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
    let learner = tokio::spawn(draw(server.replay().tables()[0].clone(), MOST));
    let writer = tokio::spawn(async move {
        for key in sent + 1..=MOST {
            requests.send(big(key)).await.unwrap();
        }
    });
    let mut keys = Vec::new();
    while let Some(answer) = timeout(SOON, responses.message()).await.expect("the stream stands still").unwrap() {
        keys.extend(answer.keys);
    }
    // An item that waited may be confirmed a little after the next one, which did not.
    keys.sort_unstable();
    assert_eq!(keys, (1..=MOST).collect::<Vec<_>>());
    writer.await.unwrap();
    assert_eq!(learner.await.unwrap(), keys, "items of one stream keep their order");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_message_does_not_queue_more_items_than_a_stream_may() {
    const ITEMS: u64 = 5000;
    let server = server(vec![queue("queue", 1), uniform("table")]);
    let tables = server.replay().tables();
    let mut service = connect(server.port()).await;
    let items: Vec<_> = (0..ITEMS).map(|key| item("queue", key, 1)).chain([item("table", ITEMS, 1)]).collect();
    let inserts = Inserts::open(&mut service).await;
    inserts.send(request(&[chunk(1, &[1])], &items, &[1]));
    eventually("no item waits", || tables[0].status().info.waiting_inserts == Some(1)).await;
    // It is behind the items for which there is no room yet.
    assert_eq!(tables[1].with_table(Table::len), 0);
    let learner = tokio::spawn(draw(tables[0].clone(), ITEMS));
    let (keys, status) = timeout(SOON, inserts.finish()).await.expect("the stream stands still");
    assert!(status.is_none(), "{status:?}");
    assert_eq!(keys, (0..=ITEMS).collect::<Vec<_>>());
    learner.await.unwrap();
}

#[tokio::test]
async fn streams_of_a_server_that_stops_end_with_an_error_that_clients_retry() {
    let server = server(vec![queue("queue", 1)]);
    let mut service = connect(server.port()).await;
    let idle = Inserts::open(&mut service).await;
    let mut waiting = Inserts::open(&mut service).await;
    waiting.send(request(&[chunk(1, &[1])], &[item("queue", 1, 1), item("queue", 2, 1)], &[]));
    assert_eq!(waiting.keys().await, [1]);
    eventually("no item waits", || server.replay().tables()[0].status().info.waiting_inserts == Some(1)).await;
    server.replay().close();
    for stream in [idle, waiting] {
        let Inserts { requests: _open, mut responses } = stream;
        let ended = timeout(SOON, responses.message()).await.expect("the stream does not end");
        assert_eq!(ended.unwrap_err().code(), Code::Unavailable);
    }
}

#[tokio::test]
async fn thousands_of_streams_of_one_connection_leave_room_for_calls() {
    let server = server(vec![uniform("table")]);
    let mut service = connect(server.port()).await;
    let mut streams = Vec::new();
    for _ in 0..3000 {
        streams.push(Inserts::open(&mut service).await);
    }
    service.server_info(ServerInfoRequest {}).await.unwrap();
    let mut last = streams.pop().unwrap();
    last.send(request(&[chunk(1, &[1, 2])], &[item_of("table", 1, vec![slice(1, 0, 2)])], &[]));
    assert_eq!(last.keys().await, [1]);
}
