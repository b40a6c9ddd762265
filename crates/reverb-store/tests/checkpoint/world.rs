//! Tables to save, and their contents for comparison.

use proptest::prelude::*;
use reverb_core::gather::Gatherer;
use reverb_core::{
    Chunk, DType, EpisodeIds, Layout, NewItem, RateLimiterConfig, SelectorKind, Slice, StepRange, Table, TableConfig,
    Trajectory, TrajectoryColumn,
};
use reverb_service::write_ledger::Ledgers;
use reverb_service::{Call, DrawRequest, Peer, TableHandle};
use reverb_store::checkpoint::{CheckpointOptions, LoadOptions};
use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Creates a new folder, which is removed when dropped.
pub fn temp_dir() -> Folder {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("reverb-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
    let path = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&path).unwrap();
    Folder(path)
}

/// A folder that is removed when dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

impl std::ops::Deref for Folder {
    type Target = PathBuf;

    fn deref(&self) -> &PathBuf {
        &self.0
    }
}

pub fn options(root: &Path) -> CheckpointOptions {
    options_of(root, 1, LoadOptions::default())
}

pub fn options_of(root: &Path, keep: usize, load: LoadOptions) -> CheckpointOptions {
    CheckpointOptions {
        root: root.into(),
        group: String::new(),
        fallback: None,
        keep,
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

fn config(name: &str, selector: SelectorKind, max_size: u64) -> TableConfig {
    TableConfig {
        name: name.into(),
        sampler: selector,
        remover: SelectorKind::Fifo,
        max_size,
        max_times_sampled: 0,
        rate_limiter: RateLimiterConfig {
            samples_per_insert: 1.0,
            min_size_to_sample: 1,
            min_diff: -f64::MAX,
            max_diff: f64::MAX,
        },
        signature: None,
        max_bytes: None,
        seed: Some(1),
    }
}

pub fn handle(name: &str, selector: SelectorKind, max_size: u64) -> TableHandle {
    TableHandle::new(Table::new(config(name, selector, max_size)).unwrap())
}

/// A chunk of one column of consecutive numbers, starting at `first`.
fn chunk(key: u64, first: i64, rows: usize, episodes: EpisodeIds) -> Arc<Chunk> {
    let layout = Layout::new(rows, [(DType::Int64, [].into_iter().collect(), 0)]).unwrap();
    let data: Vec<u8> = (first..first + rows as i64).flat_map(i64::to_le_bytes).collect();
    let steps = StepRange { first: 0, last: rows as i32 - 1, sparse: false };
    Arc::new(Chunk::new(key, episodes, steps, Arc::new(layout), data.into()).unwrap())
}

fn insert(table: &TableHandle, key: u64, priority: f64, trajectory: Trajectory) {
    let item = NewItem { key, priority, takes_largest: false, others: None, times_sampled: 0, trajectory };
    assert!(matches!(table.insert(vec![item], &Peer::in_same_process()), Call::Done(Ok(()))));
}

/// Inserts items of one number each.
pub fn fill(table: &TableHandle, values: Range<i64>) {
    fill_all(std::slice::from_ref(table), values);
}

/// Inserts the same items into all tables, which share the chunks.
pub fn fill_all(tables: &[TableHandle], values: Range<i64>) {
    for value in values {
        let chunk = chunk(1000 + value as u64, value, 1, EpisodeIds::Same(value as u64 / 3));
        for table in tables {
            insert(table, value as u64, (value % 7) as f64, Trajectory::rows(chunk.clone(), 0, 1).unwrap());
        }
    }
}

pub fn insert_chunk(table: &TableHandle, key: u64, chunk_key: u64, value: i64) {
    let chunk = chunk(chunk_key, value, 1, EpisodeIds::PerRow(3));
    insert(table, key, 1.0, Trajectory::rows(chunk, 0, 1).unwrap());
}

/// Inserts an item of one row of many numbers. Its chunk is large enough to stay packed if the numbers compress.
pub fn insert_large(table: &TableHandle, key: u64, number: impl Fn(usize) -> i64) {
    const NUMBERS: usize = 20_000;
    let layout = Layout::new(1, [(DType::Int64, [NUMBERS].into_iter().collect(), 0)]).unwrap();
    let data: Vec<u8> = (0..NUMBERS).flat_map(|index| number(index).to_le_bytes()).collect();
    let chunk = Chunk::new(key, EpisodeIds::Same(key), StepRange::default(), Arc::new(layout), data.into()).unwrap();
    insert(table, key, 1.0, Trajectory::rows(Arc::new(chunk), 0, 1).unwrap());
}

/// Returns the keys of items whose chunk is still packed.
pub fn packed(table: &TableHandle) -> Vec<u64> {
    let snapshot = table.with_table(Table::snapshot);
    let mut keys = Vec::new();
    for item in snapshot.items() {
        item.trajectory.for_each_use(|chunk, _| keys.extend(chunk.is_packed().then_some(item.key)));
    }
    keys
}

/// Draws a batch as for a client and returns its bytes.
pub fn draw_columns(table: &TableHandle, count: usize) -> Vec<u8> {
    let mut gatherer = Gatherer::new(draw(table, count), false).unwrap();
    let mut bytes = Vec::with_capacity(gatherer.remaining());
    let size = gatherer.remaining();
    gatherer.fill(&mut bytes.spare_capacity_mut()[..size]);
    // SAFETY: `fill` has written `size` bytes.
    unsafe { bytes.set_len(size) };
    bytes
}

pub fn draw(table: &TableHandle, count: usize) -> Vec<reverb_core::Drawn> {
    match table.sample(DrawRequest::exactly(count), &Peer::in_same_process()) {
        Call::Done(drawn) => drawn.unwrap(),
        Call::Waiting(_) => panic!("the limiter blocks"),
    }
}

/// Makes the table hold one item more than its limit, by giving back a draw after other items have taken its place.
pub fn overfill(table: &TableHandle) {
    let config = table.with_table(|table| table.config().clone());
    let once = TableHandle::new(Table::new(TableConfig { max_times_sampled: 1, ..config }).unwrap());
    fill(&once, 0..3);
    let drawn = draw(&once, 1);
    fill(&once, 10..11);
    once.give_back(drawn);
    // The table under test gets this content from a separate checkpoint.
    let root = temp_dir();
    let saver = reverb_store::checkpoint::Checkpointer::open(options(&root)).unwrap();
    saver.save(std::slice::from_ref(&once)).unwrap();
    saver.restore(std::slice::from_ref(table), &Ledgers::default(), 1 << 20).unwrap();
}

/// Everything that a checkpoint must preserve of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Contents {
    pub items: Vec<(u64, u64, i32, u64, String)>,
    pub counts: (i64, i64, i64, u64, u64, u64),
    pub config: String,
}

pub fn contents(table: &TableHandle) -> Contents {
    let (snapshot, info) = (table.with_table(Table::snapshot), table.status().info);
    let items = snapshot.items().map(|item| {
        let data = describe(&item.trajectory);
        (item.key, item.priority.to_bits(), item.times_sampled, item.inserted_at, data)
    });
    Contents {
        items: items.collect(),
        counts: (
            info.inserts,
            info.samples,
            table.with_table(|table| table.limiter().deletes),
            info.num_episodes,
            info.num_deleted_episodes,
            info.num_unique_samples,
        ),
        config: format!("{:?} bytes={}", info.config, info.size_bytes.unwrap()),
    }
}

fn describe(trajectory: &Trajectory) -> String {
    let columns: Vec<String> = (0..trajectory.num_columns())
        .map(|index| match trajectory {
            Trajectory::Rows { chunk, offset, length, squeeze } => {
                format!("{squeeze} {:?} {:?}", chunk.rows_of(index, *offset, *length), chunk.episodes)
            }
            Trajectory::Columns(columns) => {
                let column = &columns[index];
                let slices = column.slices.iter().map(|slice| {
                    let rows = slice.chunk.rows_of(slice.column as usize, slice.offset, slice.length);
                    format!("{rows:?} {:?} {:?}", slice.chunk.episodes, slice.chunk.steps)
                });
                format!("{} {}", column.squeeze, slices.collect::<Vec<_>>().join(","))
            }
        })
        .collect();
    columns.join(";")
}

pub fn values(table: &TableHandle) -> Vec<i64> {
    let snapshot = table.with_table(Table::snapshot);
    let value = |trajectory: Trajectory| match trajectory {
        Trajectory::Rows { chunk, .. } => i64::from_le_bytes(chunk.rows_of(0, 0, 1).try_into().unwrap()),
        Trajectory::Columns(_) => panic!("rows were inserted"),
    };
    snapshot.items().map(|item| value(item.trajectory)).collect()
}

pub fn distinct_chunks(tables: &[TableHandle]) -> usize {
    let mut seen = HashSet::new();
    for table in tables {
        let snapshot = table.with_table(Table::snapshot);
        for item in snapshot.items() {
            item.trajectory.for_each_use(|chunk, _| {
                seen.insert(Arc::as_ptr(chunk) as usize);
            });
        }
    }
    seen.len()
}

/// Rewrites a file so that all its records occur twice.
pub fn write_records_twice(path: &Path) {
    use std::io::{Read, Write};
    let mut records = Vec::new();
    flate2::read::ZlibDecoder::new(&*std::fs::read(path).unwrap()).read_to_end(&mut records).unwrap();
    let mut twice = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    twice.write_all(&[&records[..], &records[..]].concat()).unwrap();
    std::fs::write(path, twice.finish().unwrap()).unwrap();
}

/// An item of a random table: its chunk, its rows, and whether it refers to columns.
#[derive(Debug, Clone)]
struct Piece {
    chunk: usize,
    offset: u32,
    length: u32,
    squeeze: bool,
    tables: Vec<bool>,
    priority: f64,
}

/// Tables with random content.
#[derive(Debug, Clone)]
pub struct World {
    selectors: Vec<SelectorKind>,
    chunks: Vec<(usize, bool)>,
    pieces: Vec<Piece>,
    draws: usize,
}

impl World {
    pub fn strategy() -> impl Strategy<Value = Self> {
        let selector = proptest::sample::select(vec![
            SelectorKind::Fifo,
            SelectorKind::Lifo,
            SelectorKind::Uniform,
            SelectorKind::Prioritized { priority_exponent: 1.5 },
            SelectorKind::MinHeap,
            SelectorKind::MaxHeap,
        ]);
        let piece =
            (0_usize..8, 0_u32..8, 1_u32..8, any::<bool>(), proptest::collection::vec(any::<bool>(), 3), 0.0..9.0)
                .prop_map(|(chunk, offset, length, squeeze, tables, priority)| Piece {
                    chunk,
                    offset,
                    length,
                    squeeze,
                    tables,
                    priority,
                });
        (
            proptest::collection::vec(selector, 1..4),
            proptest::collection::vec((1_usize..8, any::<bool>()), 8),
            proptest::collection::vec(piece, 0..40),
            0_usize..20,
        )
            .prop_map(|(selectors, chunks, pieces, draws)| Self { selectors, chunks, pieces, draws })
    }

    pub fn empty(&self) -> Vec<TableHandle> {
        let tables = self.selectors.iter().enumerate();
        tables.map(|(index, selector)| handle(&format!("table {index}"), selector.clone(), 25)).collect()
    }

    pub fn make(&self) -> Vec<TableHandle> {
        let tables = self.empty();
        let chunks: Vec<_> = (0_u64..)
            .zip(&self.chunks)
            .map(|(key, &(rows, per_row))| {
                let episodes = if per_row { EpisodeIds::PerRow(key) } else { EpisodeIds::Same(key / 2) };
                chunk(key, key as i64 * 100, rows, episodes)
            })
            .collect();
        for (key, piece) in (0..).zip(&self.pieces) {
            let chunk = &chunks[piece.chunk];
            let offset = piece.offset % chunk.rows();
            let length = piece.length.min(chunk.rows() - offset);
            let trajectory = if piece.squeeze {
                let slice = Slice { chunk: chunk.clone(), column: 0, offset, length: 1 };
                let many = Slice { length, ..slice.clone() };
                let columns = [(vec![slice], true), (vec![many.clone(), many], false)]
                    .map(|(slices, squeeze)| TrajectoryColumn { slices: slices.into_iter().collect(), squeeze });
                Trajectory::columns(columns.to_vec()).unwrap()
            } else {
                Trajectory::rows(chunk.clone(), offset, length).unwrap()
            };
            for (table, _) in tables.iter().zip(&piece.tables).filter(|(_, chosen)| **chosen) {
                insert(table, key, piece.priority, trajectory.clone());
            }
        }
        for table in &tables {
            if table.status().info.current_size > 0 {
                draw(table, self.draws.max(1));
            }
        }
        tables
    }
}
