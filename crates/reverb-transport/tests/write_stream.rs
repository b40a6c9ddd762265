//! What no writer of ours would send: an error, and the server goes on.

mod common;

use common::wire::{self, chunk};
use common::{assert_serves, server, uniform};
use reverb_transport::proto::replay::replay_client::ReplayClient;
use reverb_transport::proto::replay::{WriteItem, WriteRequest, WriteResponse, failure::Kind};
use tokio_stream::iter;
use tonic::transport::Channel;
use tonic::{Code, Status};

fn item(table: &str, key: u64, chunk_key: u64, rows: u32) -> WriteItem {
    WriteItem { table: table.into(), key, priority: 1.0, chunk_key, rows, ..WriteItem::default() }
}

fn request(first_sequence: u64, items: Vec<WriteItem>) -> WriteRequest {
    WriteRequest { writer_id: 7, first_sequence, chunks: vec![chunk(1, 3)], items, ..WriteRequest::default() }
}

/// All answers to these messages, and how the stream ended.
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
async fn items_are_answered_one_by_one_and_a_bad_one_costs_no_other() {
    let server = server(vec![uniform("table")]);
    let mut service = wire::connect(server.port()).await;
    let items = vec![
        item("table", 1, 1, 1),
        item("nowhere", 2, 1, 1),
        item("table", 3, 99, 1),
        item("table", 4, 1, 4),
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
    let expected = [(2, Kind::TableNotFound), (3, invalid), (4, invalid), (5, invalid), (6, Kind::InvalidPriority)];
    assert_eq!(failures, expected);
    assert_eq!(server.replay().tables()[0].with_table(reverb_core::Table::len), 2);
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

#[tokio::test]
async fn what_is_sent_again_is_confirmed_and_not_inserted_again() {
    let server = server(vec![uniform("table")]);
    let mut service = wire::connect(server.port()).await;
    // A stream that breaks off leaves the writer known; one that ends in order is forgotten.
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
