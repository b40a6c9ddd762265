//! Valid messages, which are the first inputs of the targets.

use crate::common::wire::{chunk, draw, insert, race};
use prost::Message;
use reverb_net::replay_v1::proto::{
    Batch, BatchColumn, CheckpointResponse, Choice, Chunk, Column, ColumnSpec, Failure, FreedSegment, Generation,
    GetRequest, GetResponse, HelloRequest, HelloResponse, InfoResponse, InsertRequest, InsertResponse, ItemBatch,
    Largest, Load, LogStatus, MutateRequest, PeekRequest, PeekResponse, Publication, Race, RaceReport, RateLimiter,
    ResetRequest, RoomCounted, RoomMessage, RoomReport, SampleRequest, Segment, Shard, ShardCounts, Slice, SumsRequest,
    TableStatus, Tally, Trajectory, Wait, WriteFailure, WriteItem, WriteRequest, WriteResponse, peek_response,
    room_message, sample_request,
};
use reverb_net::replay_v1::sample_response::{Kind, Payload, SampleResponse};
use std::slice::from_ref;

/// Puts messages together, each after its length.
pub fn stream(messages: &[Vec<u8>]) -> Vec<u8> {
    messages.iter().flat_map(|message| [&(message.len() as u16).to_le_bytes()[..], message].concat()).collect()
}

/// Puts the number of a method before a message.
pub fn call(method: u8, message: &impl Message) -> Vec<u8> {
    [vec![method], message.encode_to_vec()].concat()
}

pub fn with_method(method: u8, messages: &[Vec<u8>]) -> Vec<u8> {
    [vec![method], stream(messages)].concat()
}

/// A chunk of strings, without text.
fn strings(key: u64, rows: u32, shape: &[u64]) -> Chunk {
    let elements = u64::from(rows) * shape.iter().product::<u64>();
    let data = vec![0; (elements as usize + 1) * 4];
    let spec = ColumnSpec { dtype: 7, shape: shape.to_vec(), string_bytes: data.len() as u64, delta: false };
    Chunk { key, rows, columns: vec![spec], data: data.into(), ..Chunk::default() }
}

/// A chunk whose rows have no bytes.
fn empty_rows(key: u64, rows: u32) -> Chunk {
    let spec = ColumnSpec { dtype: 9, shape: vec![0], ..ColumnSpec::default() };
    Chunk { key, rows, columns: vec![spec], ..Chunk::default() }
}

/// Trajectories that refer to a chunk as often as given, all rows each time.
fn repeated(chunk: &Chunk, times: usize) -> Trajectory {
    let slice = Slice { chunk_key: chunk.key, column: 0, offset: 0, length: chunk.rows };
    Trajectory { columns: vec![Column { slices: vec![slice; times], squeeze: false }] }
}

fn chunks() -> Vec<Chunk> {
    let interleaved = Chunk { codec: 3, ..chunk(4, 2) };
    vec![chunk(1, 3), strings(2, 3, &[2]), empty_rows(3, 65_536), interleaved, strings(5, 4, &[0])]
}

fn items(trajectories: Vec<Trajectory>) -> ItemBatch {
    let keys = (1..=trajectories.len() as u64).collect();
    ItemBatch { table: "table".into(), keys, priorities: vec![1.0], trajectories, ..ItemBatch::default() }
}

pub fn insert_requests() -> Vec<Vec<u8>> {
    let one = insert(1, "table", 3).encode_to_vec();
    let waiting = insert(2, "queue", 12).encode_to_vec();
    let cancelled = InsertRequest { request_id: 2, cancel: true, ..InsertRequest::default() }.encode_to_vec();
    let mut seeds = vec![stream(from_ref(&one)), stream(&[one, waiting, cancelled])];
    for times in [1, 3, 300] {
        let trajectories = chunks().iter().map(|chunk| repeated(chunk, times)).collect();
        let request =
            InsertRequest { chunks: chunks(), batches: vec![items(trajectories)], ..InsertRequest::default() };
        seeds.push(stream(&[request.encode_to_vec()]));
        for chunk in chunks() {
            let batch = items(vec![repeated(&chunk, times)]);
            let request = InsertRequest { chunks: vec![chunk], batches: vec![batch], ..InsertRequest::default() };
            seeds.push(stream(&[request.encode_to_vec()]));
        }
    }
    seeds
}

pub fn write_requests() -> Vec<Vec<u8>> {
    let item = |table: &str, key, chunk_key| WriteItem {
        table: table.into(),
        key,
        priority: 1.0,
        chunk_key,
        rows: 1,
        ..WriteItem::default()
    };
    let first = WriteRequest {
        first_sequence: 1,
        chunks: chunks(),
        items: (1..5).map(|chunk_key| item("table", chunk_key, chunk_key)).collect(),
        ..WriteRequest::default()
    };
    let waiting = WriteRequest {
        first_sequence: 5,
        items: (5..17).map(|key| item("queue", key, 1)).collect(),
        release: vec![1, 3],
        settled_through: 4,
        ..WriteRequest::default()
    };
    let trajectory = Some(repeated(&chunks()[1], 300));
    let long = WriteRequest {
        first_sequence: 17,
        items: vec![WriteItem { trajectory, ..item("table", 17, 0) }],
        ..WriteRequest::default()
    };
    let [first, waiting, long] = [first, waiting, long].map(|request| request.encode_to_vec());
    vec![stream(from_ref(&first)), stream(&[first.clone(), long.clone()]), stream(&[first, waiting, long])]
}

pub fn sample_requests() -> Vec<Vec<u8>> {
    let request = |request_id, kind| SampleRequest { request_id, kind: Some(kind) }.encode_to_vec();
    let drawn = request(1, sample_request::Kind::Draw(draw("table", 3)));
    let received = request(1, sample_request::Kind::Received(true));
    let waiting = request(2, sample_request::Kind::Draw(draw("queue", 12)));
    let cancel = request(2, sample_request::Kind::Cancel(true));
    let freed = request(0, sample_request::Kind::Freed(FreedSegment { inode: 7, is_retired: true }));
    let mut ahead = draw("table", 1);
    (ahead.ahead, ahead.timeout_ms) = (63, Some(0));
    let ahead = request(3, sample_request::Kind::Draw(ahead));
    let raced = |table: &str, request_id| request(request_id, sample_request::Kind::Race(race(table, 3, 1000)));
    let choice = |request_id, winners: &[u8]| {
        let winners = winners.iter().flat_map(|&position| [position, 0, 0, 0]).collect::<Vec<_>>();
        request(request_id, sample_request::Kind::Choice(Choice { winners: winners.into() }))
    };
    let of_sizes = Race { by_size: true, hold_ms: 1, interval: 0.5, ..race("table", 16_384, 1) };
    let of_sizes = request(5, sample_request::Kind::Race(of_sizes));
    let wait = |request_id, at_least| {
        let table = "table".into();
        let wait = Wait { table, at_least, of_draws: at_least > 1, min_size_to_sample: 1, is_ahead: false };
        request(request_id, sample_request::Kind::Wait(wait))
    };
    vec![
        stream(&[wait(1, 1), wait(2, 1 << 40), cancel.clone()]),
        stream(from_ref(&drawn)),
        stream(&[drawn.clone(), received.clone(), freed, ahead]),
        stream(&[waiting, drawn, cancel.clone()]),
        stream(&[raced("table", 1), choice(1, &[0, 2]), received]),
        stream(&[raced("table", 1), raced("table", 2), choice(1, &[]), cancel, of_sizes]),
        stream(&[raced("queue", 1), raced("table", 2), choice(2, &[2, 1]), choice(1, &[0])]),
    ]
}

pub fn unary_requests() -> Vec<Vec<u8>> {
    let hello = HelloRequest { version: 1, client_name: "fuzz".into(), capabilities: vec!["new".into()] };
    let mutate = MutateRequest {
        table: "table".into(),
        update_keys: vec![1, 2, 3],
        priorities: vec![0.0, 1.0, 2.5],
        delete_keys: vec![4, 5],
    };
    let peek = PeekRequest { table: "table".into(), count: 5, newest: true };
    let reset = ResetRequest { table: "table".into() };
    let get = GetRequest { table: "table".into(), keys: vec![1, 2, 3, 2], columns: vec![0] };
    let ends = [call(5, &peek), vec![6], call(7, &get)];
    [vec![call(0, &hello), call(1, &mutate), call(2, &reset), vec![3], vec![4]], ends.into()].concat()
}

fn batch() -> Batch {
    let plain = BatchColumn { dtype: 9, shape: vec![2], squeezed: true, ..BatchColumn::default() };
    let ragged = BatchColumn { dtype: 1, shape: vec![3, 2], row_lengths: vec![1, 2], ..BatchColumn::default() };
    let strings = BatchColumn { dtype: 7, shape: vec![2, 1], string_bytes: 14, ..BatchColumn::default() };
    Batch {
        keys: vec![1; 16].into(),
        probabilities: vec![2; 16].into(),
        table_sizes: vec![3; 16].into(),
        priorities: vec![4; 16].into(),
        times_sampled: vec![5; 8].into(),
        columns: vec![plain, ragged, strings],
        signature_token: 1,
        receipt_may_wait: true,
        waited_us: 5,
        segment: Some(Segment { inode: 7, dropped: vec![1, 2] }),
    }
}

fn failure() -> Failure {
    Failure { kind: 3, text: "a, b".into(), name: "table".into(), value: 7, limit: 9, for_good: true }
}

pub fn answers() -> Vec<Vec<u8>> {
    let largest = Largest { table: 0, priority: 7.0, epoch: u64::MAX };
    let (tables, all) = (vec!["table".into()], vec![largest, Largest { table: 9, priority: f64::NAN, epoch: 1 }]);
    let shard = Shard {
        id: 3,
        max_shards: 256,
        cluster: "replay".into(),
        has_foreign_keys: true,
        tables,
        largest: all.clone(),
    };
    let hello = HelloResponse {
        version: 1,
        unix_path: "/tmp/none".into(),
        shard: Some(shard.clone()),
        ..HelloResponse::default()
    };
    let log = LogStatus { mode: "power".into(), failure: Some("full".into()), ..LogStatus::default() };
    let status = TableStatus { insert_wait: "room".into(), log: Some(log), ..TableStatus::default() };
    let info = InfoResponse { server_id: vec![7; 16].into(), tables: vec![status], shard: Some(shard) };
    let item = peek_response::Item { batch: Some(batch()), payload: vec![0; 142].into(), inserted_at: 5 };
    let load = Load { bytes: u64::MAX, waiting_inserts: 1, has_foreign_keys: true, largest: all };
    let inserted = InsertResponse { request_id: 1, load: Some(load.clone()), ..InsertResponse::default() };
    let refused = InsertResponse { request_id: 1, failure: Some(failure()), ..InsertResponse::default() };
    let noticed = InsertResponse { request_id: 1, notice: "waits".into(), ..InsertResponse::default() };
    let written = WriteResponse { first: 1, count: 3, ..WriteResponse::default() };
    let apart = WriteResponse {
        first: 2,
        count: 1,
        confirmed: vec![1],
        failures: vec![WriteFailure { sequence: 3, failure: Some(failure()) }],
        notice: "waits".into(),
        load: Some(load),
        freed: vec![FreedSegment { inode: 7, is_retired: true }],
    };
    let sampled =
        |kind, bytes: usize| SampleResponse { request_id: 1, kind, payload: Payload::Bytes(vec![0; bytes].into()) };
    let begun = sampled(Some(Kind::Batch(batch())), 100).encode_to_vec();
    let rest = sampled(None, 42).encode_to_vec();
    let failed = sampled(Some(Kind::Failure(failure())), 0).encode_to_vec();
    vec![
        call(0, &hello),
        call(1, &info),
        call(2, &PeekResponse { items: vec![item] }),
        call(3, &CheckpointResponse { path: "/tmp/none".into() }),
        vec![4],
        with_method(5, &[noticed.encode_to_vec(), inserted.encode_to_vec()]),
        with_method(5, &[refused.encode_to_vec()]),
        with_method(6, &[written.encode_to_vec()]),
        with_method(6, &[apart.encode_to_vec()]),
        with_method(7, &[begun, rest]),
        with_method(7, &[failed]),
        call(8, &GetResponse { num_keys: 2, places: vec![0, 1], batch: Some(batch()), payload: vec![0; 142].into() }),
    ]
}

/// Reports and publications, as members of the limiter of a cluster send them.
pub fn sums_requests() -> Vec<Vec<u8>> {
    let counts = |shard, inserts| ShardCounts { shard, start: 9, inserts, samples: 3, ..ShardCounts::default() };
    let tally = Some(Tally { counts: vec![counts(1, 5), counts(2, 1 << 47)] });
    let generation = Some(Generation { number: (1 << 48) - 1, shard: 2, start: u64::MAX });
    let report = |shard| {
        let (tally, newest) = (tally.clone(), generation);
        room_message::Kind::Report(RoomReport { shard, tally, newest, has_home: true, wants: 8 })
    };
    let publication = room_message::Kind::Publication(Publication {
        generation,
        sequence: u64::MAX,
        tally: tally.clone(),
        items: u64::MAX,
        insert_room: f64::MAX,
        sample_room: 0.0,
        refill_room: u64::MAX,
        shards: u64::MAX,
        learners: u64::MAX,
        listed_shards: vec![0, 1, 2],
        listed_learners: vec![7],
        silent: vec![1, u32::MAX],
    });
    let counted =
        room_message::Kind::Counted(RoomCounted { count: u64::MAX, shard: 1, start: 9, tally: tally.clone() });
    let request = |kind| {
        let message = Some(RoomMessage { kind: Some(kind) });
        SumsRequest { message, ..SumsRequest::default() }.encode_to_vec()
    };
    let named = SumsRequest { shards: vec![3, 255], ..SumsRequest::default() }.encode_to_vec();
    vec![
        stream(&[request(report(None)), request(report(Some(1))), request(publication.clone())]),
        stream(&[request(publication), named, request(report(Some(2)))]),
        stream(&[request(counted)]),
    ]
}

/// Reports of races, and the batches of their winners.
pub fn race_answers() -> Vec<Vec<u8>> {
    let numbers = |numbers: &[f64]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>().into();
    let report = RaceReport {
        times: numbers(&[0.5, 1.5]),
        weights: numbers(&[1.0, 2.0]),
        weight: 3.0,
        size: 2,
        weight_left: 3.0,
        size_left: 2,
        is_cut: true,
        has_foreign_keys: true,
        largest: Some(Largest { table: 0, priority: 7.0, epoch: 2 }),
        draws_left: Some(4),
        in_order: true,
        limiter: Some(RateLimiter { samples_per_insert: 1.0, min_size_to_sample: 1, min_diff: 0.0, max_diff: 9.0 }),
    };
    let answer = |kind, bytes: usize| {
        let payload = Payload::Bytes(vec![0; bytes].into());
        SampleResponse { request_id: 1, kind: Some(kind), payload }.encode_to_vec()
    };
    let raced = answer(Kind::RaceReport(report.clone()), 0);
    let chosen = answer(Kind::Batch(batch()), 142);
    let failed = answer(Kind::Failure(failure()), 0);
    let empty = answer(Kind::RaceReport(RaceReport::default()), 0);
    let stocked = answer(Kind::Stocked(true), 0);
    let with_bytes = answer(Kind::RaceReport(report), 9);
    [&[raced.clone(), chosen][..], &[raced, failed.clone()], &[failed], &[empty], &[stocked], &[with_bytes]]
        .map(stream)
        .to_vec()
}
