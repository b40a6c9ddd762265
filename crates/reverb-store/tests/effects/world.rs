//! Chunks of every kind, and effects of every kind.

use bytes::Bytes;
use reverb_core::{
    Chunk, Codec, Counters, DType, Effect, EpisodeIds, ItemView, Layout, RateLimiterConfig, RemovalReason, Slice,
    StepRange, TableChanges, Trajectory, TrajectoryColumn, Unpack, WriterId, encode_strings,
};
use reverb_service::write_ledger::LedgerState;
use smallvec::smallvec;
use std::sync::Arc;

/// Bytes of a packed chunk.
#[derive(Debug)]
struct Rising;

impl Unpack for Rising {
    fn unpack(&self, size_bytes: usize) -> Bytes {
        rising(size_bytes).into()
    }

    fn unpack_into(&self, target: &mut [u8]) {
        target.copy_from_slice(&rising(target.len()));
    }
}

fn rising(size_bytes: usize) -> Vec<u8> {
    (0..size_bytes).map(|at| (at / 8) as u8).collect()
}

/// Chunks of every kind. Some share a layout. All have two rows or more of two columns.
pub fn chunks() -> Vec<Arc<Chunk>> {
    let steps = StepRange { first: 3, last: 4, sparse: false };
    let numbers = |rows: usize, dim: usize| {
        Layout::new(rows, [(DType::Int32, smallvec![dim], 0), (DType::Float64, smallvec![], 0)]).unwrap()
    };
    let small = Arc::new(numbers(2, 1));
    let new = |key, episodes, steps, layout: &Arc<Layout>| {
        Chunk::new(key, episodes, steps, layout.clone(), rising(layout.held_bytes()).into()).unwrap()
    };
    let plain = |key, rows, dim| new(key, EpisodeIds::Same(key), steps, &Arc::new(numbers(rows, dim)));
    let far = StepRange { first: i32::MIN, last: i32::MAX, sparse: true };
    let texts: [&[u8]; 4] = [b"one", b"", b"three", &[0xff; 300]];
    let texts = encode_strings(texts.into_iter()).unwrap();
    let text_layout = Layout::new(2, [(DType::String, smallvec![2], texts.len()), (DType::UInt8, smallvec![0], 0)]);
    let mut text_data = texts;
    text_data.resize(text_data.len().next_multiple_of(8), 0);
    let packed = Arc::new(numbers(50, 1));
    let large_packed = Arc::new(numbers(5, 1000));
    let chunks = [
        new(1, EpisodeIds::Same(u64::MAX), steps, &small),
        new(2, EpisodeIds::PerRow(7), steps, &small),
        new(u64::MAX, EpisodeIds::Same(0), far, &small),
        new(4, EpisodeIds::Same(0), StepRange { first: i32::MAX, last: i32::MIN, sparse: false }, &small),
        plain(5, 3, 1).interleave().unwrap(),
        plain(6, 100, 1).compress(Codec::Lz4, &[true]),
        plain(7, 100, 1).compress(Codec::Zstd, &[true, false]),
        plain(8, 2000, 1),
        plain(9, 5000, 9).compress(Codec::Lz4, &[]),
        Chunk::new(10, EpisodeIds::Same(1), steps, Arc::new(text_layout.unwrap()), text_data.into()).unwrap(),
        Chunk::packed(11, EpisodeIds::Same(2), steps, packed, Arc::new(Rising)),
        Chunk::packed(12, EpisodeIds::PerRow(2), steps, large_packed, Arc::new(Rising)),
    ];
    assert!(chunks[5].is_compressed() && chunks[6].is_compressed() && chunks[8].is_compressed());
    chunks.into_iter().map(Arc::new).collect()
}

/// A new chunk of 280 bytes with this layout.
pub fn transition(key: u64, layout: &Arc<Layout>) -> Arc<Chunk> {
    let data = vec![key as u8; layout.held_bytes()].into();
    Arc::new(Chunk::new(key, EpisodeIds::Same(key), StepRange::default(), layout.clone(), data).unwrap())
}

/// The layout of a transition of 280 bytes.
pub fn transition_layout() -> Arc<Layout> {
    let column = |dim| (DType::Float32, smallvec![dim], 0);
    let columns = [column(30), column(6), column(30), (DType::Float32, smallvec![], 0), (DType::Int64, smallvec![], 0)];
    let layout = Layout::new(1, columns).unwrap();
    assert_eq!(layout.size_bytes, 280);
    Arc::new(layout)
}

/// A put of the first row of a chunk, for every second key without its time axis.
pub fn put(key: u64, chunk: &Arc<Chunk>) -> Effect {
    let make =
        if key.is_multiple_of(2) { Trajectory::squeezed_row } else { |chunk, row| Trajectory::rows(chunk, row, 1) };
    let trajectory = make(chunk.clone(), 0).unwrap();
    Effect::Put(ItemView {
        key,
        priority: 1.0,
        times_sampled: 0,
        inserted_at: 1_790_000_000_000_000_000 + key,
        trajectory,
    })
}

/// A put of slices of all chunks in columns of their own: each first column whole, each second one squeezed to a row.
pub fn put_slices(key: u64, chunks: &[Arc<Chunk>]) -> Effect {
    let columns = chunks.iter().flat_map(|chunk| {
        let slice = |column, offset, length| Slice { chunk: chunk.clone(), column, offset, length };
        let whole = smallvec![slice(0, 0, chunk.rows() - 1), slice(0, 1, chunk.rows() - 1)];
        [
            TrajectoryColumn { slices: whole, squeeze: false },
            TrajectoryColumn { slices: smallvec![slice(1, chunk.rows() - 1, 1)], squeeze: true },
        ]
    });
    let trajectory = Trajectory::columns(columns.collect()).unwrap();
    Effect::Put(ItemView { key, priority: f64::NAN, times_sampled: i32::MAX, inserted_at: 0, trajectory })
}

/// Floats whose bits are all kept.
pub const FLOATS: [f64; 6] =
    [0.0, -0.0, f64::INFINITY, -f64::MAX, f64::MIN_POSITIVE, f64::from_bits(0x7ff0_0000_0000_0001)];

/// Effects of every kind but puts.
pub fn small_effects() -> Vec<Effect> {
    let (key, inserted_at) = (u64::MAX - 3, u64::MAX);
    let reasons = [
        RemovalReason::MaxSize,
        RemovalReason::MaxBytes,
        RemovalReason::MaxTimesSampled,
        RemovalReason::Delete,
        RemovalReason::Reset,
    ];
    let limiter = RateLimiterConfig {
        samples_per_insert: 1.5,
        min_size_to_sample: i64::MIN,
        min_diff: -f64::MAX,
        max_diff: f64::MAX,
    };
    let options = [
        TableChanges::default(),
        TableChanges { max_size: Some(u64::MAX), ..TableChanges::default() },
        TableChanges { max_bytes: Some(None), max_times_sampled: Some(-1), ..TableChanges::default() },
        TableChanges { max_bytes: Some(Some(300)), rate_limiter: Some(limiter), ..TableChanges::default() },
    ];
    let counters = Counters {
        inserts: i64::MAX,
        samples: i64::MIN,
        deletes_and_items: -1,
        num_episodes: u64::MAX,
        num_unique_samples: 128,
        largest_priority: f64::NAN,
    };
    let writers = [writer(None, 7), writer(Some("actor"), 7), writer(Some(""), 7)];
    let wrote = [(0, 1), (0, 2), (1, u64::MAX), (2, 0), (0, 3)];
    let mut effects = vec![
        Effect::Back { key, inserted_at },
        Effect::Count { key, inserted_at, times_sampled: i32::MIN },
        Effect::Reset,
        Effect::Counters(counters),
        Effect::Counters(Counters::default()),
    ];
    effects.extend(reasons.map(|reason| Effect::Gone { key, inserted_at, reason }));
    effects.extend(FLOATS.map(|priority| Effect::Priorities(vec![(key, priority)])));
    effects.push(Effect::Priorities(FLOATS.map(|priority| (key, priority)).to_vec()));
    effects.push(Effect::Priorities(Vec::new()));
    effects.extend(FLOATS.map(|priority| Effect::FlightPriority { key: 0, inserted_at, priority }));
    effects.extend(options.map(|changes| Effect::Options(Box::new(changes))));
    effects.extend(wrote.map(|(index, sequence)| Effect::Wrote { writer: writers[index].clone(), sequence }));
    effects
}

pub fn writer(owner: Option<&str>, id: u64) -> Arc<WriterId> {
    Arc::new(WriterId { owner: owner.map(Arc::from), id })
}

pub fn ledgers() -> Vec<LedgerState> {
    vec![
        LedgerState { writer: writer(None, 1), through: 0, beyond: Vec::new(), lost: u64::MAX },
        LedgerState { writer: writer(Some("ä"), u64::MAX), through: 3, beyond: vec![(5, 5), (8, u64::MAX)], lost: 0 },
    ]
}
