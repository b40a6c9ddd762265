//! What streams of both protocols tell the journal of a table, and that their answers come after its commits.

use crate::common::wire::{self, Inserts, Samples};
use crate::common::{
    self, Recorder, SOON, Told, addresses, dm_inserts, dm_reverb_client, eventually, queue, server, uniform,
};
use reverb_core::{Confirmation, Error, TableChanges};
use reverb_formats::proto::schema::SampleStreamResponse;
use reverb_net::client::{Client, Configure, Mutate, Reset};
use reverb_net::replay_v1::proto::{WriteItem, WriteRequest, failure::Kind, sample_request};
use reverb_service::DrawRequest;
use std::time::Instant;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

/// The effects of an item that a writer has sent with a number of its own.
fn written(sequence: u64) -> [Told; 2] {
    [Told::Put(100 + sequence), Told::Wrote(7, sequence)]
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_are_named_with_the_numbers_of_their_items() {
    let table = queue("table", 2);
    let server = server(vec![table.clone()]);
    let journal = Recorder::of(&table);
    let mut service = wire::connect(server.port()).await;
    let (requests, stream) = mpsc::unbounded_channel();
    let mut responses = service.write(UnboundedReceiverStream::new(stream)).await.unwrap().into_inner();
    let item = |sequence| WriteItem {
        table: "table".into(),
        key: 100 + sequence,
        priority: 1.0,
        chunk_key: 1,
        rows: 1,
        ..WriteItem::default()
    };
    let send = |sequences: std::ops::RangeInclusive<u64>| {
        let chunks = if *sequences.start() == 1 { vec![wire::chunk(1, 1)] } else { Vec::new() };
        let first_sequence = *sequences.start();
        let items = sequences.map(item).collect();
        requests.send(WriteRequest { writer_id: 7, first_sequence, chunks, items, ..WriteRequest::default() }).unwrap();
    };
    send(1..=2);
    assert_eq!(responses.message().await.unwrap().unwrap().count, 2);
    assert_eq!(journal.take(), [1, 2].map(written).concat());
    // The third waits for room.
    send(3..=3);
    assert!(responses.message().await.unwrap().unwrap().notice.contains("waits"));
    let draw = table.sample(DrawRequest::exactly(1), common::here());
    assert!(matches!(draw, reverb_service::Call::Done(Ok(_))));
    assert_eq!(journal.take(), written(3));
    assert_eq!(responses.message().await.unwrap().unwrap().count, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn inserts_draws_receipts_and_edits_are_committed_when_they_are_answered() {
    let table = queue("table", 10);
    let server = server(vec![table.clone()]);
    let journal = Recorder::of(&table);
    let mut service = wire::connect(server.port()).await;
    let mut inserts = Inserts::open(&mut service).await;
    inserts.send(wire::insert(1, "table", 3));
    assert!(inserts.answer().await.unwrap().failure.is_none());
    assert_eq!(journal.take(), [1_000_000, 1_000_001, 1_000_002].map(Told::Put));

    let mut samples = Samples::open(&mut service).await;
    samples.draw(1, wire::draw("table", 1));
    samples.answer().await.1.unwrap();
    assert_eq!(journal.take(), []);
    samples.send(1, Some(sample_request::Kind::Received(true)));
    eventually("the receipt arrives", || journal.confirmations() == [Confirmation::Written]).await;
    assert_eq!(journal.take(), [Told::received(1_000_000)]);
    samples.draw(2, wire::draw("table", 2));
    samples.answer().await.1.unwrap();
    journal.take();
    drop(samples);
    eventually("the samples go back", || table.with_table(|table| table.len() == 2)).await;
    assert_eq!(journal.take(), [1_000_002, 1_000_001].map(Told::Back));

    let client = Client::new(&addresses(&server)[0]);
    let deadline = Some(Instant::now() + SOON);
    client.call(Mutate::new("table", &[(1_000_001, 3.0)], &[1_000_002]), deadline).await.unwrap();
    assert_eq!(journal.take(), [Told::deleted(1_000_002), Told::Priority(1_000_001, 3.0)]);
    let changes = TableChanges { max_size: Some(20), ..TableChanges::default() };
    client.call(Configure { table: "table", changes: &changes }, deadline).await.unwrap();
    assert_eq!(journal.take(), [Told::Options]);
    client.call(Reset { table: "table" }, deadline).await.unwrap();
    assert_eq!(journal.take(), [Told::Reset]);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_dm_reverb_commit_before_they_answer() {
    let table = uniform("table");
    let server = server(vec![table.clone()]);
    let journal = Recorder::of(&table);
    let mut service = dm_inserts::connect(server.port()).await;
    let mut inserts = dm_inserts::Inserts::open(&mut service).await;
    inserts.send(dm_inserts::request(&[dm_inserts::chunk(1, &[7])], &[dm_inserts::item("table", 5, 1)], &[1]));
    assert_eq!(inserts.keys().await, [5]);
    assert_eq!(journal.take(), [Told::Put(5)]);
    let channel = dm_reverb_client::channel(server.port()).await;
    let mut samples: dm_reverb_client::Samples<SampleStreamResponse> = dm_reverb_client::samples(&channel).await;
    samples.send(dm_reverb_client::sample("table", 2, Some(-1)));
    let mut answered = 0;
    while answered < 2 {
        answered += samples.answer().await.unwrap().entries.len();
    }
    assert_eq!(journal.take(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_journal_refuses_what_both_protocols_send_until_it_is_open_again() {
    let table = uniform("table");
    let server = server(vec![table.clone()]);
    let journal = Recorder::of(&table);
    let refusal = Error::Storage("the log is closed".into());
    let mut service = wire::connect(server.port()).await;
    let mut inserts = Inserts::open(&mut service).await;
    let (requests, stream) = mpsc::unbounded_channel();
    let mut responses = service.write(UnboundedReceiverStream::new(stream)).await.unwrap().into_inner();
    let item =
        WriteItem { table: "table".into(), key: 101, priority: 1.0, chunk_key: 1, rows: 1, ..WriteItem::default() };
    let write = |chunks| WriteRequest {
        writer_id: 7,
        first_sequence: 1,
        chunks,
        items: vec![item.clone()],
        ..WriteRequest::default()
    };
    let mut dm_service = dm_inserts::connect(server.port()).await;
    let dm_insert =
        || vec![dm_inserts::request(&[dm_inserts::chunk(1, &[7])], &[dm_inserts::item("table", 5, 1)], &[])];
    let client = Client::new(&addresses(&server)[0]);
    let deadline = Some(Instant::now() + SOON);
    let changes = TableChanges { max_size: Some(20), ..TableChanges::default() };

    journal.refuse(Some(&refusal));
    inserts.send(wire::insert(1, "table", 3));
    assert_eq!(inserts.answer().await.unwrap().failure.unwrap().kind(), Kind::Storage);
    requests.send(write(vec![wire::chunk(1, 1)])).unwrap();
    let answer = responses.message().await.unwrap().unwrap();
    assert_eq!(answer.failures[0].failure.as_ref().unwrap().kind(), Kind::Storage);
    let (keys, status) = dm_inserts::talk(&mut dm_service, dm_insert()).await;
    assert_eq!((keys, status.unwrap().message()), (vec![], "the log is closed"));
    let mutated = client.call(Mutate::new("table", &[(5, 3.0)], &[5]), deadline).await;
    assert_eq!(mutated.unwrap_err(), refusal);
    assert_eq!(client.call(Configure { table: "table", changes: &changes }, deadline).await.unwrap_err(), refusal);
    assert_eq!(client.call(Reset { table: "table" }, deadline).await.unwrap_err(), refusal);
    assert_eq!((journal.take(), journal.confirmations()), (vec![], vec![]));

    journal.refuse(None);
    inserts.send(wire::insert(2, "table", 1));
    assert!(inserts.answer().await.unwrap().failure.is_none());
    requests.send(WriteRequest { first_sequence: 2, ..write(Vec::new()) }).unwrap();
    assert_eq!(responses.message().await.unwrap().unwrap().count, 1);
    // A writer whose stream breaks before it hears of the refusal sends the item again. Its stream did not end in order,
    // since `requests` is still open.
    drop(responses);
    let again = tokio_stream::iter([write(vec![wire::chunk(1, 1)])]);
    let mut responses = service.write(again).await.unwrap().into_inner();
    assert_eq!(responses.message().await.unwrap().unwrap().count, 1);
    assert!(dm_inserts::talk(&mut dm_service, dm_insert()).await.1.is_none());
    assert_eq!(
        journal.take(),
        [
            Told::Put(2_000_000),
            Told::Put(101),
            Told::Wrote(7, 2),
            Told::Priority(101, 1.0),
            Told::Wrote(7, 1),
            Told::Put(5)
        ]
    );
    client.call(Reset { table: "table" }, deadline).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_comes_back_is_not_told_that_an_item_is_kept_which_is_not() {
    let table = uniform("table");
    let server = server(vec![table.clone()]);
    let journal = Recorder::of(&table);
    let mut service = wire::connect(server.port()).await;
    let item =
        WriteItem { table: "table".into(), key: 101, priority: 1.0, chunk_key: 1, rows: 1, ..WriteItem::default() };
    let (chunks, items) = (vec![wire::chunk(1, 1)], vec![item]);
    let request = WriteRequest { writer_id: 7, first_sequence: 1, chunks, items, ..WriteRequest::default() };
    journal.fail(&Error::Storage("it may or may not be there after a restart".into()));
    let (requests, stream) = mpsc::unbounded_channel();
    requests.send(request.clone()).unwrap();
    let mut responses = service.write(UnboundedReceiverStream::new(stream)).await.unwrap().into_inner();
    assert_eq!(responses.message().await.unwrap().unwrap().failures.len(), 1);
    // The stream breaks. One that ends in order has no ledger any more, but `requests` is still open.
    drop(responses);
    let mut responses = service.write(tokio_stream::iter([request])).await.unwrap().into_inner();
    let error = responses.message().await.unwrap_err();
    assert_eq!(error.message(), "it may or may not be there after a restart");
    assert!(table.with_table(|table| table.contains(101)));
}
