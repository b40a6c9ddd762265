//! The cost of gathering a batch of drawn items.
#![allow(missing_docs, reason = "criterion makes public functions")]

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use reverb_core::gather::Gatherer;
use reverb_core::{
    Chunk, DType, Drawn, EpisodeIds, KeySlots, Layout, NewItem, RateLimiterConfig, SelectorKind, Slice, StepRange,
    Table, TableConfig, Trajectory, TrajectoryColumn, item_key_in, random_key,
};
use smallvec::smallvec;
use std::sync::Arc;

const BATCH: usize = 256;
const WINDOW: u32 = 20;

/// A chunk of float32 columns, like those of a transition.
fn chunk(layout: &Arc<Layout>) -> Arc<Chunk> {
    let data = Bytes::from(vec![1; layout.size_bytes]);
    let chunk = Chunk::new(random_key(), EpisodeIds::Same(1), StepRange::default(), layout.clone(), data);
    Arc::new(chunk.expect("as many bytes as the layout says"))
}

fn layout(rows: usize, widths: &[usize]) -> Arc<Layout> {
    let columns = widths.iter().map(|&width| (DType::Float32, smallvec![width], 0));
    Arc::new(Layout::new(rows, columns).expect("a small chunk"))
}

/// A full window of every column that spans two chunks.
fn window(chunks: &[Arc<Chunk>; 2]) -> Trajectory {
    let slice = |chunk: &Arc<Chunk>, column, offset| Slice { chunk: chunk.clone(), column, offset, length: WINDOW / 2 };
    let column = |column| TrajectoryColumn {
        slices: smallvec![slice(&chunks[0], column, WINDOW / 2), slice(&chunks[1], column, 0)],
        squeeze: false,
    };
    Trajectory::columns((0..chunks[0].columns().len() as u32).map(column).collect()).expect("rows of these chunks")
}

fn table(mut trajectory: impl FnMut(usize) -> Trajectory, size: usize) -> Table {
    let mut table = Table::new(TableConfig {
        name: "table".into(),
        sampler: SelectorKind::Uniform,
        remover: SelectorKind::Fifo,
        max_size: size as u64,
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
    })
    .expect("a valid configuration");
    for index in 0..size {
        let item = NewItem {
            key: item_key_in(KeySlots::ALL),
            priority: 1.0,
            takes_largest: false,
            others: None,
            times_sampled: 0,
            trajectory: trajectory(index),
        };
        table.insert(item, 0, &mut Vec::new());
    }
    table
}

fn draw(table: &mut Table) -> Vec<Drawn> {
    (0..BATCH).filter_map(|_| table.sample(0)).collect()
}

fn gather(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("gather");
    group.throughput(Throughput::Elements(BATCH as u64));
    let one_row = layout(1, &[4, 4, 1, 1, 1]);
    let frames = layout(16, &[84 * 21]);
    let steps = layout(WINDOW as usize, &[4, 4, 1, 1, 1]);
    let row = |layout: &Arc<Layout>, index: usize| {
        Trajectory::rows(chunk(layout), index as u32 % layout.rows, 1).expect("a row of the chunk")
    };
    let mut tables = [
        ("transitions/1000", table(|index| row(&one_row, index), 1000)),
        ("transitions/500000", table(|index| row(&one_row, index), 500_000)),
        ("frames/1000", table(|index| row(&frames, index), 1000)),
        ("windows/1000", table(|_| window(&[chunk(&steps), chunk(&steps)]), 1000)),
    ];
    for (name, table) in &mut tables {
        group.bench_function(*name, |bencher| {
            bencher.iter_batched(
                || draw(table),
                |drawn| Gatherer::new(drawn, true).expect("items of one shape").gather(),
                criterion::BatchSize::SmallInput,
            );
        });
    }
}

criterion_group!(benches, gather);
criterion_main!(benches);
