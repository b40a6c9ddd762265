//! The cost of one insert, one draw and one update of a table.
#![allow(missing_docs, reason = "criterion makes public functions")]

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use reverb_core::{
    Chunk, DType, EpisodeIds, KeySlots, Layout, NewItem, RateLimiterConfig, SelectorKind, StepRange, Table,
    TableConfig, Trajectory, item_key_in, random_key,
};
use smallvec::smallvec;
use std::sync::Arc;

const BATCH: usize = 256;
const SIZES: [usize; 2] = [4096, 1_000_000];
const PRIORITIZED: SelectorKind = SelectorKind::Prioritized { priority_exponent: 1.0 };

/// Rows of five columns, like those that `insert` creates.
fn rows(count: usize) -> Vec<NewItem> {
    let columns = [4_usize, 4, 1, 1, 1].map(|width| (DType::Float32, smallvec![width], 0));
    let layout = Arc::new(Layout::new(count, columns).expect("a small chunk"));
    let data = Bytes::from(vec![0; layout.size_bytes]);
    let episodes = EpisodeIds::PerRow(random_key());
    let chunk = Chunk::new(random_key(), episodes, StepRange::default(), layout, data);
    let chunk = Arc::new(chunk.expect("as many bytes as the layout says"));
    let item = |row| NewItem {
        key: item_key_in(KeySlots::ALL),
        priority: 0.5 + (row % 100) as f64,
        takes_largest: false,
        others: None,
        times_sampled: 0,
        trajectory: Trajectory::Rows { chunk: chunk.clone(), offset: row, length: 1, squeeze: false },
    };
    (0..count as u32).map(item).collect()
}

fn full_table(sampler: SelectorKind, remover: SelectorKind, size: usize) -> Table {
    let mut table = Table::new(TableConfig {
        name: "table".into(),
        sampler,
        remover,
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
    let mut removed = Vec::new();
    while table.len() < size {
        for item in rows(BATCH) {
            table.insert(item, 0, &mut removed);
        }
    }
    table
}

fn insert_with_eviction(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("insert_with_eviction");
    group.throughput(Throughput::Elements(BATCH as u64));
    for (name, sampler) in
        [("uniform", SelectorKind::Uniform), ("prioritized", PRIORITIZED), ("max_heap", SelectorKind::MaxHeap)]
    {
        for size in SIZES {
            let mut table = full_table(sampler.clone(), SelectorKind::Fifo, size);
            group.bench_function(format!("{name}/{size}"), |bencher| {
                bencher.iter_batched(
                    || (rows(BATCH), Vec::with_capacity(2 * BATCH)),
                    |(items, mut removed)| {
                        for item in items {
                            table.insert(item, 0, &mut removed);
                        }
                        removed
                    },
                    BatchSize::SmallInput,
                );
            });
        }
    }
}

fn draw(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("draw");
    group.throughput(Throughput::Elements(BATCH as u64));
    for (name, sampler) in [("uniform", SelectorKind::Uniform), ("prioritized", PRIORITIZED)] {
        for size in SIZES {
            let mut table = full_table(sampler.clone(), SelectorKind::Fifo, size);
            let mut drawn = Vec::with_capacity(BATCH);
            group.bench_function(format!("{name}/{size}"), |bencher| {
                bencher.iter(|| {
                    drawn.clear();
                    drawn.extend((0..BATCH).filter_map(|_| table.sample(0)));
                    drawn.len()
                });
            });
        }
    }
}

fn update(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("update");
    group.throughput(Throughput::Elements(BATCH as u64));
    for size in SIZES {
        let mut table = full_table(PRIORITIZED, SelectorKind::Fifo, size);
        let mut removed = Vec::new();
        let keys: Vec<_> = (0..64 * BATCH).filter_map(|_| table.sample(0)).map(|drawn| drawn.key).collect();
        let mut batches = keys.chunks(BATCH).cycle();
        let mut priority = 0.0;
        group.bench_function(format!("prioritized/{size}"), |bencher| {
            bencher.iter(|| {
                priority += 0.1;
                let keys = batches.next().expect("it never ends");
                let updates: Vec<_> = keys.iter().map(|&key| (key, priority)).collect();
                table.mutate(&updates, &[], &mut removed)
            });
        });
    }
}

criterion_group!(benches, insert_with_eviction, draw, update);
criterion_main!(benches);
