//! Requests that our clients never send. Each gets an error, and the server continues to work.

use crate::common::wire::{self, Inserts, Samples, chunk, compressed, draw, insert, numbers};
use crate::common::{self, SOON, assert_serves, eventually, here, queue, server, uniform};
use reverb_core::Codec;
use reverb_net::replay_v1::proto::{
    Chunk, Column, ColumnSpec, Draw, HelloRequest, InsertRequest, ItemBatch, MutateRequest, ResetRequest, Slice,
    Trajectory, WriteItem, WriteRequest, failure::Kind, sample_request,
};
use reverb_net::server::Server;
use reverb_service::{Call, DrawRequest};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::io::AsyncWriteExt;
use tonic::Code;

static PANICS: AtomicUsize = AtomicUsize::new(0);

fn start() -> Server {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, Relaxed);
            print(info);
        }));
    });
    server(vec![uniform("table"), queue("queue", 1)])
}

async fn assert_unharmed(server: &Server) {
    assert_serves(server, "table").await;
    eventually("all samples are accounted for", || {
        server.replay().status().iter().all(|s| s.info.undelivered_samples == Some(0))
    })
    .await;
    assert_eq!(PANICS.load(Relaxed), 0);
}

fn strings(rows: u32, shape: &[u64], data: &[u32]) -> Chunk {
    let data: Vec<u8> = data.iter().flat_map(|end| end.to_le_bytes()).collect();
    let columns = vec![ColumnSpec { dtype: 7, shape: shape.to_vec(), string_bytes: data.len() as u64, delta: false }];
    Chunk { key: 1, rows, columns, data: data.into(), ..Chunk::default() }
}

fn bad_chunks() -> Vec<(&'static str, Chunk)> {
    let empty = |rows| Chunk { key: 1, rows, ..Chunk::default() };
    vec![
        ("unknown dtype", numbers(1, 99, &[], 8)),
        ("dtype zero", numbers(1, 0, &[], 8)),
        ("shape that overflows", numbers(1, 9, &[1 << 33, 1 << 33], 8)),
        ("shape that wraps to zero", numbers(1, 9, &[1 << 32, 1 << 32], 0)),
        ("more bytes than the address space", numbers(u32::MAX, 9, &[u64::MAX / 8], 8)),
        ("more than a chunk may have", numbers(u32::MAX, 9, &[2], 8)),
        ("too many dimensions", numbers(1, 9, &[1; 65], 8)),
        ("data too short", numbers(1, 9, &[], 7)),
        ("data too long", numbers(1, 9, &[], 9)),
        ("no rows", numbers(0, 9, &[], 0)),
        ("no columns", empty(1)),
        ("many rows without data", numbers((1 << 16) + 1, 9, &[0], 0)),
        ("many rows without data in several columns", {
            let columns = vec![numbers(1, 9, &[0], 0).columns.remove(0); 3];
            Chunk { columns, ..numbers(u32::MAX, 9, &[0], 0) }
        }),
        ("many rows without data, interleaved", Chunk { codec: 3, ..numbers(1 << 24, 9, &[0], 0) }),
        ("many rows without strings", strings(1 << 24, &[0], &[0])),
        ("string ends that descend", strings(2, &[], &[0, 4, 2, 0])),
        ("string ends outside", strings(1, &[], &[0, 100])),
        ("string ends that do not begin at zero", strings(1, &[], &[1, 1])),
        ("too few string ends", strings(5, &[], &[0, 0])),
        ("more strings than can be counted", strings(2, &[1 << 63], &[0, 0])),
        ("string ends whose size wraps to zero", strings(1, &[(1 << 62) - 1], &[])),
        (
            "string region of any size",
            Chunk {
                columns: vec![ColumnSpec { dtype: 7, string_bytes: u64::MAX, ..ColumnSpec::default() }],
                ..strings(1, &[], &[0, 0])
            },
        ),
    ]
}

fn bad_compressed_chunks() -> Vec<(&'static str, Chunk)> {
    let differences = |dtype| vec![ColumnSpec { dtype, shape: vec![1000], string_bytes: 0, delta: true }];
    let mut bad = vec![
        ("unknown codec", Chunk { codec: 4, ..compressed(10, Codec::Lz4) }),
        ("negative codec", Chunk { codec: -1, ..compressed(10, Codec::Lz4) }),
        ("differences without a codec", Chunk { columns: differences(4), ..numbers(1, 4, &[1000], 1000) }),
        ("differences of bools", Chunk { columns: differences(10), ..compressed(10, Codec::Zstd) }),
        ("a codec for the bytes of another", Chunk { codec: 1, ..compressed(10, Codec::Zstd) }),
        ("a codec for the bytes of another", Chunk { codec: 2, ..compressed(10, Codec::Lz4) }),
        ("nothing, compressed", Chunk { codec: 1, ..numbers(1, 4, &[0], 0) }),
        ("nothing, compressed", Chunk { codec: 2, ..numbers(1, 4, &[0], 0) }),
        // A size before the frame, which no codec writes.
        ("a size of 4 GiB", Chunk { codec: 1, ..numbers(1, 4, &[1000], 4) }),
    ];
    let interleaved = |columns, bytes| Chunk { codec: 3, columns, ..numbers(2, 4, &[3], bytes) };
    let (bytes, text) = (numbers(2, 4, &[3], 6).columns, strings(2, &[], &[0; 3]).columns);
    bad.extend([
        ("interleaved rows without bytes", interleaved(bytes.clone(), 0)),
        ("too few bytes of interleaved rows", interleaved([&bytes[..], &bytes].concat(), 11)),
        ("too many bytes of interleaved rows", interleaved([&bytes[..], &bytes].concat(), 14)),
        ("interleaved strings", interleaved([bytes, text].concat(), 18)),
        ("interleaved differences", Chunk { rows: 1, ..interleaved(differences(4), 1000) }),
        (
            "interleaved rows of more bytes than there are",
            Chunk { rows: u32::MAX, ..interleaved(differences(4), 1000) },
        ),
    ]);
    for codec in [Codec::Lz4, Codec::Zstd] {
        let good = || compressed(10, codec);
        let half = good().data.slice(..good().data.len() / 2);
        bad.extend([
            ("bytes for more rows than there are", Chunk { rows: 9, ..good() }),
            ("bytes for fewer rows than there are", Chunk { rows: 11, ..good() }),
            ("a hundred megabytes for one row", Chunk { rows: 1, ..compressed(100_000, codec) }),
            ("half of the bytes", Chunk { data: half, ..good() }),
            ("no bytes", Chunk { data: vec![].into(), ..good() }),
            ("as many bytes as they stand for", Chunk { data: vec![0; 10_000].into(), ..good() }),
            ("zeros", Chunk { data: vec![0; 100].into(), ..good() }),
            ("ones", Chunk { data: vec![255; 100].into(), ..good() }),
            ("strings that cannot be", Chunk { columns: strings(10, &[], &[0; 2500]).columns, ..good() }),
        ]);
    }
    bad
}

fn rows(keys: usize, first_row: u32, rows_per_item: u32) -> ItemBatch {
    let keys = (0..keys as u64).collect();
    ItemBatch { keys, first_row, rows_per_item, ..insert(1, "table", 1).batches.remove(0) }
}

fn slices(slices: &[(u64, u32, u32, u32)], squeeze: bool) -> ItemBatch {
    let slice = |&(chunk_key, column, offset, length): &_| Slice { chunk_key, column, offset, length };
    let columns = vec![Column { slices: slices.iter().map(slice).collect(), squeeze }];
    ItemBatch { trajectories: vec![Trajectory { columns }], ..rows(1, 0, 0) }
}

fn bad_batches() -> Vec<(&'static str, ItemBatch)> {
    let all = slices(&[(1, 0, 0, 4)], false);
    vec![
        ("unknown table", ItemBatch { table: "nowhere".into(), ..rows(1, 0, 1) }),
        ("unknown chunk", ItemBatch { chunk_key: 77, ..rows(1, 0, 1) }),
        ("first row out of range", rows(1, 4, 1)),
        ("too many rows for an item", rows(1, 0, 5)),
        ("too many items", rows(3, 0, 2)),
        ("no rows for an item", rows(2, 0, 0)),
        ("rows that overflow", rows(2, 3, u32::MAX)),
        ("rows that overflow several times", rows(5, u32::MAX, u32::MAX)),
        ("no priority", ItemBatch { priorities: vec![], ..rows(1, 0, 1) }),
        ("too few priorities", ItemBatch { priorities: vec![1.0; 2], ..rows(3, 0, 1) }),
        ("priority NaN", ItemBatch { priorities: vec![f64::NAN], ..rows(1, 0, 1) }),
        ("fewer trajectories than keys", ItemBatch { keys: vec![1, 2], ..all.clone() }),
        ("trajectory without columns", ItemBatch { trajectories: vec![Trajectory::default()], ..all }),
        ("column without slices", slices(&[], false)),
        ("slice of no rows", slices(&[(1, 0, 0, 0)], false)),
        ("slice of an unknown chunk", slices(&[(9, 0, 0, 1)], false)),
        ("slice of an unknown column", slices(&[(1, 1, 0, 1)], false)),
        ("slice out of range", slices(&[(1, 0, 3, 2)], false)),
        ("slice that overflows", slices(&[(1, 0, u32::MAX, u32::MAX)], false)),
        ("squeezed column of two rows", slices(&[(1, 0, 0, 1), (1, 0, 1, 1)], true)),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn each_malformed_insert_gets_a_failure_and_the_stream_continues() {
    let server = start();
    let mut service = wire::connect(server.port()).await;
    let mut inserts = Inserts::open(&mut service).await;
    let bad_chunks = bad_chunks().into_iter().chain(bad_compressed_chunks());
    let chunks = bad_chunks.map(|(what, bad)| (what, vec![bad], rows(1, 0, 1)));
    let batches = bad_batches().into_iter().map(|(what, bad)| (what, vec![chunk(1, 4)], bad));
    // More rows than fit into 32 bits, without data.
    let hollow = [("hollow rows", vec![numbers(u32::MAX, 9, &[0], 0)], rows(5, 0, u32::MAX))];
    for (id, (what, chunks, batch)) in (1..).zip(chunks.chain(batches).chain(hollow)) {
        inserts.send(InsertRequest { request_id: id, chunks, batches: vec![batch], ..InsertRequest::default() });
        let answer = inserts.answer().await.unwrap();
        assert_eq!(answer.request_id, id);
        let failure = answer.failure.unwrap_or_else(|| panic!("{what}: it is taken"));
        assert_ne!(failure.kind(), Kind::Internal, "{what}");
    }
    inserts.send(InsertRequest { request_id: 900, ..InsertRequest::default() });
    assert!(inserts.answer().await.unwrap().failure.is_some(), "nothing");
    inserts.send(InsertRequest { request_id: 12345, cancel: true, ..InsertRequest::default() });
    inserts.send(insert(901, "table", 4));
    assert_eq!(inserts.answer().await.unwrap().failure, None);
    assert_eq!(server.replay().tables()[0].with_table(|table| table.len()), 4, "of all those, only these");
    assert_unharmed(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_without_data_are_drawn() {
    let server = start();
    let mut service = wire::connect(server.port()).await;
    let mut inserts = Inserts::open(&mut service).await;
    let beside = [numbers(1, 9, &[0], 0).columns, numbers(1, 4, &[], 0).columns].concat();
    let chunks = [
        numbers(1 << 16, 9, &[0], 0),
        Chunk { codec: 3, ..numbers(1 << 16, 9, &[0], 0) },
        strings(1 << 16, &[0], &[0]),
        Chunk { columns: beside, ..numbers(100_000, 9, &[0], 100_000) },
    ];
    for (id, chunk) in (1..).zip(chunks) {
        let all = rows(1, 0, chunk.rows);
        inserts.send(InsertRequest { request_id: id, chunks: vec![chunk], batches: vec![all], ..Default::default() });
        assert_eq!(inserts.answer().await.unwrap().failure, None);
        let table = &server.replay().tables()[0];
        let drawn = match table.sample(DrawRequest::exactly(1), here()) {
            Call::Done(drawn) => drawn.unwrap(),
            Call::Waiting(_) => panic!("the table has an item"),
        };
        drop(table.stack(drawn, 1, true).unwrap().gather());
        table.mutate(&[], &[0]).unwrap();
    }
    assert_unharmed(&server).await;
}

/// Strings of 2 MiB in the first row and of nothing in all others, and slices that name the first row many times.
fn long_string(times: usize) -> (Chunk, Trajectory) {
    const ROWS: u32 = 200_000;
    const TEXT: u32 = 2 << 20;
    let mut data: Vec<u8> = (0..=ROWS).flat_map(|row| if row == 0 { [0; 4] } else { TEXT.to_le_bytes() }).collect();
    data.resize(data.len() + TEXT as usize, b'a');
    let columns = vec![ColumnSpec { dtype: 7, string_bytes: data.len() as u64, ..ColumnSpec::default() }];
    let batch = slices(&vec![(1, 0, 0, 1); times], false);
    let chunk = Chunk { key: 1, rows: ROWS, columns, data: data.into(), ..Chunk::default() };
    (chunk, batch.trajectories.into_iter().next().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_of_more_strings_than_a_batch_can_have_is_refused() {
    let server = start();
    let mut service = wire::connect(server.port()).await;
    let mut inserts = Inserts::open(&mut service).await;
    for (id, (times, is_too_large)) in (1..).zip([(2048, true), (2047, false), (100_000, true)]) {
        let (chunk, trajectory) = long_string(times);
        let batch = ItemBatch { trajectories: vec![trajectory.clone()], ..rows(1, 0, 0) };
        let chunks = vec![chunk.clone()];
        inserts.send(InsertRequest { request_id: id, chunks, batches: vec![batch], ..InsertRequest::default() });
        let failure = inserts.answer().await.unwrap().failure;
        let item = WriteItem {
            table: "table".into(),
            key: 5,
            priority: 1.0,
            trajectory: Some(trajectory),
            ..Default::default()
        };
        let (chunks, items) = (vec![chunk], vec![item]);
        let request = WriteRequest { writer_id: id, first_sequence: 1, chunks, items, ..WriteRequest::default() };
        let answer = service.write(tokio_stream::iter([request])).await.unwrap().into_inner().message().await;
        let written = answer.unwrap().unwrap().failures.into_iter().next().and_then(|failure| failure.failure);
        for failure in [failure, written] {
            let kind = failure.as_ref().map(|failure| (failure.kind(), failure.limit));
            assert_eq!(kind, is_too_large.then_some((Kind::ItemTooLarge, u64::from(u32::MAX))), "{failure:?}");
        }
        let table = &server.replay().tables()[0];
        assert_eq!(table.with_table(reverb_core::Table::len), if is_too_large { 0 } else { 2 });
        table.mutate(&[], &[0, 5]).unwrap();
    }
    assert_unharmed(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_insert_of_more_data_than_allowed_names_the_option() {
    let server = start();
    let mut service = wire::connect(server.port()).await;
    let mut inserts = Inserts::open(&mut service).await;
    let limit = common::MAX_MESSAGE_SIZE;
    inserts.send(insert(1, "table", limit as u32 / 8));
    assert_eq!(inserts.answer().await.unwrap().failure, None, "the limit itself is allowed");
    let mut request = insert(2, "table", 1);
    request.chunks.push(numbers(limit as u32 - 7, 4, &[], limit as usize - 7));
    inserts.send(request);
    let failure = inserts.answer().await.unwrap().failure.unwrap();
    assert_eq!((failure.kind(), failure.value, failure.limit), (Kind::MessageTooLarge, limit + 1, limit));
    // Above the allowance for keys and names, the message is not even decoded.
    let data = vec![0; (limit as usize) + (16 << 20) + 1];
    inserts.send(InsertRequest {
        chunks: vec![Chunk { data: data.into(), ..Chunk::default() }],
        ..InsertRequest::default()
    });
    assert_eq!(inserts.answer().await.unwrap_err().code(), Code::OutOfRange);
    assert_unharmed(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_decoded_size_of_compressed_chunks_counts_against_the_limit() {
    let server = start();
    let mut service = wire::connect(server.port()).await;
    let mut inserts = Inserts::open(&mut service).await;
    let limit = common::MAX_MESSAGE_SIZE;
    let bytes = |chunks: &[Chunk]| chunks.iter().map(|chunk| u64::from(chunk.rows) * 1000).sum::<u64>();
    let mut ask = async |id: u64, chunks: Vec<Chunk>| {
        let chunks = (1..).zip(chunks).map(|(key, chunk)| Chunk { key, ..chunk }).collect();
        inserts.send(InsertRequest {
            request_id: id,
            chunks,
            batches: vec![rows(1, 0, 1)],
            ..InsertRequest::default()
        });
        inserts.answer().await.unwrap().failure
    };
    for codec in [Codec::Lz4, Codec::Zstd] {
        let half = compressed((limit / 2000) as u32, codec);
        assert_eq!(ask(1, vec![half.clone(), half.clone()]).await, None);
        for chunks in [vec![half.clone(), half.clone(), half], vec![compressed(1_000_000, codec)]] {
            let decoded = bytes(&chunks);
            let failure = ask(2, chunks).await.unwrap();
            assert_eq!((failure.kind(), failure.limit), (Kind::MessageTooLarge, limit));
            // The chunks after the one that exceeds the limit are not checked.
            assert!(failure.value > limit && failure.value <= decoded, "{}", failure.value);
        }
    }
    assert_unharmed(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_insert_of_millions_of_empty_messages_is_refused_before_it_is_decoded() {
    let server = start();
    let mut service = wire::connect(server.port()).await;
    let mut inserts = Inserts::open(&mut service).await;
    let columns = vec![ColumnSpec::default(); 8 << 20];
    inserts.send(InsertRequest { chunks: vec![Chunk { columns, ..Chunk::default() }], ..InsertRequest::default() });
    let status = inserts.answer().await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert_unharmed(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_malformed_draw_gets_a_failure_and_the_stream_continues() {
    let server = start();
    let mut service = wire::connect(server.port()).await;
    let mut inserts = Inserts::open(&mut service).await;
    inserts.send(insert(1, "table", 4));
    inserts.answer().await.unwrap();
    let mut samples = Samples::open(&mut service).await;
    let bad = [
        ("no table", Draw::default()),
        ("unknown table", draw("nowhere", 1)),
        ("at_least above at_most", Draw { at_least: 2, at_most: 1, ..draw("table", 1) }),
        ("none", draw("table", 0)),
        ("more than there can be", draw("table", u64::MAX)),
    ];
    for (id, (what, bad)) in (1..).zip(bad) {
        samples.draw(id, bad);
        let (answered, answer) = samples.answer().await;
        assert_eq!(answered, id);
        assert_ne!(answer.expect_err(what).kind(), Kind::Internal, "{what}");
    }
    samples.send(50, None);
    assert!(samples.answer().await.1.is_err());
    for kind in [sample_request::Kind::Received(true), sample_request::Kind::Cancel(true)] {
        samples.send(51, Some(kind));
    }
    let most = Draw { at_most: u64::MAX, ahead: u64::MAX, timeout_ms: Some(u64::MAX), ..draw("table", 1) };
    samples.draw(52, most);
    assert_eq!(samples.answer().await.1.unwrap().0.keys.len() / 8, 1 << 20);
    drop((samples, inserts));
    assert_unharmed(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_id_that_is_in_use_is_refused() {
    let server = start();
    let mut service = wire::connect(server.port()).await;
    let mut samples = Samples::open(&mut service).await;
    samples.draw(1, Draw { timeout_ms: Some(u64::MAX), ..draw("queue", 1) });
    samples.draw(1, draw("queue", 1));
    assert_eq!(samples.answer().await.1.unwrap_err().kind(), Kind::InvalidArgument);
    let mut inserts = Inserts::open(&mut service).await;
    inserts.send(InsertRequest { timeout_ms: Some(u64::MAX), ..insert(1, "queue", 3) });
    // The waiting draw takes one item, one fits into the table, and one waits.
    let (id, batch) = samples.answer().await;
    assert_eq!((id, batch.unwrap().0.keys.len() / 8), (1, 1));
    samples.draw(1, draw("queue", 1));
    assert_eq!(samples.answer().await.1.unwrap_err().kind(), Kind::InvalidArgument, "not received yet");
    inserts.send(insert(1, "queue", 1));
    assert_eq!(inserts.answer().await.unwrap().failure.unwrap().kind(), Kind::InvalidArgument);
    drop((samples, inserts, service));
    assert_unharmed(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_calls_get_a_status() {
    let server = start();
    let mut service = wire::connect(server.port()).await;
    let code = |result: Result<(), tonic::Status>| result.unwrap_err().code();
    let hello = service.hello(HelloRequest::default()).await;
    assert_eq!(code(hello.map(drop)), Code::InvalidArgument);
    assert_eq!(
        service
            .hello(HelloRequest { version: u32::MAX, ..HelloRequest::default() })
            .await
            .unwrap()
            .into_inner()
            .version,
        1
    );
    let mutate = |table: &str, update_keys, priorities| MutateRequest {
        table: table.into(),
        update_keys,
        priorities,
        delete_keys: vec![0, u64::MAX],
    };
    for (request, expected) in [
        (mutate("nowhere", vec![], vec![]), Code::NotFound),
        (mutate("table", vec![1], vec![]), Code::InvalidArgument),
        (mutate("table", vec![1], vec![f64::NAN]), Code::InvalidArgument),
    ] {
        assert_eq!(code(service.mutate(request).await.map(drop)), expected);
    }
    assert_eq!(code(service.reset(ResetRequest { table: "nowhere".into() }).await.map(drop)), Code::NotFound);
    assert_unharmed(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_and_half_frames_on_the_port_do_no_harm() {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let server = start();
    let settings: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    let half: &[u8] = &[0, 0xff, 0xff, 0, 0, 0, 0, 0, 1, 7, 7];
    let huge: &[u8] = &[0xff; 64];
    for parts in [
        &[huge][..],
        &[PREFACE, huge],
        &[PREFACE, settings, half],
        &[PREFACE, settings, huge],
        &[b"GET / HTTP/1.1\r\n\r\n"],
    ] {
        for _ in 0..20 {
            let mut tcp = tokio::net::TcpStream::connect(("127.0.0.1", server.port())).await.unwrap();
            let mut unix = tokio::net::UnixStream::connect(server.unix_path().unwrap()).await.unwrap();
            for part in parts {
                // The server may have closed the connection already.
                let _gone = (tcp.write_all(part).await, unix.write_all(part).await);
            }
        }
    }
    assert_unharmed(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_streams_that_are_opened_and_dropped_leave_nothing_behind() {
    let server = start();
    for _ in 0..30 {
        let mut service = wire::connect(server.port()).await;
        let mut open = Vec::new();
        for id in 0..100 {
            let samples = Samples::open(&mut service).await;
            samples.draw(id, draw("queue", 1));
            open.push(samples);
        }
        drop(open);
    }
    let waiting = || server.replay().tables()[1].status().info.waiting_samples.unwrap();
    tokio::time::timeout(SOON, eventually("all draws are withdrawn", || waiting() == 0)).await.unwrap();
    assert_unharmed(&server).await;
}
