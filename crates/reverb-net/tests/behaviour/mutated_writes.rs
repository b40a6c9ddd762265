//! Arbitrary messages on the stream of a writer. Each item is answered, or the stream ends with an error. The server
//! continues to work.

use crate::common::any::{any_chunk, any_others, count_panics, mutated, number};
use crate::common::{self, Receive, SOON, draw, queue, server, uniform, wire};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use prost::Message;
use reverb_net::client::Client;
use reverb_net::replay_v1::proto::{Column, Slice, Trajectory, WriteItem, WriteRequest};
use reverb_net::replay_v1::rpc::replay_client::ReplayClient;
use std::cell::Cell;
use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use tokio_stream::iter;
use tonic::transport::Channel;

prop_compose! {
    fn any_item()(
        table in prop_oneof![20 => Just("table"), 3 => Just("queue"), 1 => Just("nowhere")], key in 0_u64..20,
        priority in prop_oneof![6 => Just(1.0), 1 => any::<f64>()], chunk_key in 0_u64..2,
        first_row in prop_oneof![3 => Just(0), 1 => number()], rows in prop_oneof![3 => Just(1), 1 => number()],
        slices in prop::collection::vec((0_u64..2, number(), number(), number()), 0..3),
        squeeze in any::<bool>(), general in any::<bool>(), not_validated in any::<bool>(),
        takes_largest in any::<bool>(), others in any_others(),
    ) -> WriteItem {
        let slices = slices.into_iter();
        let slices = slices.map(|(chunk_key, column, offset, length)| Slice { chunk_key, column, offset, length });
        let trajectory = general.then(|| Trajectory { columns: vec![Column { slices: slices.collect(), squeeze }] });
        WriteItem {
            table: table.into(), key, priority, chunk_key, first_row, rows, trajectory, not_validated, takes_largest,
            others,
        }
    }
}

prop_compose! {
    fn any_request()(
        writer_id in prop_oneof![9 => 1_u64..4, 1 => any::<u64>()],
        first_sequence in prop_oneof![12 => 1_u64..6, 1 => any::<u64>(), 1 => Just(u64::MAX)],
        chunks in prop::collection::vec(any_chunk(), 0..4), items in prop::collection::vec(any_item(), 0..5),
        release in prop::collection::vec(0_u64..3, 0..2),
        settled_through in prop_oneof![6 => Just(0_u64), 1 => 0_u64..8, 1 => any::<u64>()],
    ) -> WriteRequest {
        WriteRequest { writer_id, first_sequence, chunks, items, release, settled_through }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn a_mutated_write_request_decodes_or_fails(bytes in mutated(valid().encode_to_vec())) {
        let _ = WriteRequest::decode(&*bytes);
    }
}

fn valid() -> WriteRequest {
    let item =
        WriteItem { table: "table".into(), key: 1, priority: 1.0, chunk_key: 1, rows: 1, ..WriteItem::default() };
    WriteRequest {
        writer_id: 7,
        first_sequence: 1,
        chunks: vec![wire::chunk(1, 3)],
        items: vec![item; 2],
        release: vec![1],
        settled_through: 0,
    }
}

#[test]
fn any_write_request_is_answered_and_its_items_can_be_sampled() {
    let panics = count_panics();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (server, service, client) = runtime.block_on(async {
        let server = server(vec![uniform("table"), queue("queue", 3)]);
        let service = wire::connect(server.port()).await;
        let client = Client::new(&common::addresses(&server)[0]);
        (server, service, client)
    });
    let tables = server.replay().tables();
    let taken = Cell::new(0);
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() });
    let result = runner.run(&prop::collection::vec(any_request(), 1..4), |requests| {
        runtime.block_on(async {
            tokio::time::timeout(SOON, talk(&mut service.clone(), requests)).await.expect("the stream ended");
            if tables[0].with_table(|table| !table.is_empty()) {
                taken.set(taken.get() + 1);
                // Items that cannot be stacked are an error. The draw does not wait for others.
                let _stacked_or_not = client.receive(&draw("table", 3), Some(Instant::now() + SOON)).await;
            }
        });
        // A reset would let the items in that still wait on a stream that the client has left.
        let is_left = || tables[1].status().info.waiting_inserts == Some(0);
        runtime.block_on(common::eventually("nothing waits", is_left));
        tables.iter().for_each(|table| table.reset().unwrap());
        Ok(())
    });
    result.unwrap();
    assert!(taken.get() > 100, "only {} requests left an item", taken.get());
    assert_eq!(panics.load(Relaxed), 0);
    runtime.block_on(common::assert_serves(&server, "table"));
}

/// Sends the messages on a new stream and reads the answers. Every item gets an answer, unless the stream ends with an
/// error or the queue is full.
async fn talk(service: &mut ReplayClient<Channel>, requests: Vec<WriteRequest>) {
    let expected: HashSet<u64> = requests
        .iter()
        .flat_map(|request| (0..request.items.len() as u64).map(|index| request.first_sequence.wrapping_add(index)))
        .collect();
    // The queue has room for three messages. With more, the stream ends only when the client disconnects.
    let queued = requests.iter().flat_map(|request| &request.items).filter(|item| item.table == "queue").count();
    let mut responses = service.write(iter(requests)).await.unwrap().into_inner();
    let mut answered = HashSet::new();
    loop {
        if queued > 3 && expected.len() - answered.len() <= queued {
            return;
        }
        match responses.message().await {
            Ok(Some(answer)) => {
                answered.extend(answer.first..answer.first + answer.count);
                answered.extend(answer.confirmed);
                answered.extend(answer.failures.iter().map(|failure| failure.sequence));
            }
            Ok(None) => break,
            Err(_) => return,
        }
    }
    assert_eq!(answered, expected);
}
