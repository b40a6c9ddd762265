//! Chunks whose bytes are unpacked when they are first read.

use crate::common;
use crate::common::drawn::gathered;
use bytes::Bytes;
use reverb_core::{
    Chunk, Codec, DType, EpisodeIds, Layout, NewItem, SelectorKind, Slice, StepRange, Table, Trajectory,
    TrajectoryColumn, Unpack, UsedRows, keep_rows, random_key,
};
use smallvec::smallvec;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier};

const ROWS: usize = 10;
const ROW_BYTES: usize = 30;

/// Counts the calls that unpack it for good, and those that only read it.
#[derive(Debug, Default)]
struct Counting {
    unpacked: AtomicUsize,
    looked_at: AtomicUsize,
}

fn data() -> Vec<u8> {
    (0..ROWS * ROW_BYTES).map(|byte| (byte * 7) as u8).collect()
}

impl Unpack for Counting {
    fn unpack(&self, size_bytes: usize) -> Bytes {
        assert_eq!(size_bytes, ROWS * ROW_BYTES);
        self.unpacked.fetch_add(1, SeqCst);
        // Readers that arrive meanwhile must wait for it.
        std::thread::sleep(std::time::Duration::from_millis(20));
        data().into()
    }

    fn unpack_into(&self, target: &mut [u8]) {
        self.looked_at.fetch_add(1, SeqCst);
        target.copy_from_slice(&data());
    }
}

fn packed() -> (Arc<Chunk>, Arc<Counting>) {
    let source = Arc::new(Counting::default());
    let layout = Arc::new(Layout::new(ROWS, [(DType::UInt8, smallvec![ROW_BYTES], 0)]).unwrap());
    let chunk = Chunk::packed(random_key(), EpisodeIds::Same(1), StepRange::default(), layout, source.clone());
    (Arc::new(chunk), source)
}

impl Counting {
    fn counts(&self) -> (usize, usize) {
        (self.unpacked.load(SeqCst), self.looked_at.load(SeqCst))
    }
}

fn rows(first: u32, length: u32) -> Vec<u8> {
    data()[first as usize * ROW_BYTES..(first + length) as usize * ROW_BYTES].to_vec()
}

#[test]
fn a_packed_chunk_counts_as_what_it_becomes() {
    let (chunk, source) = packed();
    assert!(chunk.is_packed() && !chunk.is_encoded());
    assert_eq!((chunk.size_bytes(), chunk.decoded_bytes(), chunk.bytes_per_row()), (300, 300, 30));
    let mut table = Table::new(common::config(SelectorKind::Fifo, SelectorKind::Fifo, 10)).unwrap();
    table.insert(common::row_item(1, 1.0, &chunk, 0), 0, &mut Vec::new());
    assert_eq!(table.bytes(), 300);
    assert_eq!(source.counts(), (0, 0));
}

#[test]
fn the_first_batch_unpacks_a_chunk_once_for_all() {
    let (chunk, source) = packed();
    let plain = Trajectory::rows(chunk.clone(), 2, 3).unwrap();
    let slices = smallvec![
        Slice { chunk: chunk.clone(), column: 0, offset: 7, length: 2 },
        Slice { chunk: chunk.clone(), column: 0, offset: 0, length: 1 },
    ];
    let columns = Trajectory::columns(vec![TrajectoryColumn { slices, squeeze: false }]).unwrap();
    let expected = [rows(2, 3), rows(7, 2), rows(0, 1)].concat();
    for piece in [0, 1, 17] {
        assert_eq!(gathered(&[plain.clone(), columns.clone()], piece), expected);
        assert!(!chunk.is_packed());
    }
    assert_eq!(source.counts(), (1, 0));
    assert_eq!(chunk.data(), &data());
}

#[test]
fn what_only_looks_leaves_a_chunk_packed() {
    let (chunk, source) = packed();
    let mut scratch = vec![9; 1000];
    assert_eq!(chunk.view(&mut scratch).unwrap().rows_of(0, 3, 2), rows(3, 2));
    let mut used = UsedRows::default();
    used.add(&Trajectory::rows(chunk.clone(), 4, 2).unwrap(), |_| true);
    for (chunk, used) in used {
        assert_eq!(keep_rows(&chunk, &used, &mut scratch).unwrap().data(), &rows(4, 2));
    }
    assert!(chunk.is_packed());
    assert_eq!(source.counts(), (0, 2));
    let again = Trajectory::rows(chunk.clone(), 0, 1).unwrap();
    gathered(&[again], 0);
    assert_eq!(chunk.view(&mut scratch).unwrap().data(), data());
    assert_eq!(source.counts(), (1, 2));
}

#[test]
fn a_table_does_not_unpack_while_it_draws() {
    let (chunk, source) = packed();
    let mut table = Table::new(common::config(SelectorKind::Uniform, SelectorKind::Fifo, 10)).unwrap();
    let trajectory = Trajectory::rows(chunk.clone(), 1, 1).unwrap();
    table.insert(
        NewItem {
            key: 1,
            priority: 1.0,
            takes_largest: false,
            others: None,
            times_sampled: 0,
            trajectory: trajectory.clone(),
        },
        0,
        &mut Vec::new(),
    );
    assert!(table.sample_copied(3, false, None, 0).is_none(), "it would be unpacked under the table's lock");
    assert_eq!((source.counts(), table.info().samples), ((0, 0), 0));
    gathered(&[trajectory], 0);
    assert!(table.sample_copied(3, false, None, 0).is_some());
}

#[test]
fn many_readers_at_once_wait_for_one() {
    let (chunk, source) = packed();
    let start = Barrier::new(4);
    std::thread::scope(|scope| {
        for reader in 0..4 {
            let (chunk, start) = (&chunk, &start);
            scope.spawn(move || {
                start.wait();
                match reader {
                    0 => assert_eq!(chunk.view(&mut Vec::new()).unwrap().data(), data()),
                    _ => assert_eq!(chunk.data(), &data()),
                }
            });
        }
    });
    assert_eq!(source.counts().0, 1);
}

#[test]
fn a_packed_chunk_can_be_encoded() {
    let (chunk, _) = packed();
    let encoded = chunk.compress(Codec::Lz4, &[]);
    assert!(encoded.is_encoded() && !encoded.is_packed());
    assert_eq!(encoded.view(&mut Vec::new()).unwrap().data(), data());
}
