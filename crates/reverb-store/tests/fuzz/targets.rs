//! The fuzz targets, and their seeds.

use crate::frames;
use crate::memory_disk::MemoryDisk;
use reverb_core::{EpisodeIds, Error, RateLimiterConfig, SelectorKind, Table, TableConfig};
use reverb_formats::chunk::{ChunkDecoder, ChunkEncoder};
use reverb_formats::table::decode_table;
use reverb_formats::tfrecord::{RecordReader, RecordWriter, put_record};
use reverb_service::TableHandle;
use reverb_service::write_ledger::Ledgers;
use reverb_store::checkpoint::{CheckpointOptions, Checkpointer, LoadOptions};
use reverb_store::disk::RealDisk;
use reverb_store::log::{self, Fence, Log, LogOptions};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Maximum size of the data of a message in bytes.
pub const LIMIT: usize = 16 << 20;

fn words<T>(result: Result<T, Error>) -> String {
    match result {
        Ok(_) => "taken".into(),
        Err(Error::Internal(text)) => panic!("an internal error: {text}"),
        Err(error) => error.to_string(),
    }
}

/// Decodes a serialised `ChunkData`. An accepted chunk must survive another round of encoding and decoding.
pub fn chunk(input: &[u8]) -> String {
    let packed = ChunkDecoder::new(LIMIT as u64).leave_packed(0).decode(input, EpisodeIds::Same);
    let chunk = ChunkDecoder::new(LIMIT as u64).decode(input, EpisodeIds::Same);
    match (&packed, &chunk) {
        (Ok(packed), Ok(chunk)) => assert_eq!(packed.data(), chunk.data()),
        _ => assert_eq!(packed.is_ok(), chunk.is_ok()),
    }
    words(chunk.map(|chunk| {
        for delta in [false, true] {
            let mut again = Vec::new();
            ChunkEncoder::default().encode(&chunk, chunk.key, delta, &mut again).unwrap();
            let decoded = ChunkDecoder::new(2 * LIMIT as u64).decode(&again, EpisodeIds::Same).unwrap();
            assert_eq!((decoded.key, decoded.steps, decoded.layout()), (chunk.key, chunk.steps, chunk.layout()));
            assert_eq!(decoded.data(), chunk.data());
        }
    }))
}

/// Decodes a serialised `PriorityTableCheckpoint`.
pub fn table(input: &[u8]) -> String {
    words(decode_table(input))
}

/// Reads a record file, with or without a zlib stream.
pub fn records(input: &[u8]) -> String {
    words(RecordReader::new(input, LIMIT).and_then(read_all))
}

/// Reads a record file in stored blocks.
pub fn stored_records(input: &[u8]) -> String {
    words(read_all(RecordReader::of_stored(input, LIMIT)))
}

fn read_all(mut reader: RecordReader<&[u8]>) -> Result<(), Error> {
    let mut record = Vec::new();
    for number in 0.. {
        record.clear();
        let Some(checksum) = reader.append(&mut record)? else { break };
        checksum.check(number, &record)?;
    }
    reader.into_file().map(drop)
}

/// Loads a serialised `PrioritizedItem` with valid chunks and tables.
pub fn item_of_a_checkpoint(input: &[u8]) -> String {
    let mut disk = golden_disk().clone();
    disk.0.extend([file("items", &[input.to_vec()], 0)]);
    load(&disk)
}

/// Loads a serialised `PriorityTableCheckpoint` among valid tables, with valid chunks and items.
pub fn table_of_a_checkpoint(input: &[u8]) -> String {
    let mut disk = golden_disk().clone();
    let tables = [golden("table:"), vec![input.to_vec()]].concat();
    disk.0.extend([file("tables", &tables, 0)]);
    load(&disk)
}

/// Loads a file of chunks with valid tables and items.
pub fn file_of_chunks(input: &[u8]) -> String {
    let mut disk = golden_disk().clone();
    disk.0.insert("chunks.tfrecord".into(), input.to_vec());
    load(&disk)
}

/// Loads the first line of a sidecar with the correct hash and a valid checkpoint.
pub fn sidecar(input: &[u8]) -> String {
    let mut disk = saved_disk().clone();
    let hash = twox_hash::XxHash3_128::oneshot(input);
    let line = [input, format!("\n{{\"xxh3\":\"{hash:032x}\"}}\n").as_bytes()].concat();
    disk.0.insert("reverb.jsonl".into(), line);
    load(&disk)
}

/// Reads a log whose first segment this is, in front of a valid one.
pub fn segment(input: &[u8]) -> String {
    let mut disk = logged_disk().clone();
    disk.0.insert("log-0-0.rvlog".into(), input.to_vec());
    let folder = Path::new("");
    words(log::oldest(&disk, folder).and_then(|found| {
        let Some(position) = found else { return Ok(()) };
        log::verify(&disk, folder, position, log::boot_id(), &mut |_, _| Ok(())).map(drop)
    }))
}

/// The same with correct checksums of all headers and payloads that begin where they should.
pub fn sealed_segment(input: &[u8]) -> String {
    let mut input = input.to_vec();
    seal(&mut input, 0..64, 64);
    for at in (72..input.len()).step_by(8) {
        if input[at..].starts_with(b"RvFr") && input.len() >= at + 48 {
            let length = u32::from_le_bytes(input[at + 4..at + 8].try_into().unwrap()) as usize;
            seal(&mut input, at + 48..at + 48 + length, at + 40);
            seal(&mut input, at..at + 44, at + 44);
        }
    }
    segment(&input)
}

/// Decodes a frame of effects.
pub fn frame(input: &[u8]) -> String {
    words(frames::check(input))
}

/// Writes the checksum of a range to a place, if both are there.
fn seal(input: &mut [u8], range: Range<usize>, place: usize) {
    let sum = input.get(range).map(crc32c::crc32c);
    if let (Some(sum), Some(place)) = (sum, input.get_mut(place..place + 4)) {
        place.copy_from_slice(&sum.to_le_bytes());
    }
}

/// The files of a log with two segments.
fn logged_disk() -> &'static MemoryDisk {
    static DISK: OnceLock<MemoryDisk> = OnceLock::new();
    DISK.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("reverb-fuzz-{:016x}", rand::random::<u64>()));
        std::fs::create_dir(&folder).unwrap();
        let fence = Fence::claim(Arc::new(RealDisk), &folder).unwrap();
        let options = LogOptions {
            segment_bytes: 600,
            ..LogOptions::new(reverb_service::LogMode::Process, Duration::from_secs(9))
        };
        let log = Log::start(fence, log::Start::fresh(), options).unwrap();
        (0..8).for_each(|_| log.commit(&Hundred).unwrap());
        let segments = ["log-0-0.rvlog", "log-0-1.rvlog"];
        let disk = MemoryDisk(segments.map(|name| (name.into(), std::fs::read(folder.join(name)).unwrap())).into());
        std::fs::remove_dir_all(folder).unwrap();
        disk
    })
}

/// Has always a hundred bytes to write.
struct Hundred;

impl log::Source for Hundred {
    fn drain(&self, payload: &mut log::Payload) -> reverb_core::Result<()> {
        payload.own().extend([7; 100]);
        Ok(())
    }
}

/// Loads the only checkpoint of a disk.
fn load(disk: &MemoryDisk) -> String {
    let names = golden("table:").iter().map(|table| decode_table(table).unwrap().config.name).collect::<Vec<_>>();
    let tables: Vec<_> = names.iter().map(|name| handle(name)).collect();
    let load = LoadOptions { path: Some(PathBuf::from("checkpoint")), ..LoadOptions::default() };
    let checkpointer =
        Checkpointer::with_disk(options(PathBuf::from("nowhere"), load), Arc::new(disk.clone())).unwrap();
    words(checkpointer.restore(&tables, &Ledgers::default(), LIMIT as u64))
}

fn options(root: PathBuf, load: LoadOptions) -> CheckpointOptions {
    CheckpointOptions {
        root,
        group: String::new(),
        fallback: None,
        keep: 1,
        compression: 0,
        interval: None,
        save_on_stop: false,
        is_temporary: false,
        must_be_writable: false,
        durability: None,
        accept_loss: false,
        load,
    }
}

fn handle(name: &str) -> TableHandle {
    let rate_limiter =
        RateLimiterConfig { samples_per_insert: 1.0, min_size_to_sample: 1, min_diff: -f64::MAX, max_diff: f64::MAX };
    let config = TableConfig {
        name: name.into(),
        sampler: SelectorKind::Uniform,
        remover: SelectorKind::Fifo,
        max_size: 10,
        max_times_sampled: 0,
        rate_limiter,
        signature: None,
        max_bytes: None,
        seed: None,
    };
    TableHandle::new(Table::new(config).unwrap())
}

fn file(name: &str, records: &[Vec<u8>], level: u32) -> (String, Vec<u8>) {
    let mut writer = RecordWriter::new(Vec::new(), level);
    let mut framed = Vec::new();
    records.iter().for_each(|record| put_record(&mut framed, record));
    writer.write_framed(&framed).unwrap();
    (format!("{name}.tfrecord"), writer.finish().unwrap())
}

/// Records of the reference whose names start with `prefix`.
fn golden(prefix: &str) -> Vec<Vec<u8>> {
    vectors(include_str!("../../../../tests/data/checkpoint.json"), prefix)
}

fn vectors(json: &str, prefix: &str) -> Vec<Vec<u8>> {
    let json: serde_json::Value = serde_json::from_str(json).unwrap();
    let bytes =
        |text: &str| (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect();
    let vectors = json["vectors"].as_array().unwrap().iter();
    let named = vectors.filter(|vector| vector["name"].as_str().unwrap().starts_with(prefix));
    named.map(|vector| bytes(vector["hex"].as_str().unwrap())).collect()
}

/// A disk with a checkpoint of the reference.
fn golden_disk() -> &'static MemoryDisk {
    static DISK: OnceLock<MemoryDisk> = OnceLock::new();
    DISK.get_or_init(|| {
        let files = [("tables", "table:"), ("items", "item"), ("chunks", "chunk")];
        let files = files.map(|(name, prefix)| file(name, &golden(prefix), 0));
        MemoryDisk(files.into_iter().chain([("DONE".into(), Vec::new())]).collect())
    })
}

/// A disk with the same checkpoint, saved by this package.
fn saved_disk() -> &'static MemoryDisk {
    static DISK: OnceLock<MemoryDisk> = OnceLock::new();
    DISK.get_or_init(|| {
        let root = std::env::temp_dir().join(format!("reverb-fuzz-{}", std::process::id()));
        let from = root.join("from");
        std::fs::create_dir_all(&from).unwrap();
        golden_disk().0.iter().for_each(|(name, bytes)| std::fs::write(from.join(name), bytes).unwrap());
        let load = LoadOptions { path: Some(from), ..LoadOptions::default() };
        let checkpointer = Checkpointer::open(options(root.join("to"), load)).unwrap();
        let tables: Vec<_> =
            golden("table:").iter().map(|table| handle(&decode_table(table).unwrap().config.name)).collect();
        checkpointer.restore(&tables, &Ledgers::default(), LIMIT as u64).unwrap();
        let path = checkpointer.save(&tables).unwrap();
        let files = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
        let disk = MemoryDisk(files.map(|path| (name(&path), std::fs::read(&path).unwrap())).collect());
        std::fs::remove_dir_all(root).unwrap();
        disk
    })
}

/// Initial inputs, written by the reference.
pub mod seeds {
    use super::{file, golden, golden_disk, logged_disk, saved_disk, vectors};

    pub fn chunk() -> Vec<Vec<u8>> {
        vectors(include_str!("../../../../tests/data/chunks.json"), "")
    }

    pub fn table() -> Vec<Vec<u8>> {
        golden("table:")
    }

    pub fn records() -> Vec<Vec<u8>> {
        let mut plain = Vec::new();
        let (_, zlib) = file("items", &golden("item"), 6);
        std::io::Read::read_to_end(&mut flate2::read::ZlibDecoder::new(&zlib[..]), &mut plain).unwrap();
        let bomb = file("bomb", &[vec![0; 1 << 22]], 9).1;
        vec![plain, zlib, file("items", &golden("item"), 0).1, bomb, Vec::new()]
    }

    pub fn stored_records() -> Vec<Vec<u8>> {
        vec![file("items", &golden("item"), 0).1, file("none", &[], 0).1]
    }

    pub fn item_of_a_checkpoint() -> Vec<Vec<u8>> {
        golden("item")
    }

    pub fn table_of_a_checkpoint() -> Vec<Vec<u8>> {
        golden("table:")
    }

    pub fn file_of_chunks() -> Vec<Vec<u8>> {
        vec![golden_disk().0["chunks.tfrecord"].clone(), file("chunks", &golden("chunk"), 6).1]
    }

    pub fn segment() -> Vec<Vec<u8>> {
        logged_disk().0.values().cloned().collect()
    }

    pub fn sealed_segment() -> Vec<Vec<u8>> {
        segment()
    }

    pub fn frame() -> Vec<Vec<u8>> {
        crate::frames::seeds()
    }

    pub fn sidecar() -> Vec<Vec<u8>> {
        let file = &saved_disk().0["reverb.jsonl"];
        vec![file.split(|&byte| byte == b'\n').next().unwrap().to_vec()]
    }
}
