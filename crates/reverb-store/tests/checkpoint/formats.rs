//! Records of the reference, old formats of them, and invalid bytes.

use crate::LIMIT;
use crate::world::{handle, options, temp_dir};
use proptest::prelude::*;
use prost::Message;
use reverb_core::{Error, SelectorKind};
use reverb_formats::proto::schema::flat_trajectory::{ChunkSlice, Column};
use reverb_formats::proto::schema::{
    ChunkData, FlatTrajectory, KeyDistributionOptions, PrioritizedItem, PriorityTableCheckpoint, RateLimiterCheckpoint,
    SliceRange, chunk_data, key_distribution_options::Distribution,
};
use reverb_formats::proto::tensorflow::{TensorProto, TensorShapeProto, tensor_shape_proto::Dim};
use reverb_formats::table::decode_table;
use reverb_formats::tfrecord::{RecordReader, RecordWriter, put_record};
use reverb_service::write_ledger::Ledgers;
use reverb_store::checkpoint::Checkpointer;
use std::fs;
use std::path::Path;

fn golden() -> Vec<(String, Vec<u8>)> {
    let file: serde_json::Value = serde_json::from_str(include_str!("../../../../tests/data/checkpoint.json")).unwrap();
    let bytes =
        |text: &str| (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect();
    let vectors = file["vectors"].as_array().unwrap().iter();
    vectors.map(|v| (v["name"].as_str().unwrap().into(), bytes(v["hex"].as_str().unwrap()))).collect()
}

#[test]
fn golden_tables_decode() {
    let mut count = 0;
    for (name, bytes) in golden().iter().filter(|(name, _)| name.starts_with("table:")) {
        let record = decode_table(bytes).unwrap();
        let message = PriorityTableCheckpoint::decode(&bytes[..]).unwrap();
        let config = &record.config;
        assert_eq!(format!("table:{}", config.name), *name);
        assert_eq!(config.max_size as i64, message.max_size);
        assert_eq!(config.max_times_sampled, message.max_times_sampled);
        let limiter = message.rate_limiter.unwrap();
        assert_eq!(config.rate_limiter.max_diff, limiter.max_diff);
        assert_eq!(
            (record.counts.inserts, record.counts.samples, record.counts.deletes),
            (limiter.insert_count, limiter.sample_count, limiter.delete_count)
        );
        assert_eq!(record.counts.num_unique_samples as i64, message.num_unique_samples);
        assert_eq!(config.signature.is_some(), message.signature.is_some());
        count += 1;
    }
    assert!(count >= 4, "{count}");
}

/// A checkpoint of the reference is loaded and saved again with identical records.
#[test]
fn golden_records_are_saved_again_as_they_were() {
    let vectors = golden();
    let records = |prefix: &str| -> Vec<Vec<u8>> {
        vectors.iter().filter(|(name, _)| name.starts_with(prefix)).map(|(_, bytes)| bytes.clone()).collect()
    };
    let (tables, items, chunks) = (records("table:"), records("item"), records("chunk"));
    let root = temp_dir();
    write_checkpoint(&root.join("2026-01-01T00:00:00+00:00"), &tables, Some(&items), &chunks, Some(6));
    let handles: Vec<_> = tables
        .iter()
        .map(|table| handle(&decode_table(table).unwrap().config.name, SelectorKind::Uniform, 5))
        .collect();
    let checkpointer = Checkpointer::open(options(&root)).unwrap();
    checkpointer.restore(&handles, &Ledgers::default(), LIMIT).unwrap();
    let saved = checkpointer.save(&handles).unwrap();
    for (file, expected) in [("tables.tfrecord", &tables), ("items.tfrecord", &items), ("chunks.tfrecord", &chunks)] {
        assert_eq!(read_all(&fs::read(saved.join(file)).unwrap()).unwrap(), *expected, "{file}");
    }
}

fn record_file(records: &[Vec<u8>], level: Option<u32>) -> Vec<u8> {
    let mut writer = RecordWriter::new(Vec::new(), level.unwrap_or(0));
    let mut framed = Vec::new();
    records.iter().for_each(|record| put_record(&mut framed, record));
    writer.write_framed(&framed).unwrap();
    let bytes = writer.finish().unwrap();
    if level.is_some() {
        return bytes;
    }
    let mut plain = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::ZlibDecoder::new(&bytes[..]), &mut plain).unwrap();
    plain
}

fn write_checkpoint(
    path: &Path,
    tables: &[Vec<u8>],
    items: Option<&[Vec<u8>]>,
    chunks: &[Vec<u8>],
    level: Option<u32>,
) {
    fs::create_dir_all(path).unwrap();
    fs::write(path.join("tables.tfrecord"), record_file(tables, level)).unwrap();
    fs::write(path.join("chunks.tfrecord"), record_file(chunks, level)).unwrap();
    if let Some(items) = items {
        fs::write(path.join("items.tfrecord"), record_file(items, level)).unwrap();
    }
    fs::write(path.join("DONE"), "").unwrap();
}

fn table_message(items: Vec<PrioritizedItem>) -> PriorityTableCheckpoint {
    let fifo = KeyDistributionOptions { distribution: Some(Distribution::Fifo(true)), is_deterministic: true };
    PriorityTableCheckpoint {
        table_name: "a".into(),
        deprecated_items: items,
        rate_limiter: Some(RateLimiterCheckpoint {
            samples_per_insert: 1.0,
            min_size_to_sample: 1,
            min_diff: -5.0,
            max_diff: 5.0,
            ..RateLimiterCheckpoint::default()
        }),
        sampler: Some(fifo),
        remover: Some(fifo),
        max_size: 2,
        ..PriorityTableCheckpoint::default()
    }
}

fn chunk_message(key: u64, first: u8) -> ChunkData {
    let dim = [3, 1].map(|size| Dim { size, ..Dim::default() }).to_vec();
    let content = snap::raw::Encoder::new().compress_vec(&[first, first + 1, first + 2]).unwrap();
    let tensor = TensorProto {
        dtype: 4,
        tensor_shape: Some(TensorShapeProto { dim, ..TensorShapeProto::default() }),
        tensor_content: content.into(),
        ..TensorProto::default()
    };
    ChunkData { chunk_key: key, data: Some(chunk_data::Data { tensors: vec![tensor] }), ..ChunkData::default() }
}

fn old_item(key: u64, offset: i32, length: i32) -> PrioritizedItem {
    PrioritizedItem {
        key,
        table: "a".into(),
        priority: 1.0,
        deprecated_chunk_keys: vec![10, 20],
        deprecated_sequence_range: Some(SliceRange { offset, length }),
        ..PrioritizedItem::default()
    }
}

fn new_item(key: u64, chunk_key: u64) -> PrioritizedItem {
    let slice = ChunkSlice { chunk_key, offset: 0, length: 2, index: 0 };
    PrioritizedItem {
        key,
        table: "a".into(),
        priority: 1.0,
        flat_trajectory: Some(FlatTrajectory { columns: vec![Column { chunk_slices: vec![slice], squeeze: false }] }),
        ..PrioritizedItem::default()
    }
}

fn load(root: &Path) -> Result<reverb_service::TableHandle, Error> {
    let table = handle("a", SelectorKind::Lifo, 50);
    Checkpointer::open(options(root))
        .unwrap()
        .restore(std::slice::from_ref(&table), &Ledgers::default(), LIMIT)
        .map(|_| table)
}

fn chunks() -> Vec<Vec<u8>> {
    [(10, 0), (20, 50)].map(|(key, first)| chunk_message(key, first).encode_to_vec()).to_vec()
}

#[test]
fn old_forms_are_loaded() {
    for level in [None, Some(0), Some(6)] {
        let root = temp_dir();
        let table = table_message(vec![old_item(1, 1, 4), old_item(2, 2, 1)]).encode_to_vec();
        write_checkpoint(&root.join("any name"), &[table], None, &chunks(), level);
        let loaded = load(&root).unwrap();
        let snapshot = loaded.with_table(reverb_core::Table::snapshot);
        let rows: Vec<Vec<u8>> = snapshot
            .items()
            .map(|item| {
                let mut bytes = Vec::new();
                match item.trajectory {
                    reverb_core::Trajectory::Rows { chunk, offset, length, .. } => {
                        bytes.extend_from_slice(chunk.rows_of(0, offset, length));
                    }
                    reverb_core::Trajectory::Columns(columns) => {
                        for slice in &columns[0].slices {
                            bytes.extend_from_slice(slice.chunk.rows_of(0, slice.offset, slice.length));
                        }
                    }
                }
                bytes
            })
            .collect();
        assert_eq!(rows, [vec![1, 2, 50, 51], vec![2]]);
        assert_eq!(snapshot.config.sampler, SelectorKind::Fifo);
    }
}

fn refusal(tables: &[PriorityTableCheckpoint], items: Option<&[PrioritizedItem]>, chunks: &[Vec<u8>]) -> String {
    let root = temp_dir();
    let tables: Vec<_> = tables.iter().map(Message::encode_to_vec).collect();
    let items = items.map(|items| items.iter().map(Message::encode_to_vec).collect::<Vec<_>>());
    write_checkpoint(&root.join("2026-01-01T00:00:00+00:00"), &tables, items.as_deref(), chunks, Some(6));
    let error = load(&root).unwrap_err();
    assert!(matches!(error, Error::DataLoss(_)), "{error:?}");
    error.to_string()
}

#[test]
fn records_that_do_not_fit_together_are_refused() {
    let table = || table_message(Vec::new());
    let good = [new_item(1, 10)];
    let missing = refusal(&[table()], Some(&[new_item(1, 30)]), &chunks());
    assert!(missing.contains("item 1 of table `a`: chunk 30 is missing"), "{missing}");
    let mixed = refusal(&[table_message(vec![old_item(1, 1, 4)])], Some(&good), &chunks());
    assert!(mixed.contains("mix of deprecated_items field for table 'a' and items file"), "{mixed}");
    let twice = refusal(&[table()], Some(&[new_item(1, 10), new_item(1, 20)]), &chunks());
    assert!(twice.contains("already present key: 1"), "{twice}");
    let many = refusal(&[table()], Some(&[1, 2, 3].map(|key| new_item(key, 10))), &chunks());
    assert!(many.contains("already full Table. table size: 2, maximum size: 2"), "{many}");
    let elsewhere = PrioritizedItem { table: "b".into(), ..new_item(1, 10) };
    assert!(refusal(&[table()], Some(&[elsewhere]), &chunks()).contains("table `b`, which is missing"));
    let both = PrioritizedItem { deprecated_chunk_keys: vec![10], ..new_item(1, 10) };
    assert!(refusal(&[table()], Some(&[both]), &chunks()).contains("both"));
    let long = PrioritizedItem { deprecated_chunk_keys: vec![10], ..old_item(1, 0, 9) };
    assert!(refusal(&[table_message(vec![long])], None, &chunks()).contains("6 rows too few"));
    let none = PriorityTableCheckpoint { sampler: None, ..table() };
    assert!(refusal(&[none], Some(&good), &chunks()).contains("sampler"));
    assert!(refusal(&[table(), table()], Some(&good), &chunks()).contains("occurs twice"));
    assert!(refusal(&[table()], Some(&good), &[b"\xff\xff".to_vec()]).contains("chunks.tfrecord"));
}

#[test]
fn lengths_beyond_the_limit_are_refused_before_they_are_allocated() {
    let mut file = u64::MAX.to_le_bytes().to_vec();
    let crc = crc32c::crc32c(&file).rotate_right(15).wrapping_add(0xa282_ead8);
    file.extend(crc.to_le_bytes());
    let mut records = RecordReader::new(&file[..], 1000).unwrap();
    let error = records.append(&mut Vec::new()).unwrap_err();
    assert!(matches!(error, Error::MessageTooLarge { limit_bytes: 1000, .. }), "{error:?}");
    // A record below the limit whose file ends early.
    let mut file = (1_u64 << 30).to_le_bytes().to_vec();
    let crc = crc32c::crc32c(&file).rotate_right(15).wrapping_add(0xa282_ead8);
    file.extend(crc.to_le_bytes());
    let mut record = Vec::new();
    RecordReader::new(&file[..], 1 << 31).unwrap().append(&mut record).unwrap_err();
    assert!(record.capacity() <= 2 << 20, "{}", record.capacity());
}

fn read_all(file: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    let mut reader = RecordReader::new(file, 1 << 20)?;
    let mut records = Vec::new();
    for number in 0.. {
        let mut record = Vec::new();
        let Some(checksum) = reader.append(&mut record)? else { break };
        checksum.check(number, &record)?;
        records.push(record);
    }
    reader.into_file()?;
    Ok(records)
}

proptest! {
    #[test]
    fn records_are_read_as_they_were_written(
        records in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..20),
        level in proptest::option::of(0_u32..10),
    ) {
        prop_assert_eq!(read_all(&record_file(&records, level)).unwrap(), records);
    }

    #[test]
    fn files_of_any_bytes_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _refused = read_all(&bytes);
        let _refused = decode_table(&bytes);
    }

    #[test]
    fn damaged_messages_are_refused_or_loaded_without_a_panic(
        which in 0_usize..3,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let mut messages =
            [vec![table_message(Vec::new()).encode_to_vec()], vec![new_item(1, 10).encode_to_vec()], chunks()];
        let message = &mut messages[which][0];
        for (place, byte) in changes {
            let place = place.index(message.len());
            message[place] = byte;
        }
        let root = temp_dir();
        write_checkpoint(&root.join("x"), &messages[0], Some(&messages[1]), &messages[2], Some(0));
        let _refused = load(&root);
    }
}
