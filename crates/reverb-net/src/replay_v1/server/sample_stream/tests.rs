use super::*;
use crate::tables::{Recorder, Told, chunk_of, here, items, queue};
use reverb_core::{Codec, DType, Layout, NewItem, Trajectory};
use reverb_service::Transport;
use reverb_service::decoding::{ITEMS_AT_ONCE, turn};
use tokio_stream::wrappers::UnboundedReceiverStream;

/// The connection may end before the task has seen the receipt that arrived just before.
#[tokio::test]
async fn receipts_sent_just_before_the_connection_ends_count() {
    // The task selects at random among what is ready.
    for _ in 0..64 {
        let table = queue("queue", 10);
        assert!(matches!(table.insert(items([1, 2]), here()), Call::Done(Ok(()))));
        let replay = Replay::new(vec![table.clone()], 1 << 20).unwrap();
        let peer = Arc::new(Peer::new(Transport::Tcp, String::new()));
        let (requests, stream) = mpsc::unbounded_channel();
        let mut answers = sample_stream(replay, peer, None, None, None, UnboundedReceiverStream::new(stream));
        let send = |kind| requests.send(Ok(SampleRequest { request_id: 1, kind: Some(kind) })).unwrap();
        let draw = Draw { table: "queue".into(), at_least: 1, at_most: 1, ..Draw::default() };
        send(sample_request::Kind::Draw(draw));
        assert!(matches!(answers.next().await.unwrap().unwrap().kind, Some(Kind::Batch(_))));
        assert_eq!(table.status().info.undelivered_samples, Some(1));

        send(sample_request::Kind::Received(true));
        drop((answers, requests));
        while table.status().info.undelivered_samples > Some(0) {
            tokio::task::yield_now().await;
        }
        assert_eq!(table.with_table(|table| table.len()), 1, "the sample went back");
    }
}

/// A draw of the stream that still waits would draw the items of its leases, which have just come back.
#[tokio::test]
async fn draws_that_wait_end_before_the_leases_of_their_stream() {
    for ends_with_error in [false, true] {
        let table = queue("queue", 10);
        assert!(matches!(table.insert(items([1, 2]), here()), Call::Done(Ok(()))));
        let changes = Recorder::of(&table);
        let replay = Replay::new(vec![table.clone()], 1 << 20).unwrap();
        let peer = Arc::new(Peer::new(Transport::Tcp, String::new()));
        let (requests, stream) = mpsc::unbounded_channel();
        let mut answers = sample_stream(replay, peer, None, None, None, UnboundedReceiverStream::new(stream));
        let draw = |count| Draw { table: "queue".into(), at_least: count, at_most: count, ..Draw::default() };
        for (request_id, count) in [(1, 2), (2, 1)] {
            let kind = Some(sample_request::Kind::Draw(draw(count)));
            requests.send(Ok(SampleRequest { request_id, kind })).unwrap();
        }
        assert!(matches!(answers.next().await.unwrap().unwrap().kind, Some(Kind::Batch(_))));
        while table.status().info.waiting_samples < Some(1) {
            tokio::task::yield_now().await;
        }
        changes.take();
        if ends_with_error {
            requests.send(Err(Status::cancelled("gone"))).unwrap();
        } else {
            drop((answers, requests));
        }
        while table.with_table(|table| table.len()) < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(changes.take(), [Told::Back(2), Told::Back(1)]);
    }
}

/// The only thread of the runtime waits for the table's lock.
#[test]
fn other_tasks_go_on_while_a_large_draw_is_made() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let _context = runtime.enter();
    let table = queue("queue", 10);
    let replay = Replay::new(vec![table.clone()], 1 << 20).unwrap();
    let peer = Arc::new(Peer::new(Transport::Tcp, String::new()));
    let (requests, stream) = mpsc::unbounded_channel();
    let _answers = sample_stream(replay, peer, None, None, None, UnboundedReceiverStream::new(stream));
    let count = ITEMS_AT_ONCE as u64 + 1;
    let draw = Draw { table: "queue".into(), at_least: count, at_most: count, ..Draw::default() };
    table.with_table(|_| {
        requests.send(Ok(SampleRequest { request_id: 1, kind: Some(sample_request::Kind::Draw(draw)) })).unwrap();
        for _ in 0..3 {
            let (done, is_done) = std::sync::mpsc::channel();
            runtime.spawn(async move { done.send(()) });
            is_done.recv_timeout(Duration::from_secs(20)).expect("the task does not run");
        }
    });
}

#[tokio::test]
async fn a_draw_from_a_large_compressed_chunk_waits_for_its_turn() {
    let table = queue("queue", 10);
    let layout = Layout::new(2048, [(DType::UInt8, smallvec::smallvec![1024], 0)]).unwrap();
    let chunk = Arc::new(chunk_of(layout, vec![1; 2 << 20]).compress(Codec::Lz4, &[]));
    let trajectory = Trajectory::rows(chunk, 0, 1).unwrap();
    let item = NewItem { key: 1, priority: 1.0, takes_largest: false, others: None, times_sampled: 0, trajectory };
    assert!(matches!(table.insert(vec![item], here()), Call::Done(Ok(()))));
    let replay = Replay::new(vec![table], 8 << 20).unwrap();
    let peer = Arc::new(Peer::new(Transport::Tcp, String::new()));
    let (requests, stream) = mpsc::unbounded_channel();
    let mut answers = sample_stream(replay, peer, None, None, None, UnboundedReceiverStream::new(stream));
    let room = turn(u64::MAX).await;
    let draw = Draw { table: "queue".into(), at_least: 1, at_most: 1, ..Draw::default() };
    requests.send(Ok(SampleRequest { request_id: 1, kind: Some(sample_request::Kind::Draw(draw)) })).unwrap();
    let early = tokio::time::timeout(Duration::from_millis(200), answers.next()).await;
    assert!(early.is_err(), "the chunk was decoded without room");
    drop(room);
    assert!(matches!(answers.next().await.unwrap().unwrap().kind, Some(Kind::Batch(_))));
}
