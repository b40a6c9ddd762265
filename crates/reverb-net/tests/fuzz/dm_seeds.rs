//! Valid messages of dm-reverb's protocol: those that it recorded, for the tables of the fuzzed server.

use crate::common::dm_inserts::{chunk, chunk_of, from_hex, golden, item, item_of, literal, request, slice, tensor};
use crate::dm_targets::{samples, server_info};
use crate::seeds::{call, stream, with_method};
use bytes::Bytes;
use prost::Message;
use reverb_formats::proto::schema::PrioritizedItem;
use reverb_formats::proto::tensorflow::TensorProto;
use reverb_net::dm_reverb::proto::sample_stream_response::SampleEntry;
use reverb_net::dm_reverb::proto::{
    InitializeConnectionRequest, InsertStreamRequest, InsertStreamResponse, KeyWithPriority, MutatePrioritiesRequest,
    ResetRequest, SampleInfo, SampleStreamRequest, SampleStreamResponse,
};
use std::slice::from_ref;

/// The recorded requests of an insert stream, with the names of the fuzzed server's tables.
fn recorded() -> Vec<Vec<Vec<u8>>> {
    let rename = |message: &Bytes| {
        let item = PrioritizedItem::decode(message.clone()).unwrap();
        Bytes::from(PrioritizedItem { table: "table".into(), ..item }.encode_to_vec())
    };
    let vectors = golden(include_str!("../../../../tests/data/insert_stream.json"));
    let of_vector = |vector: &serde_json::Value| {
        let events = vector["events"].as_array().unwrap().iter();
        let requests = events.filter(|event| event["message"] == "deepmind.reverb.InsertStreamRequest");
        let requests = requests.map(|event| {
            let mut request = InsertStreamRequest::decode(&*from_hex(&event["hex"])).unwrap();
            request.items = request.items.iter().map(rename).collect();
            request.encode_to_vec()
        });
        requests.collect()
    };
    vectors.iter().map(of_vector).collect()
}

/// Requests with each recorded chunk, and an item of its first row.
fn recorded_chunks() -> Vec<Vec<u8>> {
    let vectors = golden(include_str!("../../../../tests/data/chunks.json"));
    let chunks = vectors.iter().map(|vector| from_hex(&vector["hex"])).filter(|chunk| chunk.len() < 2000);
    let of_chunk = |chunk: Vec<u8>| {
        let key = reverb_formats::chunk::key_of(&chunk).unwrap();
        let items = vec![item("table", 1, key).encode_to_vec().into()];
        InsertStreamRequest { chunks: vec![chunk.into()], items, keep_chunk_keys: vec![key] }.encode_to_vec()
    };
    chunks.map(of_chunk).collect()
}

pub fn dm_insert_requests() -> Vec<Vec<u8>> {
    let mut seeds: Vec<_> = recorded().iter().map(|requests| stream(requests)).collect();
    seeds.extend(recorded_chunks().iter().map(|request| stream(from_ref(request))));
    // Zeros that compress, a text that is repeated, rows without bytes.
    let zeros = {
        let mut snappy = vec![0x80, 0x40, 0x00, 0x00];
        snappy.extend([0xfe, 1, 0].repeat(8191 / 64));
        snappy.extend([((8191 % 64 - 1) << 2) as u8 | 2, 1, 0]);
        chunk_of(1, vec![tensor(9, &[1024], snappy)])
    };
    let text = TensorProto { string_val: vec![vec![b'x'; 100].into()], ..tensor(7, &[100], vec![]) };
    let empty = chunk_of(3, vec![tensor(9, &[65_536, 0], vec![0])]);
    for times in [1, 3, 300] {
        for chunk in [&zeros, &chunk_of(2, vec![text.clone()]), &empty] {
            let item = item_of("table", 1, vec![slice(chunk.chunk_key, 0, 3); times]);
            let key = chunk.chunk_key;
            seeds.push(stream(&[request(from_ref(chunk), &[item], &[key]).encode_to_vec()]));
        }
    }
    let waiting: Vec<_> = (0..12).map(|key| item("queue", key, 1)).collect();
    let held = request(&[chunk(1, &[1, 2, 3])], &[], &[]).encode_to_vec();
    seeds.push(stream(&[held, request(&[], &waiting, &[1]).encode_to_vec()]));
    let mixed = chunk_of(5, vec![tensor(9, &[2], literal(&[7; 16])), tensor(7, &[2], vec![1, 1, b'a', b'b'])]);
    seeds.push(stream(&[request(&[mixed], &[item("table", 1, 5)], &[5]).encode_to_vec()]));
    seeds
}

pub fn dm_sample_requests() -> Vec<Vec<u8>> {
    let [one, many, last] = [1, 300, -1].map(|count| samples("table", count).encode_to_vec());
    let waiting = samples("queue", 12).encode_to_vec();
    let nowhere = samples("nowhere", 1).encode_to_vec();
    let forever = SampleStreamRequest { rate_limiter_timeout: None, ..samples("table", 2) }.encode_to_vec();
    vec![stream(&[one.clone(), many, forever]), stream(&[waiting]), stream(&[one, last]), stream(&[nowhere])]
}

pub fn dm_unary_requests() -> Vec<Vec<u8>> {
    let updates = [(1, 0.5), (u64::MAX, 2.0)].map(|(key, priority)| KeyWithPriority { key, priority }).to_vec();
    let mutate = MutatePrioritiesRequest { table: "table".into(), updates, delete_keys: vec![3, 4] };
    let reset = ResetRequest { table: "table".into() };
    let handshake = InitializeConnectionRequest { pid: 123, table_name: "table".into(), ownership_transferred: true };
    vec![call(0, &mutate), call(1, &reset), vec![2], vec![3], call(4, &handshake)]
}

pub fn dm_answers() -> Vec<Vec<u8>> {
    let keys = InsertStreamResponse { keys: vec![1, 2] }.encode_to_vec();
    let info = |key| {
        let item = item_of("table", key, vec![slice(1, 0, 2)]).encode_to_vec().into();
        Some(SampleInfo { item, probability: 0.5, table_size: 2, ..SampleInfo::default() })
    };
    let data = |key| vec![Bytes::from(chunk(key, &[1, 2, 3]).encode_to_vec())];
    let entry = |key| SampleEntry { info: info(key), data: data(1), end_of_sequence: true };
    let sampled = SampleStreamResponse { entries: vec![entry(1), entry(2)] }.encode_to_vec();
    let begun = SampleStreamResponse {
        entries: vec![entry(1), SampleEntry { info: info(2), data: data(7), end_of_sequence: false }],
    };
    let ended =
        SampleStreamResponse { entries: vec![SampleEntry { data: data(1), end_of_sequence: true, info: None }] };
    vec![
        call(0, &server_info()),
        with_method(1, &[sampled]),
        with_method(1, &[begun.encode_to_vec(), ended.encode_to_vec()]),
        with_method(2, &[keys]),
    ]
}
