//! Sizes that a file declares are not allocated blindly: decompression bombs take at most twice the message limit.

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "common/memory.rs"]
mod memory;

use memory::peak_of;
use prost::Message;
use reverb_core::memory::mapped_bytes;
use reverb_core::{EpisodeIds, Error, Table};
use reverb_formats::chunk::ChunkDecoder;
use reverb_formats::proto::schema::key_distribution_options::Distribution;
use reverb_formats::proto::schema::{KeyDistributionOptions, PriorityTableCheckpoint, RateLimiterCheckpoint};
use reverb_formats::table::decode_table;
use reverb_formats::tfrecord::{RecordWriter, hash_text, put_record};
use reverb_service::TableHandle;
use reverb_service::write_ledger::Ledgers;
use reverb_store::checkpoint::{CheckpointOptions, Checkpointer, LoadOptions, SizeLimit, verify};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

const LIMIT: usize = 16 << 20;

/// Locked during a measurement: memory is counted for the whole process.
static MEASURING: Mutex<()> = Mutex::new(());

fn field(number: u32, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    prost::encoding::encode_varint(u64::from(number << 3 | 2), &mut out);
    prost::encoding::encode_varint(content.len() as u64, &mut out);
    out.extend_from_slice(content);
    out
}

fn varint_field(number: u32, value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    prost::encoding::encode_varint(u64::from(number << 3), &mut out);
    prost::encoding::encode_varint(value, &mut out);
    out
}

fn tensor(dtype: u64, dims: &[u64], content: &[u8]) -> Vec<u8> {
    let shape = dims.iter().flat_map(|&size| field(2, &varint_field(1, size))).collect::<Vec<_>>();
    [varint_field(1, dtype), field(2, &shape), field(4, content)].concat()
}

fn chunk(tensors: &[Vec<u8>]) -> Vec<u8> {
    let data = tensors.iter().flat_map(|tensor| field(1, tensor)).collect::<Vec<_>>();
    [varint_field(1, 7), field(5, &data)].concat()
}

fn snappy_header(size: u64) -> Vec<u8> {
    let mut content = Vec::new();
    prost::encoding::encode_varint(size, &mut content);
    content.extend([0xfe, 0, 0]);
    content
}

#[test]
fn chunks_that_announce_much_allocate_little() {
    let _alone = MEASURING.lock().unwrap();
    let small = LIMIT as u64 / 2;
    let bombs = [
        ("snappy beyond the limit", chunk(&[tensor(4, &[1, 1 << 40], &snappy_header(1 << 32))])),
        ("snappy within the limit", chunk(&[tensor(4, &[1, small], &snappy_header(small))])),
        ("empty tensors", chunk(&vec![Vec::new(); 4 << 20])),
        ("tensors of no element", chunk(&vec![tensor(4, &[1, 0], &[0]); 1 << 20])),
        ("strings without content", chunk(&[tensor(7, &[1 << 40], &[])])),
        ("one string for all", chunk(&[[tensor(7, &[1 << 40], &[]), field(8, b"x")].concat()])),
        ("one string for many", chunk(&[[tensor(7, &[1 << 28], &[]), field(8, b"x")].concat()])),
        ("dimensions", chunk(&[tensor(4, &vec![1; 1 << 20], &[1, 0, 0])])),
        (
            "a real bomb",
            chunk(&[tensor(
                4,
                &[1, small],
                &snap::raw::Encoder::new().compress_vec(&vec![0; small as usize]).unwrap(),
            )]),
        ),
    ];
    for (name, bomb) in &bombs {
        let decoder = ChunkDecoder::new(LIMIT as u64);
        // As for files of this package, whose size is the only other limit of their chunks.
        let own = ChunkDecoder::new(u64::MAX).limit_repeats(LIMIT as u64);
        for decoder in [decoder, ChunkDecoder::new(LIMIT as u64).leave_packed(0), own] {
            // One of the chunks may decode. Its data is on pages then, which the allocator does not count.
            let (decoded, peak) = peak_of(|| {
                let mut decoder = decoder;
                let decoded = decoder.decode(bomb, EpisodeIds::Same);
                decoded.map(|chunk| chunk.data().len().min(chunk.rows() as usize))
            });
            let peak = peak + mapped_bytes();
            assert!(peak <= 2 * LIMIT, "{name}: {peak} bytes, {decoded:?}");
        }
    }
}

fn table() -> Vec<u8> {
    let fifo = KeyDistributionOptions { distribution: Some(Distribution::Fifo(true)), is_deterministic: true };
    let limiter = RateLimiterCheckpoint { samples_per_insert: 1.0, min_size_to_sample: 1, ..Default::default() };
    PriorityTableCheckpoint {
        table_name: "a".into(),
        rate_limiter: Some(limiter),
        sampler: Some(fifo),
        remover: Some(fifo),
        max_size: 10,
        ..Default::default()
    }
    .encode_to_vec()
}

fn write(folder: &Path, name: &str, records: &[Vec<u8>]) {
    let mut writer = RecordWriter::new(Vec::new(), 9);
    let mut framed = Vec::new();
    records.iter().for_each(|record| put_record(&mut framed, record));
    writer.write_framed(&framed).unwrap();
    std::fs::write(folder.join(name), writer.finish().unwrap()).unwrap();
}

#[test]
fn checkpoints_that_inflate_allocate_little() {
    let _alone = MEASURING.lock().unwrap();
    let folder = std::env::temp_dir().join(format!("reverb-test-memory-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("DONE"), "").unwrap();
    let good_chunk = chunk(&[tensor(4, &[1, 1], &[1, 0, 5])]);
    let item = |parts: &[Vec<u8>]| [vec![field(2, b"a")], parts.to_vec()].concat().concat();
    let trajectory = |columns: Vec<u8>| item(&[field(8, &columns)]);
    let many = LIMIT / 4;
    // Records that a few kilobytes of zlib expand to. The number of slices is limited to what fits the default limit.
    let bombs = [
        ("a record beyond the limit", LIMIT, [vec![vec![0; 2 * LIMIT]], vec![table()], vec![]]),
        ("a record of the limit", LIMIT, [vec![vec![0; LIMIT]], vec![table()], vec![]]),
        ("many small records", LIMIT, [vec![vec![8, 7]; many], vec![table()], vec![]]),
        ("a table of empty items", LIMIT, [vec![], vec![[table(), field(2, &[]).repeat(many)].concat()], vec![]]),
        ("a long signature", LIMIT, [vec![], vec![[table(), field(9, &vec![0; LIMIT / 2])].concat()], vec![]]),
        (
            "empty columns",
            256 << 20,
            [vec![good_chunk.clone()], vec![table()], vec![trajectory(field(1, &[]).repeat(16 << 20))]],
        ),
        ("chunk keys", 256 << 20, [vec![good_chunk], vec![table()], vec![item(&[field(3, &vec![7; 32 << 20])])]]),
    ];
    for (name, limit, [chunks, tables, items]) in bombs {
        write(&folder, "chunks.tfrecord", &chunks);
        write(&folder, "tables.tfrecord", &tables);
        write(&folder, "items.tfrecord", &items);
        drop((chunks, tables, items));
        let ((), peak) = peak_of(|| {
            let refused = verify(&folder, SizeLimit::All(limit as u64));
            assert!(refused.is_err(), "{name}");
        });
        // The buffers of the threads are not part of the limit.
        assert!(peak <= 2 * limit + (8 << 20), "{name}: {peak} bytes");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A folder for a checkpoint, which is removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("reverb-test-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("DONE"), "").unwrap();
        Self(folder)
    }

    /// Writes a sidecar whose own hash is correct. `files` has the size that it states for each file; the hash of the
    /// content is correct. It states a number of chunks, and of items of the table.
    fn forge_sidecar(&self, compression: u32, files: [(&str, u64); 3], chunks: u64, items: u64) {
        let sums = files.map(|(name, size)| {
            let xxh3 = hash_text(&std::fs::read(self.0.join(name)).unwrap());
            format!(r#""{name}":{{"size":{size},"xxh3":"{xxh3}"}}"#)
        });
        let table = format!(r#"{{"name":"a","max_size":10,"max_bytes":null,"seed":null,"items":{items}}}"#);
        let line = format!(
            r#"{{"format":1,"writer":"forged","compression":{compression},"files":{{{}}},"chunks":{chunks},"#,
            sums.join(",")
        );
        let line = line + &format!(r#""tables":[{table}],"episode_runs":[{chunks}]}}"#);
        let hash = format!("\n{{\"xxh3\":\"{}\"}}\n", hash_text(line.as_bytes()));
        std::fs::write(self.0.join("reverb.jsonl"), line + &hash).unwrap();
    }

    fn size(&self, name: &str) -> u64 {
        std::fs::metadata(self.0.join(name)).unwrap().len()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Loads a checkpoint as a server does.
fn restore(folder: &Path) -> Result<(), Error> {
    let load = LoadOptions { path: Some(folder.into()), ..Default::default() };
    let options = CheckpointOptions {
        root: folder.join("own"),
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
    };
    let record = decode_table(&table()).unwrap();
    let tables = [TableHandle::new(Table::new(record.config).unwrap())];
    Checkpointer::open(options)?.restore(&tables, &Ledgers::default(), LIMIT as u64).map(drop)
}

/// The first bytes of a record that declares a payload of `length` bytes.
fn record_header(length: u64) -> Vec<u8> {
    let mut framed = Vec::new();
    put_record(&mut framed, &length.to_le_bytes());
    // The checksum of a payload is made like that of a length.
    [&length.to_le_bytes(), &framed[framed.len() - 4..]].concat()
}

#[test]
fn files_that_a_forged_sidecar_vouches_for_allocate_little() {
    let _alone = MEASURING.lock().unwrap();
    let folder = Folder::new("forged");
    let largest = u64::from(u32::MAX) - 100;
    let good_chunk = chunk(&[tensor(4, &[1, 1], &[1, 0, 5])]);
    let framed = |record: &[u8]| {
        let mut framed = Vec::new();
        put_record(&mut framed, record);
        framed
    };
    let one_string = [tensor(7, &[1, largest / 8], &[]), field(8, &[7; 100])].concat();
    let bombs = [
        ("snappy", framed(&chunk(&[tensor(4, &[1, largest], &snappy_header(largest))]))),
        ("strings without content", framed(&chunk(&[tensor(7, &[1, largest / 8], &[])]))),
        ("one string for all", framed(&chunk(&[one_string]))),
        ("a record that is cut off", [record_header(largest), vec![0; 1000]].concat()),
        ("counts", framed(&good_chunk)),
    ];
    for (name, chunks) in bombs {
        for level in [0, 9] {
            for (file, framed) in
                [("chunks.tfrecord", &chunks), ("tables.tfrecord", &framed(&table())), ("items.tfrecord", &Vec::new())]
            {
                let mut writer = RecordWriter::new(Vec::new(), level);
                writer.write_framed(framed).unwrap();
                std::fs::write(folder.0.join(file), writer.finish().unwrap()).unwrap();
            }
            let (tables, items) = (folder.size("tables.tfrecord"), folder.size("items.tfrecord"));
            for claimed in [folder.size("chunks.tfrecord"), largest, u64::MAX] {
                let files = [("chunks.tfrecord", claimed), ("tables.tfrecord", tables), ("items.tfrecord", items)];
                folder.forge_sidecar(level, files, u64::MAX, u64::MAX);
                let (refused, peak) = peak_of(|| restore(&folder.0));
                let error = refused.unwrap_err().to_string();
                let case = format!("{name}, level {level}, {claimed} bytes claimed: {error}");
                assert!(error.contains("chunks.tfrecord"), "{case}");
                // Buffers of the reader and of its threads.
                let peak = peak + mapped_bytes();
                assert!(peak <= 8 << 20, "{peak} bytes, {case}");
            }
        }
    }
}
