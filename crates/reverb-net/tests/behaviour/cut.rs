//! A table that limits its bytes treats a batch like single inserts of its rows.

use crate::common::{self, Receive, SOON, addresses, bytes, config, draw, int64s, server, strings};
use reverb_core::{DType, EpisodeIds, Error, Layout, SelectorKind, StepRange, Table, TableConfig, random_key};
use reverb_net::client::{Client, Info, Reset};
use reverb_service::{Replay, RowInsert, TableHandle, TableStatus};
use smallvec::smallvec;
use std::sync::Arc;
use std::time::Instant;

const ROW: usize = 1000;

fn soon() -> Option<Instant> {
    Some(Instant::now() + SOON)
}

fn limited(name: &str, remover: &SelectorKind, max_bytes: u64) -> TableHandle {
    let config = TableConfig {
        sampler: SelectorKind::Fifo,
        max_times_sampled: 1,
        remover: remover.clone(),
        max_bytes: Some(max_bytes),
        ..config(name)
    };
    TableHandle::new(Table::new(config).unwrap())
}

/// Returns rows of 1000 bytes. All bytes of a row are the number of the row.
fn batch(rows: std::ops::Range<u8>, tables: &[&str]) -> RowInsert {
    let layout = Layout::new(rows.len(), [(DType::UInt8, smallvec![ROW], 0)]).unwrap();
    let data: Vec<u8> = rows.flat_map(|row| [row; ROW]).collect();
    let tables = tables.iter().map(|&table| (table.into(), vec![1.0].into())).collect();
    RowInsert { chunk: common::chunk_of(layout, data), more: Vec::new(), rows_per_item: 1, tables }
}

/// Returns the same rows in two interleaved columns.
fn interleaved(rows: std::ops::Range<u8>, tables: &[&str]) -> RowInsert {
    let columns = [400, 600].map(|width| (DType::UInt8, smallvec![width], 0));
    let layout = Layout::new(rows.len(), columns).unwrap().interleaved().unwrap();
    let plain = batch(rows, tables);
    RowInsert { chunk: common::chunk_of(layout, plain.chunk.data().to_vec()), ..plain }
}

fn held(table: &TableHandle) -> (u64, u64) {
    let info = table.status().info;
    (info.current_size, info.size_bytes.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_above_max_bytes_leaves_the_same_items_as_single_inserts() {
    for remover in [SelectorKind::Fifo, SelectorKind::Lifo, SelectorKind::Uniform, SelectorKind::MinHeap] {
        let server = server(vec![limited("single", &remover, 10_500), limited("batch", &remover, 10_500)]);
        for address in addresses(&server) {
            let client = Client::new(&address);
            for row in 0..50 {
                client.insert(batch(row..row + 1, &["single"]), soon()).await.unwrap();
            }
            client.insert(batch(0..50, &["batch"]), soon()).await.unwrap();
            for TableStatus { info, .. } in client.call(Info, soon()).await.unwrap() {
                assert!(info.size_bytes <= Some(10_500), "{remover:?}: {:?}", info.size_bytes);
                assert_eq!(info.current_size, 10, "{remover:?}");
            }
            if !matches!(remover, SelectorKind::Uniform) {
                let single = client.receive(&draw("single", 10), soon()).await.unwrap();
                let batch = client.receive(&draw("batch", 10), soon()).await.unwrap();
                assert_eq!(bytes(&single, 0), bytes(&batch, 0), "{remover:?}");
            }
            client.call(Reset { table: "single" }, soon()).await.unwrap();
            client.call(Reset { table: "batch" }, soon()).await.unwrap();
        }
    }
}

#[test]
fn a_batch_evicts_no_more_of_the_older_items_than_it_needs() {
    let table = limited("table", &SelectorKind::Fifo, 16_000);
    let replay = Replay::new(vec![table.clone()], 1 << 20).unwrap();
    for start in [0, 10] {
        reverb_service::local::begin_insert(&replay, &batch(start..start + 10, &["table"]), 1).unwrap();
    }
    let (items, size_bytes) = held(&table);
    assert!((15..=16).contains(&items), "{items} items");
    assert!(size_bytes <= 16_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interleaved_batch_is_cut_in_the_same_way() {
    let server = server(vec![limited("table", &SelectorKind::Fifo, 10_500)]);
    for address in addresses(&server) {
        let client = Client::new(&address);
        client.insert(interleaved(0..50, &["table"]), soon()).await.unwrap();
        let table = &server.replay().tables()[0];
        assert_eq!(held(table), (10, 10_000));
        let batch = client.receive(&draw("table", 10), soon()).await.unwrap();
        for (column, width) in [(0, 400), (1, 600)] {
            assert_eq!(bytes(&batch, column), (40..50).flat_map(|row| vec![row; width]).collect::<Vec<u8>>());
        }
    }
}

#[test]
fn tables_that_share_a_batch_share_its_pieces() {
    let (limited, free) = (limited("limited", &SelectorKind::Fifo, 8_000), common::uniform("free"));
    let replay = Replay::new(vec![limited.clone(), free.clone()], 1 << 20).unwrap();
    let insert = batch(0..20, &["free", "limited"]);
    reverb_service::local::begin_insert(&replay, &insert, 1).unwrap();
    assert_eq!(Arc::strong_count(&insert.chunk), 1, "a table holds the batch itself");
    assert_eq!(held(&free), (20, 20_000));
    assert_eq!(held(&limited), (8, 8_000));
}

#[test]
fn a_row_above_max_bytes_is_refused_with_its_own_size_and_nothing_is_inserted() {
    let (small, large) = (limited("small", &SelectorKind::Fifo, 999), limited("large", &SelectorKind::Fifo, 5_000));
    let replay = Replay::new(vec![large.clone(), small.clone()], 1 << 20).unwrap();
    let error = reverb_service::local::begin_insert(&replay, &batch(0..3, &["large", "small"]), 1).unwrap_err();
    assert_eq!(error, Error::ItemTooLarge { table: "small".into(), size_bytes: 1000, max_bytes: 999 });
    assert_eq!((held(&small), held(&large)), ((0, 0), (0, 0)));
}

#[test]
fn strings_are_cut_by_the_length_of_each() {
    let long = "x".repeat(900);
    let texts: Vec<&str> = (0..40).map(|i| if i % 10 == 0 { long.as_str() } else { "y" }).collect();
    let table = limited("table", &SelectorKind::Fifo, 1000);
    let replay = Replay::new(vec![table.clone()], 1 << 20).unwrap();
    let tables = vec![("table".into(), vec![1.0].into())];
    let insert = RowInsert { chunk: strings(&texts), more: Vec::new(), rows_per_item: 1, tables };
    reverb_service::local::begin_insert(&replay, &insert, 1).unwrap();
    let (items, size_bytes) = held(&table);
    assert!(items >= 9 && size_bytes <= 1000, "{items} items, {size_bytes} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_one_episode_stay_in_their_chunk() {
    let table = limited("table", &SelectorKind::Fifo, 80);
    let server = server(vec![table.clone()]);
    let layout = Arc::new(Layout::new(10, [(DType::Int64, smallvec![], 0)]).unwrap());
    let data: Vec<u8> = (0..10_i64).flat_map(i64::to_le_bytes).collect();
    let chunk = reverb_core::Chunk::new(random_key(), EpisodeIds::Same(1), StepRange::default(), layout, data.into());
    let tables = vec![("table".into(), vec![1.0].into())];
    let client = Client::new(&addresses(&server)[0]);
    client
        .insert(RowInsert { chunk: Arc::new(chunk.unwrap()), more: Vec::new(), rows_per_item: 1, tables }, soon())
        .await
        .unwrap();
    assert_eq!(table.status().info.num_episodes, 1);
    assert_eq!(held(&table), (10, 80));
    assert_eq!(int64s(&client.receive(&draw("table", 10), soon()).await.unwrap(), 0), Vec::from_iter(0..10));
}
