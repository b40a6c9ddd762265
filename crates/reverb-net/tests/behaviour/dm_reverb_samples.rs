//! Sample streams of dm-reverb's service: requests, waiting, delivery, and what responses are made of.

use crate::common::dm_reverb_client::{Samples, channel, sample, samples};
use crate::common::{self, eventually, here, items, queue, server, uniform};
use reverb_core::{DType, EpisodeIds, Layout, NewItem, Trajectory};
use reverb_formats::proto::schema::sample_stream_response::SampleEntry;
use reverb_formats::proto::schema::{ChunkData, SampleStreamResponse};
use reverb_service::{Call, TableHandle};
use smallvec::smallvec;
use std::sync::Arc;
use tonic::{Code, Status};

type Stream = Samples<SampleStreamResponse>;

fn insert(table: &TableHandle, items: Vec<NewItem>) {
    assert!(matches!(table.insert(items, here()), Call::Done(Ok(()))));
}

/// Receives entries until `count` samples have ended.
async fn entries(stream: &mut Stream, count: usize) -> Result<Vec<SampleEntry>, Status> {
    let mut entries: Vec<SampleEntry> = Vec::new();
    while entries.iter().filter(|entry| entry.end_of_sequence).count() < count {
        entries.extend(stream.answer().await?.entries);
    }
    Ok(entries)
}

fn keys(entries: &[SampleEntry]) -> Vec<u64> {
    entries.iter().filter_map(|entry| Some(entry.info.as_ref()?.item.as_ref()?.key)).collect()
}

/// A byte of data that does not compress.
fn noise(at: u64) -> u8 {
    let mixed = (at ^ (at >> 7)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93).to_le_bytes()[7]
}

/// An item of one row of each of these chunks of bytes.
fn item_of(key: u64, chunk_bytes: &[usize]) -> NewItem {
    let column = |&size: &usize| {
        let layout = Layout::new(1, [(DType::UInt8, smallvec![size], 0)]).unwrap();
        let data: Vec<u8> = (0..size as u64).map(noise).collect();
        let chunk = common::chunk_of(layout, data);
        let slices = smallvec![reverb_core::Slice { chunk, column: 0, offset: 0, length: 1 }];
        reverb_core::TrajectoryColumn { slices, squeeze: false }
    };
    let trajectory = Trajectory::columns(chunk_bytes.iter().map(column).collect()).unwrap();
    NewItem { key, priority: 1.0, takes_largest: false, others: None, times_sampled: 0, trajectory }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_gets_exactly_its_samples_and_the_next_may_ask_for_another_table() {
    let (first, second) = (queue("first", 1000), uniform("second"));
    insert(&first, items(0..500));
    insert(&second, items([7]));
    let server = server(vec![first.clone(), second]);
    let mut stream: Stream = samples(&channel(server.port()).await).await;
    // The second request is read after the first is answered.
    stream.send(sample("first", 300, Some(-1)));
    stream.send(sample("second", 2, None));
    let got = entries(&mut stream, 300).await.unwrap();
    assert_eq!(keys(&got), (0..300).collect::<Vec<_>>());
    assert_eq!(keys(&entries(&mut stream, 2).await.unwrap()), [7, 7]);
    assert_eq!(first.with_table(|table| table.len()), 200);
    assert_eq!(first.status().info.undelivered_samples, Some(0));
    drop(stream.requests);
    assert!(stream.responses.message().await.unwrap().is_none(), "the stream ends well");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_few_samples_come_in_one_response_with_the_counts_of_the_draw() {
    let table = uniform("table");
    insert(&table, items([5]));
    let server = server(vec![table]);
    let mut stream: Stream = samples(&channel(server.port()).await).await;
    stream.send(sample("table", 3, Some(-1)));
    let response = stream.answer().await.unwrap();
    assert_eq!(response.entries.len(), 3);
    for (entry, times_sampled) in response.entries.iter().zip(1..) {
        let info = entry.info.as_ref().unwrap();
        let item = info.item.as_ref().unwrap();
        assert!(entry.end_of_sequence && !info.rate_limited);
        assert_eq!((info.probability, info.table_size), (1.0, 1));
        assert_eq!((item.key, &*item.table, item.priority, item.times_sampled), (5, "table", 1.0, times_sampled));
        assert!(item.inserted_at.as_ref().unwrap().seconds > 0);
        let column = &item.flat_trajectory.as_ref().unwrap().columns[0];
        let [chunk] = &entry.data[..] else { panic!("{} chunks", entry.data.len()) };
        assert_eq!((column.chunk_slices[0].chunk_key, column.chunk_slices[0].length), (chunk.chunk_key, 1));
        assert_eq!(int64s(chunk), [5]);
    }
}

/// The values of a chunk of one column.
fn int64s(chunk: &ChunkData) -> Vec<i64> {
    let tensor = &chunk.data.as_ref().unwrap().tensors[0];
    let bytes = snap::raw::Decoder::new().decompress_vec(&tensor.tensor_content).unwrap();
    bytes.chunks_exact(8).map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_end_the_stream_with_the_texts_that_clients_know() {
    let server = server(vec![uniform("table")]);
    let channel = channel(server.port()).await;
    for (request, code, text) in [
        (sample("table", 0, None), Code::InvalidArgument, "`num_samples` must be > 0 (got0)."),
        (sample("table", -5, None), Code::InvalidArgument, "`num_samples` must be > 0 (got-5)."),
        (sample("nope", 1, None), Code::NotFound, "Priority table nope was not found"),
        (
            sample("table", 2, Some(50)),
            Code::DeadlineExceeded,
            "Rate Limiter: Timeout exceeded before the right to insert was acquired.",
        ),
    ] {
        let mut stream: Stream = samples(&channel).await;
        stream.send(request);
        let status = stream.answer().await.unwrap_err();
        assert_eq!((status.code(), status.message()), (code, text));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_positive_timeout_ends_a_wait() {
    for timeout_ms in [None, Some(0), Some(-1), Some(-50), Some(i64::MAX)] {
        let table = uniform("table");
        let server = server(vec![table.clone()]);
        let mut stream: Stream = samples(&channel(server.port()).await).await;
        stream.send(sample("table", 1, timeout_ms));
        eventually("the draw waits", || table.status().info.waiting_samples == Some(1)).await;
        insert(&table, items([1]));
        let got = entries(&mut stream, 1).await.unwrap();
        assert!(got[0].info.as_ref().unwrap().rate_limited);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_that_can_be_drawn_do_not_wait_for_the_others_of_their_request() {
    let table = queue("table", 10);
    insert(&table, items([1, 2]));
    let server = server(vec![table.clone()]);
    let mut stream: Stream = samples(&channel(server.port()).await).await;
    stream.send(sample("table", 4, Some(-1)));
    assert_eq!(keys(&entries(&mut stream, 2).await.unwrap()), [1, 2]);
    eventually("the draw waits", || table.status().info.waiting_samples == Some(1)).await;
    insert(&table, items([3]));
    assert_eq!(keys(&entries(&mut stream, 1).await.unwrap()), [3]);
    insert(&table, items([4]));
    assert_eq!(keys(&entries(&mut stream, 1).await.unwrap()), [4]);

    // Then the time of the next wait counts alone.
    insert(&table, items([5]));
    stream.send(sample("table", 2, Some(20)));
    assert_eq!(keys(&entries(&mut stream, 1).await.unwrap()), [5]);
    assert_eq!(stream.answer().await.unwrap_err().code(), Code::DeadlineExceeded);
    assert_eq!(table.status().info.waiting_samples, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_sample_goes_on_in_another_response() {
    let table = queue("table", 10);
    insert(&table, vec![item_of(1, &[700_000; 5]), item_of(2, &[10])]);
    let server = server(vec![table]);
    let mut stream: Stream = samples(&channel(server.port()).await).await;
    stream.send(sample("table", 2, None));
    let responses = [stream.answer().await.unwrap(), stream.answer().await.unwrap()];
    let shapes = responses.map(|response| {
        let shape = |entry: &SampleEntry| (entry.info.is_some(), entry.data.len(), entry.end_of_sequence);
        response.entries.iter().map(shape).collect::<Vec<_>>()
    });
    assert_eq!(shapes, [vec![(true, 3, false)], vec![(false, 2, true), (true, 1, true)]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_leaves_samples_to_others() {
    const COUNT: u64 = 200;
    let table = queue("table", COUNT);
    for key in 0..COUNT {
        insert(&table, vec![item_of(key, &[400_000])]);
    }
    let server = server(vec![table.clone()]);
    let channel = channel(server.port()).await;
    let slow: Stream = samples(&channel).await;
    slow.send(sample("table", COUNT as i64, None));
    eventually("the first samples are on their way", || table.with_table(|table| table.len()) < COUNT as usize).await;
    let mut other: Stream = samples(&channel).await;
    // The window of the connection, which is 20 samples, and two responses of 6 samples each.
    let left = COUNT as usize - 40;
    other.send(sample("table", left as i64, None));
    assert_eq!(entries(&mut other, left).await.unwrap().len(), left);
    drop(slow);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_disconnects_takes_nothing_with_it() {
    let table = queue("table", 1000);
    let server = server(vec![table.clone()]);
    let channel = channel(server.port()).await;
    let stream: Stream = samples(&channel).await;
    stream.send(sample("table", 5, None));
    eventually("the draw waits", || table.status().info.waiting_samples == Some(1)).await;
    drop(stream);
    eventually("the draw is withdrawn", || table.status().info.waiting_samples == Some(0)).await;
    insert(&table, items([1]));
    assert_eq!(table.with_table(|table| table.len()), 1);

    // Samples that wait for room in the connection return.
    insert(&table, (2..400).map(|key| item_of(key, &[100_000])).collect());
    let stream: Stream = samples(&channel).await;
    stream.send(sample("table", 1000, None));
    eventually("samples wait for room", || {
        table.status().info.undelivered_samples > Some(0) || table.status().info.current_size == 0
    })
    .await;
    drop(stream);
    eventually("they are back", || table.status().info.undelivered_samples == Some(0)).await;
    assert!(table.with_table(|table| table.len()) > 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_streams_so_that_clients_try_again() {
    let table = queue("table", 10);
    let mut server = server(vec![table.clone()]);
    let channel = channel(server.port()).await;
    let (mut waiting, mut idle): (Stream, Stream) = (samples(&channel).await, samples(&channel).await);
    waiting.send(sample("table", 1, None));
    eventually("the draw waits", || table.status().info.waiting_samples == Some(1)).await;
    server.stop().unwrap();
    let status = waiting.answer().await.unwrap_err();
    assert_eq!(status.code(), Code::Cancelled);
    assert!(status.message().starts_with("RateLimiter has been cancelled"), "{status:?}");
    let status = idle.answer().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_of_a_large_batch_is_sent_with_its_own_row_only() {
    let rows: Vec<i64> = (0..1000).collect();
    let plain = common::chunk(&rows);
    let encoded = Arc::new(plain.compress(reverb_core::Codec::Lz4, &[true]));
    let interleaved = Arc::new(plain.interleave().unwrap());
    assert!(encoded.is_compressed());
    let table = queue("table", 10);
    for (key, chunk) in (0..).zip([&plain, &encoded, &interleaved]) {
        let trajectory = Trajectory::rows(chunk.clone(), 123, 2).unwrap();
        insert(
            &table,
            vec![NewItem { key, priority: 1.0, takes_largest: false, others: None, times_sampled: 0, trajectory }],
        );
    }
    let whole = Trajectory::rows(plain.clone(), 0, 600).unwrap();
    insert(
        &table,
        vec![NewItem {
            key: 3,
            priority: 1.0,
            takes_largest: false,
            others: None,
            times_sampled: 0,
            trajectory: whole,
        }],
    );
    let server = server(vec![table]);
    let mut stream: Stream = samples(&channel(server.port()).await).await;
    stream.send(sample("table", 4, None));
    let got = entries(&mut stream, 4).await.unwrap();
    let EpisodeIds::PerRow(first) = plain.episodes else { panic!() };
    for entry in &got[..3] {
        assert_eq!(int64s(&entry.data[0]), [123, 124]);
        assert_eq!(entry.data[0].chunk_key, plain.key);
        let range = entry.data[0].sequence_range.as_ref().unwrap();
        assert_eq!((range.episode_id, range.start, range.end), (first.wrapping_add(123), 0, 1));
        let trajectory = entry.info.as_ref().unwrap().item.as_ref().unwrap().flat_trajectory.as_ref().unwrap();
        let slice = &trajectory.columns[0].chunk_slices[0];
        assert_eq!((slice.offset, slice.length, slice.index), (0, 2, 0));
    }
    assert_eq!(int64s(&got[3].data[0]), rows);
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_that_share_a_key_are_told_apart() {
    let chunk = |value: i64| {
        let chunk = common::chunk(&[value]);
        let layout = chunk.layout().clone();
        Arc::new(reverb_core::Chunk::new(99, chunk.episodes, chunk.steps, layout, chunk.data().clone()).unwrap())
    };
    let column = |value| reverb_core::TrajectoryColumn {
        slices: smallvec![reverb_core::Slice { chunk: chunk(value), column: 0, offset: 0, length: 1 }],
        squeeze: false,
    };
    let count = 40;
    let trajectory = Trajectory::columns((0..count).map(column).collect()).unwrap();
    let table = queue("table", 10);
    insert(
        &table,
        vec![NewItem { key: 1, priority: 1.0, takes_largest: false, others: None, times_sampled: 0, trajectory }],
    );
    let server = server(vec![table]);
    let mut stream: Stream = samples(&channel(server.port()).await).await;
    stream.send(sample("table", 1, None));
    let entry = entries(&mut stream, 1).await.unwrap().remove(0);
    let trajectory = entry.info.unwrap().item.unwrap().flat_trajectory.unwrap();
    for (column, value) in trajectory.columns.iter().zip(0..) {
        let key = column.chunk_slices[0].chunk_key;
        let chunks: Vec<_> = entry.data.iter().filter(|chunk| chunk.chunk_key == key).map(int64s).collect();
        assert_eq!(chunks, [[value]]);
    }
}
