//! Batches arrive bit-exact over the network.

use crate::common::wire::{self, Inserts};
use crate::common::{self, Receive, SOON, addresses, bytes, chunk_of, draw, int64s, queue, server, strings};
use reverb_core::{Codec, DType, Layout, Table, encode_strings};
use reverb_net::client::Client;
use reverb_net::replay_v1::proto::{Chunk, Column, ColumnSpec, InsertRequest, ItemBatch, Slice, Trajectory};
use reverb_service::{Batch, BatchRequest, RowInsert};
use smallvec::smallvec;
use std::time::Instant;

fn soon() -> Option<Instant> {
    Some(Instant::now() + SOON)
}

/// Returns the strings of a column of a batch.
fn texts(batch: &Batch, column: usize) -> Vec<String> {
    let count: usize = batch.layout.columns[column].shape.iter().product();
    let region = bytes(batch, column);
    let end = |i: usize| u32::from_le_bytes(region[4 * i..4 * i + 4].try_into().unwrap()) as usize;
    let text = &region[4 * (count + 1)..];
    (0..count).map(|i| String::from_utf8(text[end(i)..end(i + 1)].to_vec()).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_many_pieces_arrives_bit_exact() {
    // Rows of an odd size, so that pieces end inside a row, and a second column that begins inside a piece.
    const ROWS: usize = 300;
    const ROW: usize = 11_003;
    let server = server(vec![queue("queue", 1000)]);
    let layout = Layout::new(ROWS, [(DType::UInt8, smallvec![ROW], 0), (DType::Int64, smallvec![], 0)]).unwrap();
    let mut data: Vec<u8> = (0..ROWS * ROW).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let first = data.clone();
    data.resize(layout.columns[1].offset, 0);
    data.extend((0..ROWS as i64).flat_map(i64::to_le_bytes));
    let chunk = chunk_of(layout, data);
    assert!(chunk.size_bytes() > 6 * (512 << 10));
    for address in addresses(&server) {
        let client = Client::new(&address);
        let tables = vec![("queue".into(), vec![1.0].into())];
        client
            .insert(RowInsert { chunk: chunk.clone(), more: Vec::new(), rows_per_item: 1, tables }, soon())
            .await
            .unwrap();
        let batch = client.receive(&draw("queue", ROWS), soon()).await.unwrap();
        assert_eq!(batch.layout.columns[0].shape, [ROWS, ROW]);
        assert!(bytes(&batch, 0) == first);
        assert_eq!(int64s(&batch, 1), Vec::from_iter(0..ROWS as i64));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encoded_chunk_is_kept_encoded_and_its_rows_arrive_bit_exact() {
    const ROWS: i64 = 500;
    let server = server(vec![queue("queue", 1000)]);
    let words: Vec<String> = (0..ROWS).map(|row| "word".repeat(row as usize % 5)).collect();
    let region = encode_strings(words.iter().map(|word| word.as_bytes())).unwrap();
    let columns = [(DType::Int64, smallvec![], 0), (DType::String, smallvec![], region.len())];
    let layout = Layout::new(ROWS as usize, columns).unwrap();
    let numbers = Vec::from_iter((0..ROWS).map(|row| row * 1_000_003));
    let mut data: Vec<u8> = numbers.iter().copied().flat_map(i64::to_le_bytes).collect();
    data.extend(region);
    let plain = chunk_of(layout, data);
    for (codec, delta) in [(Codec::Lz4, true), (Codec::Zstd, true), (Codec::Zstd, false)] {
        let chunk = std::sync::Arc::new(plain.compress(codec, &[delta]));
        assert!(chunk.is_encoded() && chunk.size_bytes() < plain.size_bytes());
        for address in [addresses(&server).to_vec(), vec![format!("localhost:{}", server.port())]].concat() {
            let client = Client::new(&address);
            let tables = vec![("queue".into(), vec![1.0].into())];
            client
                .insert(RowInsert { chunk: chunk.clone(), more: Vec::new(), rows_per_item: 1, tables }, soon())
                .await
                .unwrap();
            assert_eq!(server.replay().tables()[0].with_table(Table::bytes), chunk.size_bytes() as u64);
            let batch = client.receive(&draw("queue", ROWS as usize), soon()).await.unwrap();
            assert_eq!(int64s(&batch, 0), numbers);
            assert_eq!(texts(&batch, 1), words);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_drawn_at_the_same_time_on_one_connection_do_not_mix() {
    let server = server(vec![queue("queue", 100_000)]);
    let client = Client::new(&addresses(&server)[0]);
    let values = Vec::from_iter(0..90_000);
    client.insert(common::rows("queue", &values), soon()).await.unwrap();
    let request = draw("queue", 30_000);
    let [a, b, c] = [(); 3].map(|()| client.receive(&request, soon()));
    let (a, b, c) = tokio::join!(a, b, c);
    let mut batches = [a, b, c].map(|batch| int64s(&batch.unwrap(), 0));
    batches.sort();
    assert_eq!(batches.concat(), values);
}

#[tokio::test(flavor = "multi_thread")]
async fn items_of_several_rows_keep_their_time_axis() {
    let server = server(vec![queue("queue", 100)]);
    for address in addresses(&server) {
        let client = Client::new(&address);
        let tables = vec![("queue".into(), vec![1.0, 2.0].into())];
        let chunk = common::chunk(&[1, 2, 3, 4, 5, 6]);
        client.insert(RowInsert { chunk, more: Vec::new(), rows_per_item: 3, tables }, soon()).await.unwrap();
        let batch = client.receive(&draw("queue", 2), soon()).await.unwrap();
        assert_eq!(batch.layout.columns[0].shape, [2, 3]);
        assert_eq!(int64s(&batch, 0), [1, 2, 3, 4, 5, 6]);
        assert_eq!(batch.info.priorities(), [1.0, 2.0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn items_of_different_lengths_arrive_ragged() {
    let server = server(vec![queue("queue", 100)]);
    for address in addresses(&server) {
        let client = Client::new(&address);
        for (rows, chunk) in
            [(2, strings(&["a", "", "ccc", "dd"])), (1, strings(&["é", "f"])), (3, strings(&["", "", "g"]))]
        {
            let tables = vec![("queue".into(), vec![1.0].into())];
            client.insert(RowInsert { chunk, more: Vec::new(), rows_per_item: rows, tables }, soon()).await.unwrap();
        }
        let batch = client.receive(&draw("queue", 5), soon()).await.unwrap();
        let column = &batch.layout.columns[0];
        assert_eq!((&column.shape, &column.row_lengths), (&vec![9], &Some(vec![2, 2, 1, 1, 3])));
        assert_eq!(texts(&batch, 0), ["a", "", "ccc", "dd", "é", "f", "", "", "g"]);
    }
}

/// Returns a chunk of an int64 column that counts from `first`, and a column of float32 pairs.
fn two_columns(key: u64, first: i64, rows: u32) -> Chunk {
    let column = |dtype, shape: &[u64]| ColumnSpec { dtype, shape: shape.to_vec(), ..ColumnSpec::default() };
    let mut data: Vec<u8> = (first..first + i64::from(rows)).flat_map(i64::to_le_bytes).collect();
    data.extend((0..2 * rows).flat_map(|i| (first as f32 + i as f32 / 2.0).to_le_bytes()));
    let columns = vec![column(9, &[]), column(1, &[2])];
    Chunk { key, episode_id: 1, rows, columns, data: data.into(), ..Chunk::default() }
}

fn column(slices: &[(u64, u32, u32, u32)], squeeze: bool) -> Column {
    let slice = |&(chunk_key, column, offset, length): &_| Slice { chunk_key, column, offset, length };
    Column { slices: slices.iter().map(slice).collect(), squeeze }
}

#[tokio::test(flavor = "multi_thread")]
async fn trajectories_of_slices_of_several_chunks_arrive_assembled() {
    let server = server(vec![queue("queue", 100)]);
    let mut service = wire::connect(server.port()).await;
    let mut inserts = Inserts::open(&mut service).await;
    // Rows 2..5 across two chunks, the pairs of the same rows, and the last pair again without a time axis.
    let long = Trajectory {
        columns: vec![
            column(&[(1, 0, 2, 2), (2, 0, 0, 1)], false),
            column(&[(1, 1, 2, 2), (2, 1, 0, 1)], false),
            column(&[(2, 0, 0, 1)], true),
        ],
    };
    let short = Trajectory {
        columns: vec![column(&[(1, 0, 3, 1)], false), column(&[(2, 1, 1, 1)], false), column(&[(1, 0, 0, 1)], true)],
    };
    let batch = ItemBatch {
        table: "queue".into(),
        keys: vec![7, 8],
        priorities: vec![1.0, 2.0],
        trajectories: vec![long, short],
        ..ItemBatch::default()
    };
    let chunks = vec![two_columns(1, 0, 4), two_columns(2, 4, 2)];
    inserts.send(InsertRequest { request_id: 1, chunks, batches: vec![batch], ..InsertRequest::default() });
    assert_eq!(inserts.answer().await.unwrap().failure, None);
    let request = BatchRequest { squeeze_time: false, ..draw("queue", 2) };
    let batch = Client::new(&addresses(&server)[1]).receive(&request, soon()).await.unwrap();
    let shapes: Vec<_> =
        batch.layout.columns.iter().map(|c| (&*c.shape, c.row_lengths.as_deref(), c.squeezed)).collect();
    let lengths = Some(&[3_u32, 1][..]);
    assert_eq!(shapes, [(&[4][..], lengths, false), (&[4, 2][..], lengths, false), (&[2][..], None, true)]);
    assert_eq!(int64s(&batch, 0), [2, 3, 4, 3]);
    assert_eq!(int64s(&batch, 2), [4, 0]);
    let floats: Vec<f32> =
        bytes(&batch, 1).chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    assert_eq!(floats, [2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5]);
    assert_eq!(batch.info.keys(), [7, 8]);
}
