//! Arbitrary bytes cause errors, but no panics.

use crate::common::any::{any_chunk, any_others, count_panics, mutated, number};
use crate::common::wire::{self, Inserts, Samples, draw, insert, race};
use crate::common::{self, queue, server, uniform};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use prost::Message;
use reverb_net::replay_v1::proto::{
    Batch, BatchColumn, Choice, Chunk, Column, InsertRequest, ItemBatch, Largest, RaceReport, RateLimiter,
    SampleRequest, Slice, Trajectory, sample_request,
};
use reverb_net::replay_v1::sample_response::{Kind, Payload, SampleResponse};
use reverb_service::TableHandle;
use std::cell::RefCell;
use std::sync::atomic::Ordering::Relaxed;

fn response() -> SampleResponse {
    let column = BatchColumn {
        dtype: 9,
        shape: vec![2],
        row_lengths: vec![1, 1],
        has_open_rows: true,
        squeezed: true,
        string_bytes: 0,
    };
    let batch = Batch {
        keys: vec![1; 16].into(),
        probabilities: vec![2; 16].into(),
        table_sizes: vec![3; 16].into(),
        priorities: vec![4; 16].into(),
        times_sampled: vec![5; 8].into(),
        columns: vec![column],
        signature_token: 1,
        receipt_may_wait: true,
        waited_us: 5,
        segment: None,
    };
    let payload = Payload::Bytes(vec![7; 16].into());
    SampleResponse { request_id: 1, kind: Some(Kind::Batch(batch)), payload }
}

fn report() -> SampleResponse {
    let numbers = vec![1; 16];
    let (times, weights) = (numbers.clone().into(), numbers.into());
    let limiter = Some(RateLimiter { samples_per_insert: 1.0, min_size_to_sample: 2, min_diff: 3.0, max_diff: 4.0 });
    let report = RaceReport {
        times,
        weights,
        weight: 1.0,
        size: 2,
        weight_left: 3.0,
        size_left: 4,
        is_cut: true,
        has_foreign_keys: false,
        largest: Some(Largest { table: 1, priority: 2.0, epoch: 3 }),
        draws_left: Some(5),
        in_order: true,
        limiter,
    };
    SampleResponse { request_id: 1, kind: Some(Kind::RaceReport(report)), payload: Payload::default() }
}

fn request(kind: sample_request::Kind) -> Vec<u8> {
    SampleRequest { request_id: 1, kind: Some(kind) }.encode_to_vec()
}

prop_compose! {
    fn any_batch()(
        keys in prop::collection::vec(0_u64..20, 0..3), priority in prop_oneof![4 => Just(1.0), 1 => any::<f64>()],
        each in any::<bool>(), chunk_key in 0_u64..2, first_row in number(), rows_per_item in number(),
        slices in prop::collection::vec((0_u64..2, number(), number(), number()), 0..3),
        squeeze in any::<bool>(), general in any::<bool>(), named in prop::bool::weighted(0.9),
        takes_largest in any::<bool>(), others in any_others(),
    ) -> ItemBatch {
        let slices = slices.into_iter();
        let slices = slices.map(|(chunk_key, column, offset, length)| Slice { chunk_key, column, offset, length });
        let trajectory = Trajectory { columns: vec![Column { slices: slices.collect(), squeeze }] };
        ItemBatch {
            table: if named { "table".into() } else { "nowhere".into() },
            priorities: vec![priority; if each { keys.len() } else { 1 }],
            trajectories: if general { vec![trajectory; keys.len()] } else { vec![] },
            keys, chunk_key, first_row, rows_per_item, takes_largest, others,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn a_mutated_insert_request_decodes_or_fails(bytes in mutated(insert(1, "table", 3).encode_to_vec())) {
        let _ = InsertRequest::decode(&*bytes);
    }

    #[test]
    fn a_mutated_sample_request_decodes_or_fails(
        bytes in mutated(request(sample_request::Kind::Draw(draw("table", 3))))
    ) {
        let _ = SampleRequest::decode(&*bytes);
    }

    #[test]
    fn a_mutated_race_or_choice_decodes_or_fails(
        bytes in prop_oneof![
            mutated(request(sample_request::Kind::Race(race("table", 3, 1000)))),
            mutated(request(sample_request::Kind::Choice(Choice { winners: vec![0; 12].into() }))),
        ]
    ) {
        let _ = SampleRequest::decode(&*bytes);
    }

    #[test]
    fn a_mutated_sample_response_decodes_or_fails_and_reports_its_length(
        bytes in prop_oneof![mutated(response().encode_to_vec()), mutated(report().encode_to_vec())]
    ) {
        if let Ok(response) = SampleResponse::decode(&*bytes) {
            prop_assert_eq!(response.encode_to_vec().len(), response.encoded_len());
        }
    }
}

#[test]
fn a_sample_response_decodes_to_what_was_encoded() {
    let bytes = response().encode_to_vec();
    let decoded = SampleResponse::decode(&*bytes).unwrap();
    assert_eq!(decoded.encode_to_vec(), bytes);
    assert!(matches!(decoded.kind, Some(Kind::Batch(batch)) if batch.keys == [1; 16][..]));
    let decoded = SampleResponse::decode(&*report().encode_to_vec()).unwrap();
    assert_eq!(decoded.kind, report().kind);
}

#[test]
fn any_insert_request_is_answered_and_its_items_can_be_sampled() {
    let panics = count_panics();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (server, mut service) = runtime.block_on(async {
        let server = server(vec![uniform("table"), queue("queue", 1)]);
        let service = wire::connect(server.port()).await;
        (server, service)
    });
    let table = server.replay().tables()[0].clone();
    let talk = runtime.block_on(async {
        let (inserts, samples) = (Inserts::open(&mut service).await, Samples::open(&mut service).await);
        RefCell::new(Talk { inserts, samples, asked: 0, taken: 0, compressed: 0 })
    });
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() });
    let requests = (prop::collection::vec(any_chunk(), 1..5), prop::collection::vec(any_batch(), 1..3));
    let result = runner.run(&requests, |(chunks, batches)| {
        runtime.block_on(talk.borrow_mut().exchange(chunks, batches, &table));
        table.reset().unwrap();
        Ok(())
    });
    result.unwrap();
    let Talk { inserts, samples, taken, compressed, .. } = talk.into_inner();
    assert!(taken > 100 && compressed > 5, "only {taken} requests were acceptable, {compressed} compressed");
    assert_eq!(panics.load(Relaxed), 0);
    drop((inserts, samples, service));
    runtime.block_on(common::assert_serves(&server, "table"));
}

struct Talk {
    inserts: Inserts,
    samples: Samples,
    asked: u64,
    /// Number of accepted requests.
    taken: u64,
    /// Number of accepted requests with a compressed chunk.
    compressed: u64,
}

impl Talk {
    async fn exchange(&mut self, chunks: Vec<Chunk>, batches: Vec<ItemBatch>, table: &TableHandle) {
        self.asked += 1;
        let request_id = self.asked;
        let has_compressed = chunks.iter().any(|chunk| chunk.codec != 0);
        self.inserts.send(InsertRequest { request_id, chunks, batches, ..InsertRequest::default() });
        let answer = self.inserts.answer().await.unwrap();
        assert_eq!(answer.request_id, request_id);
        if answer.failure.is_some() || table.with_table(|table| table.is_empty()) {
            return;
        }
        self.taken += 1;
        self.compressed += u64::from(has_compressed);
        // The draw only tests gathering. Items that cannot be stacked or are too large are a failure.
        self.samples.draw(request_id, draw("table", 3));
        let response = self.samples.responses.message().await.unwrap().unwrap();
        assert_eq!(response.request_id, request_id);
        let mut left = size(&response).unwrap_or(0);
        while left > 0 {
            let more = self.samples.responses.message().await.unwrap().unwrap();
            let Payload::Bytes(bytes) = more.payload else { panic!("it has no bytes") };
            left -= bytes.len();
        }
        self.samples.send(request_id, Some(sample_request::Kind::Received(true)));
    }
}

/// Returns the number of bytes of a batch that follow after its first message.
fn size(response: &SampleResponse) -> Option<usize> {
    let (Some(Kind::Batch(batch)), Payload::Bytes(bytes)) = (&response.kind, &response.payload) else { return None };
    let columns = batch.columns.iter().map(|column| match column.dtype {
        7 => column.string_bytes as usize,
        number => {
            let size = reverb_core::DType::from_number(number).unwrap().size();
            column.shape.iter().product::<u64>() as usize * size
        }
    });
    Some(columns.fold(0, |end: usize, size| end.next_multiple_of(64) + size) - bytes.len())
}
