//! Stacks of frames that overlap: each frame is in memory once.

use reverb_core::{
    Chunk, Codec, DType, EpisodeIds, Layout, NewItem, RateLimiterConfig, SelectorKind, Slice, StepRange, Table,
    TableConfig, Trajectory, TrajectoryColumn, random_key,
};
use smallvec::{SmallVec, smallvec};
use std::alloc::{GlobalAlloc, Layout as Block, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const FRAMES: usize = 2000;
const FRAME_BYTES: usize = 84 * 84;
const STACK: usize = 4;
const ROWS: usize = 16;

/// Counts all allocations, so that no memory is overlooked.
struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: all calls are passed to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, block: Block) -> *mut u8 {
        ALLOCATED.fetch_add(block.size(), Relaxed);
        // SAFETY: the caller guarantees what the system's allocator needs.
        unsafe { System.alloc(block) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, block: Block) {
        ALLOCATED.fetch_sub(block.size(), Relaxed);
        // SAFETY: the caller guarantees what the system's allocator needs.
        unsafe { System.dealloc(pointer, block) }
    }
}

/// A frame of a game: a still background, and something that moves.
fn frame(index: usize) -> Vec<u8> {
    let mut pixels: Vec<u8> = (0..FRAME_BYTES).map(|pixel| (pixel / 84 * 3) as u8).collect();
    let corner = index * 5 % (84 * 80);
    pixels[corner..corner + 8].fill(255);
    pixels
}

fn chunk(first: usize, layout: &Arc<Layout>) -> Chunk {
    let data: Vec<u8> = (first..first + ROWS).flat_map(frame).collect();
    let steps = StepRange { first: first as i32, last: (first + ROWS - 1) as i32, sparse: false };
    Chunk::new(random_key(), EpisodeIds::Same(1), steps, layout.clone(), data.into()).unwrap()
}

/// The frames up to and including `last`, as slices of one or two chunks.
fn stack(chunks: &[Arc<Chunk>], last: usize) -> Trajectory {
    let mut slices = SmallVec::<[Slice; 1]>::new();
    for index in last + 1 - STACK..=last {
        let offset = (index % ROWS) as u32;
        match slices.last_mut() {
            Some(slice) if offset > 0 => slice.length += 1,
            _ => slices.push(Slice { chunk: chunks[index / ROWS].clone(), column: 0, offset, length: 1 }),
        }
    }
    Trajectory::columns(vec![TrajectoryColumn { slices, squeeze: false }]).unwrap()
}

/// The memory that a table of all stacks takes, and the size that it states.
fn table_bytes(codec: Option<Codec>) -> (usize, u64) {
    let before = ALLOCATED.load(Relaxed);
    let rate_limiter =
        RateLimiterConfig { samples_per_insert: 1.0, min_size_to_sample: 1, min_diff: -f64::MAX, max_diff: f64::MAX };
    let mut table = Table::new(TableConfig {
        name: "table".into(),
        sampler: SelectorKind::Prioritized { priority_exponent: 0.6 },
        remover: SelectorKind::Fifo,
        max_size: FRAMES as u64,
        max_times_sampled: 0,
        rate_limiter,
        signature: None,
        max_bytes: None,
        seed: Some(1),
    })
    .unwrap();
    let layout = Arc::new(Layout::new(ROWS, [(DType::UInt8, smallvec![84, 84], 0)]).unwrap());
    let chunks: Vec<_> = (0..FRAMES)
        .step_by(ROWS)
        .map(|first| match codec {
            None => Arc::new(chunk(first, &layout)),
            Some(codec) => Arc::new(chunk(first, &layout).compress(codec, &[true])),
        })
        .collect();
    for last in STACK - 1..FRAMES {
        let item = NewItem {
            key: last as u64,
            priority: 1.0,
            takes_largest: false,
            others: None,
            times_sampled: 0,
            trajectory: stack(&chunks, last),
        };
        table.insert(item, 0, &mut Vec::new());
    }
    drop(chunks);
    (ALLOCATED.load(Relaxed) - before, table.bytes())
}

// A single test, because tests that run at the same time would count in its memory.
#[test]
fn each_frame_of_overlapping_stacks_is_held_once() {
    let frames = FRAMES * FRAME_BYTES;
    let (allocated, said) = table_bytes(None);
    assert_eq!(said as usize, frames);
    assert!(allocated <= frames + frames / 10, "{allocated} bytes for {frames} bytes of frames");
    let (allocated, said) = table_bytes(Some(Codec::Lz4));
    // Most of it is the table's own data now.
    assert!((said as usize) < frames / 20 && allocated < frames / 5, "{allocated}, {said} of {frames}");
}
