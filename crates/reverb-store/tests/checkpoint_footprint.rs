//! The memory that saving and loading take in addition to the tables: at most a fifth of the tables.

#[allow(dead_code, reason = "tests of checkpoints share it")]
#[path = "checkpoint/world.rs"]
mod world;

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "common/memory.rs"]
mod memory;

use memory::{allocated_bytes, peak_of};
use reverb_core::memory::mapped_bytes;
use reverb_core::{Chunk, DType, EpisodeIds, Layout as ChunkLayout, NewItem, SelectorKind, StepRange, Trajectory};
use reverb_service::write_ledger::Ledgers;
use reverb_service::{Call, Peer, TableHandle};
use reverb_store::checkpoint::{CheckpointOptions, Checkpointer};
use reverb_store::disk::{Disk, OutFile, RealDisk};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use world::{handle, options, temp_dir};

/// Locked during a measurement: memory is counted for the whole process.
static MEASURING: Mutex<()> = Mutex::new(());

/// Inserts items of incompressible bytes, each with a chunk of its own.
#[derive(Debug)]
struct Traffic {
    table: TableHandle,
    layout: Arc<ChunkLayout>,
    count: AtomicU64,
}

impl Traffic {
    fn new(table: TableHandle, size: usize) -> Self {
        let layout = ChunkLayout::new(1, [(DType::UInt8, [size].into_iter().collect(), 0)]).unwrap();
        Self { table, layout: Arc::new(layout), count: AtomicU64::new(1) }
    }

    fn insert(&self) {
        let key = self.count.fetch_add(1, Relaxed);
        let mut state = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        let data: Vec<u8> = (0..self.layout.size_bytes).map(|_| random()).collect();
        let steps = StepRange::default();
        let chunk = Chunk::new(key, EpisodeIds::Same(key), steps, self.layout.clone(), data.into()).unwrap();
        let trajectory = Trajectory::rows(Arc::new(chunk), 0, 1).unwrap();
        let item = NewItem { key, priority: 1.0, takes_largest: false, others: None, times_sampled: 0, trajectory };
        assert!(matches!(self.table.insert(vec![item], &Peer::in_same_process()), Call::Done(Ok(()))));
    }
}

/// A full table of `total` bytes in items of `size`.
fn full_table(size: usize, total: usize) -> Traffic {
    let count = total / size;
    let traffic = Traffic::new(handle("a", SelectorKind::Fifo, count as u64), size);
    (0..count).for_each(|_| traffic.insert());
    traffic
}

/// A disk on which each write also inserts items of half as many bytes.
#[derive(Debug)]
struct BusyDisk {
    traffic: Arc<Traffic>,
    item_bytes: usize,
}

struct BusyFile {
    file: Box<dyn OutFile>,
    traffic: Arc<Traffic>,
    item_bytes: usize,
    owed: usize,
}

impl Write for BusyFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let size = self.file.write(bytes)?;
        self.owed += size / 2;
        while self.owed >= self.item_bytes {
            self.owed -= self.item_bytes;
            self.traffic.insert();
        }
        Ok(size)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl OutFile for BusyFile {
    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }
}

impl Disk for BusyDisk {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_dir_all(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn OutFile>> {
        let file = RealDisk.create(path)?;
        Ok(Box::new(BusyFile { file, traffic: self.traffic.clone(), item_bytes: self.item_bytes, owed: 0 }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        RealDisk.open(path)
    }

    fn size(&self, path: &Path) -> io::Result<u64> {
        RealDisk.size(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        RealDisk.list(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.sync_dir(path)
    }
}

/// Bytes that queues and buffers take independently of the size of the tables.
const BUFFERS: usize = 16 << 20;
/// Sizes of items in bytes: close to, and far above, the memory that a table needs for an item.
const SIZES: [usize; 2] = [400, 100_000];
const TOTAL: usize = 128 << 20;

fn assert_within(what: &str, peak: usize, rest: usize) {
    let most = rest / 5 * 6 + BUFFERS;
    assert!(peak <= most, "{what}: {peak} bytes at the worst, {rest} at rest, at most {most} were expected");
}

#[test]
fn a_save_and_a_load_take_a_fifth_more_than_the_tables() {
    let _alone = MEASURING.lock().unwrap();
    for size in SIZES {
        let root = temp_dir();
        let traffic = full_table(size, TOTAL);
        let saver = Checkpointer::open(options(&root)).unwrap();
        let rest = allocated_bytes();
        let ((), over) = peak_of(|| drop(saver.save(std::slice::from_ref(&traffic.table)).unwrap()));
        assert_within(&format!("a save of items of {size} bytes"), rest + over, rest);
        drop((saver, traffic));

        let loaded = handle("a", SelectorKind::Fifo, 1);
        let loader = Checkpointer::open(options(&root)).unwrap();
        let before = allocated_bytes();
        let ((), peak) =
            peak_of(|| drop(loader.restore(std::slice::from_ref(&loaded), &Ledgers::default(), 16 << 20).unwrap()));
        // The allocator does not count pages. Their number does not decrease during a load.
        let (rest, peak) = (allocated_bytes() - before + mapped_bytes(), peak + mapped_bytes());
        assert!(rest >= TOTAL / size * size, "{rest}");
        assert_within(&format!("a load of items of {size} bytes"), peak, rest);
    }
}

#[test]
fn a_load_holds_one_large_record_at_a_time() {
    const SIZE: usize = 12 << 20;
    let _alone = MEASURING.lock().unwrap();
    let root = temp_dir();
    let saver = Checkpointer::open(options(&root)).unwrap();
    drop(saver.save(&[full_table(SIZE, 5 * SIZE).table]).unwrap());
    drop(saver);
    let loader = Checkpointer::open(options(&root)).unwrap();
    let before = allocated_bytes();
    let loaded = [handle("a", SelectorKind::Fifo, 1)];
    let ((), peak) = peak_of(|| drop(loader.restore(&loaded, &Ledgers::default(), 16 << 20).unwrap()));
    assert!(mapped_bytes() >= 5 * SIZE, "{}", mapped_bytes());
    let over = peak.saturating_sub(allocated_bytes() - before);
    // While its buffer grows, this allocator holds the old and the new one.
    assert!((SIZE..2 * SIZE).contains(&over), "{over} bytes in addition to the table");
}

#[test]
fn items_removed_during_a_save_are_freed_once_they_are_written() {
    let _alone = MEASURING.lock().unwrap();
    for size in SIZES {
        let root = temp_dir();
        let traffic = Arc::new(full_table(size, TOTAL));
        let disk = Arc::new(BusyDisk { traffic: traffic.clone(), item_bytes: size });
        let saver = Checkpointer::with_disk(CheckpointOptions { ..options(&root) }, disk).unwrap();
        let inserted = traffic.count.load(Relaxed);
        let rest = allocated_bytes();
        let ((), over) = peak_of(|| drop(saver.save(std::slice::from_ref(&traffic.table)).unwrap()));
        let new = traffic.count.load(Relaxed) - inserted;
        assert!(new as usize * size > TOTAL * 2 / 5, "{new} items were inserted meanwhile");
        assert_within(&format!("a save of items of {size} bytes in traffic"), rest + over, rest);
    }
}
