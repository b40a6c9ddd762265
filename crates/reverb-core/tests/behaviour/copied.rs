//! Batches that are drawn and copied in one step equal batches that are drawn, planned and gathered.

use crate::common::{self, config, prioritized, queue};
use bytes::Bytes;
use reverb_core::SelectorKind::{Fifo, Uniform};
use reverb_core::gather::Gatherer;
use reverb_core::{
    BatchInfo, Buffer, Chunk, CopiedBatch, CopiedDraws, DType, EpisodeIds, Layout, NewItem, SelectorKind, Slice,
    StepRange, Table, TableChanges, TableConfig, Trajectory, TrajectoryColumn, random_key,
};
use smallvec::smallvec;
use std::sync::Arc;

const ROWS: u32 = 120;

/// Columns of 120, 1, 8, 11 and 1200 bytes for each row.
fn numbers(rows: usize) -> Arc<Layout> {
    let shapes = [(DType::Float64, 15), (DType::Bool, 1), (DType::Int64, 1), (DType::UInt8, 11), (DType::Float32, 300)];
    Arc::new(Layout::new(rows, shapes.map(|(dtype, width)| (dtype, smallvec![width], 0))).unwrap())
}

/// A chunk whose bytes all differ.
fn chunk(layout: &Arc<Layout>) -> Arc<Chunk> {
    let data: Vec<u8> = (0..layout.size_bytes).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let episodes = EpisodeIds::PerRow(random_key());
    Arc::new(Chunk::new(random_key(), episodes, StepRange::default(), layout.clone(), Bytes::from(data)).unwrap())
}

fn insert(table: &mut Table, key: u64, trajectory: Trajectory) {
    let item =
        NewItem { key, priority: 1.0 + key as f64, takes_largest: false, others: None, times_sampled: 0, trajectory };
    table.insert(item, key, &mut Vec::new());
}

/// A table of items of `length` rows of three chunks of one layout.
fn table(config: TableConfig, length: u32) -> Table {
    let mut table = Table::new(config).unwrap();
    let layout = numbers(ROWS as usize);
    for number in 0..3 {
        let chunk = chunk(&layout);
        for row in 0..ROWS - length {
            let key = u64::from(number * ROWS + row);
            insert(&mut table, key, Trajectory::rows(chunk.clone(), row, length).unwrap());
        }
    }
    table
}

fn bytes(buffer: &Buffer) -> &[u8] {
    // SAFETY: the buffer of a batch is written completely.
    unsafe { std::slice::from_raw_parts(buffer.as_ptr(), buffer.len()) }
}

/// The counts that draws change.
fn counts(table: &mut Table) -> (i64, u64, Vec<i32>) {
    let info = table.info();
    let times_sampled = table.snapshot().items().map(|item| item.times_sampled).collect();
    (info.samples, info.num_unique_samples, times_sampled)
}

fn sample_leased(table: &mut Table, count: usize) -> (CopiedBatch, CopiedDraws) {
    let (batch, draws) = table.sample_copied(count, true, None, 0).unwrap();
    (batch, table.lease_copied(&draws))
}

fn assert_same_batch(sampler: &SelectorKind, count: usize, length: u32, squeeze_time: bool) {
    let config = config(sampler.clone(), Fifo, 1000);
    let (mut one, mut other) = (table(config.clone(), length), table(config, length));
    // Repeated for items that were drawn before, and with a layout that fits or does not fit.
    let mut used = None;
    for round in 0..4 {
        let copied = one.sample_copied(count, squeeze_time, used, 0).unwrap().0;
        let mut drawn = Vec::new();
        other.sample_up_to(count, false, 0, &mut drawn);
        let mut gatherer = Gatherer::new(drawn, squeeze_time).unwrap();
        assert_eq!(copied.info, BatchInfo::of(gatherer.items()));
        assert_eq!(copied.info.len(), count);
        assert_eq!(&copied.layout, gatherer.layout());
        assert!(bytes(&copied.buffer) == bytes(&gatherer.gather()));
        assert_eq!(counts(&mut one), counts(&mut other));
        let mut layout = copied.layout;
        if round == 1 {
            layout.columns.last_mut().unwrap().shape[0] += 1;
        }
        used = Some(layout);
    }
}

#[test]
fn a_copied_batch_is_the_one_that_would_have_been_gathered() {
    for sampler in [Uniform, prioritized(0.7), Fifo] {
        for (count, length, squeeze_time) in [(1, 1, true), (33, 1, true), (64, 1, false), (17, 3, true)] {
            assert_same_batch(&sampler, count, length, squeeze_time);
        }
    }
}

#[test]
fn a_copied_batch_of_interleaved_rows_is_that_of_columns() {
    let plain = numbers(50);
    let interleaved = Arc::new(plain.interleaved().unwrap());
    let [mut one, mut other] = [(); 2].map(|()| Table::new(config(Uniform, Fifo, 1000)).unwrap());
    for number in 0..3 {
        let chunk = chunk(&plain);
        let data = chunk.interleave().unwrap().data().clone();
        let rows = Chunk::new(chunk.key, chunk.episodes, chunk.steps, interleaved.clone(), data).unwrap();
        let rows = Arc::new(rows);
        for row in 0..50 {
            let key = (number * 50 + row).into();
            insert(&mut one, key, Trajectory::rows(chunk.clone(), row, 1).unwrap());
            insert(&mut other, key, Trajectory::rows(rows.clone(), row, 1).unwrap());
        }
    }
    // Counts of one and of several blocks of rows.
    for count in [1, 12, 13, 97] {
        let (copied, again) =
            (one.sample_copied(count, true, None, 0).unwrap().0, other.sample_copied(count, true, None, 0).unwrap().0);
        assert_eq!((copied.info, copied.layout), (again.info, again.layout));
        assert!(bytes(&copied.buffer) == bytes(&again.buffer));
    }
    let two_rows = Trajectory::rows(Arc::new(chunk(&plain).interleave().unwrap()), 0, 2).unwrap();
    let mut table = Table::new(config(Uniform, Fifo, 1000)).unwrap();
    insert(&mut table, 1, two_rows);
    assert_refuses(&mut table, 1);
}

/// Asserts that batches of rows are copied right from chunks of 20 lengths, of which each has a layout of its own. One
/// chunk of `group` has its rows by columns, and the others have them interleaved.
fn assert_copies_of_many_layouts(group: usize) {
    let mut chunks = Vec::new();
    let mut table = Table::new(config(Uniform, Fifo, 1000)).unwrap();
    for number in 0..40_usize {
        let chunk = chunk(&numbers(1 + number % 20));
        chunks.push(if number % group > 0 { Arc::new(chunk.interleave().unwrap()) } else { chunk });
        for row in 0..chunks[number].rows() {
            let key = 100 * number as u64 + u64::from(row);
            insert(&mut table, key, Trajectory::rows(chunks[number].clone(), row, 1).unwrap());
        }
    }
    for count in [1, 12, 13, 97] {
        let batch = table.sample_copied(count, true, None, 0).unwrap().0;
        for (index, column) in batch.layout.columns.iter().enumerate() {
            let expected = batch.info.keys().iter().flat_map(|key| {
                let (number, row) = ((key / 100) as usize, (key % 100) as u32);
                chunks[number].rows_of(index, row, 1)
            });
            let copied = &bytes(&batch.buffer)[column.offset..column.offset + column.size_bytes];
            assert!(copied.iter().eq(expected), "column {index} of {count} items, {group}");
        }
    }
}

#[test]
fn rows_of_the_same_columns_are_copied_wherever_they_lie() {
    // All chunks by columns, all but the first interleaved, and both in turns.
    for group in [1, 40, 2] {
        assert_copies_of_many_layouts(group);
    }
}

#[test]
fn infos_of_an_odd_number_of_samples_are_all_there() {
    let copied = table(config(Fifo, Fifo, 1000), 1).sample_copied(3, true, None, 0).unwrap().0;
    assert_eq!(copied.info.keys(), [0, 0, 0]);
    assert_eq!(copied.info.probabilities(), [1.0, 1.0, 1.0]);
    assert_eq!(copied.info.table_sizes(), [357, 357, 357]);
    assert_eq!(copied.info.priorities(), [1.0, 1.0, 1.0]);
    assert_eq!(copied.info.times_sampled(), [1, 2, 3]);
}

#[track_caller]
fn assert_refuses(table: &mut Table, count: usize) {
    let before = counts(table);
    assert!(table.sample_copied(count, true, None, 0).is_none());
    assert_eq!(counts(table), before);
}

#[test]
fn what_the_table_does_not_allow_is_not_copied() {
    assert_refuses(&mut Table::new(config(Uniform, Fifo, 10)).unwrap(), 1);
    assert_refuses(&mut table(config(Uniform, Fifo, 1000), 1), 0);
    assert_refuses(&mut table(TableConfig { max_times_sampled: 9, ..config(Uniform, Fifo, 1000) }, 1), 1);
    let mut limited = Table::new(TableConfig { rate_limiter: queue(1000), ..config(Uniform, Fifo, 1000) }).unwrap();
    let chunk = common::chunk(30, 1);
    for row in 0..30 {
        limited.insert(common::row_item(row.into(), 1.0, &chunk, row), 0, &mut Vec::new());
    }
    assert_refuses(&mut limited, 31);
    assert!(limited.sample_copied(30, true, None, 0).is_some());
}

#[test]
fn large_batches_are_not_copied_under_a_lock() {
    let mut table = table(config(Uniform, Fifo, 1000), 1);
    // A row has 1340 bytes.
    assert_refuses(&mut table, 98);
    assert!(table.sample_copied(97, true, None, 0).is_some());
    assert_refuses(&mut table, usize::MAX);
}

#[test]
fn a_refusal_does_not_change_what_a_seed_draws_next() {
    let config = config(Uniform, Fifo, 1000);
    let (mut asked, mut other) = (table(config.clone(), 1), table(config, 1));
    assert_refuses(&mut asked, 98);
    let keys = |table: &mut Table| Vec::from(table.sample_copied(50, true, None, 0).unwrap().0.info.keys());
    assert_eq!(keys(&mut asked), keys(&mut other));
}

#[test]
fn items_that_differ_are_not_copied() {
    let rows = |layout: &Arc<Layout>, length| Trajectory::rows(chunk(layout), 0, length).unwrap();
    let of = |columns: &[(DType, usize)]| {
        let columns = columns.iter().map(|&(dtype, width)| (dtype, smallvec![width], 0));
        rows(&Arc::new(Layout::new(5, columns).unwrap()), 1)
    };
    let layout = numbers(5);
    let mut own: Vec<_> = layout.columns.iter().map(|column| (column.dtype, column.elements)).collect();
    let fewer = of(&own[..4]);
    own[2].0 = DType::UInt64;
    let of_other_dtype = of(&own);
    own[2] = (DType::Int64, 2);
    for other in [rows(&layout, 2), fewer, of_other_dtype, of(&own)] {
        let mut table = Table::new(config(Uniform, Fifo, 10)).unwrap();
        insert(&mut table, 1, rows(&layout, 1));
        insert(&mut table, 2, other);
        assert_refuses(&mut table, 60);
    }
}

#[test]
fn strings_and_items_made_of_slices_are_not_copied() {
    let strings = Arc::new(Layout::new(1, [(DType::String, smallvec![], 8)]).unwrap());
    let data = Bytes::from_static(&[0, 0, 0, 0, 0, 0, 0, 0]);
    let text = Chunk::new(1, EpisodeIds::Same(1), StepRange::default(), strings, data).unwrap();
    let slice = Slice { chunk: chunk(&numbers(5)), column: 0, offset: 0, length: 1 };
    let column = TrajectoryColumn { slices: smallvec![slice], squeeze: true };
    for trajectory in [Trajectory::rows(Arc::new(text), 0, 1), Trajectory::columns(vec![column])] {
        let mut table = Table::new(config(Uniform, Fifo, 10)).unwrap();
        insert(&mut table, 1, trajectory.unwrap());
        assert_refuses(&mut table, 1);
    }
}

#[test]
fn a_copied_batch_that_is_given_back_leaves_no_trace() {
    let mut table = table(config(Uniform, Fifo, 1000), 1);
    table.sample_copied(40, true, None, 0).unwrap();
    let before = counts(&mut table);
    let (batch, draws) = sample_leased(&mut table, 60);
    assert_eq!(batch.info.len(), 60);
    assert_ne!(counts(&mut table), before);
    table.give_back_copied(&draws, &mut Vec::new());
    assert_eq!(counts(&mut table), before);
}

#[test]
fn draws_of_items_that_have_left_are_given_back_to_the_limiter_alone() {
    let mut table = table(config(Uniform, Fifo, 1000), 1);
    let (batch, draws) = sample_leased(&mut table, 60);
    let mut keys = Vec::from(batch.info.keys());
    keys.sort_unstable();
    keys.dedup();
    table.mutate(&[], &keys, &mut Vec::new()).unwrap();
    let layout = numbers(ROWS as usize);
    for &key in &keys {
        // Another item under the same key, inserted later.
        let trajectory = Trajectory::rows(chunk(&layout), 0, 1).unwrap();
        table.insert(
            NewItem { key, priority: 1.0, takes_largest: false, others: None, times_sampled: 1, trajectory },
            10_000 + key,
            &mut Vec::new(),
        );
    }
    table.give_back_copied(&draws, &mut Vec::new());
    let (samples, _, times_sampled) = counts(&mut table);
    assert_eq!((samples, times_sampled.iter().sum::<i32>()), (0, keys.len() as i32));
}

#[test]
fn data_that_only_a_copied_draw_has_kept_is_given_out_when_it_has_arrived() {
    let mut table = table(TableConfig { rate_limiter: queue(1000), ..config(Fifo, Fifo, 1000) }, 1);
    let [first, second] = [0; 2].map(|_| sample_leased(&mut table, 1).1);
    let changes = TableChanges { max_times_sampled: Some(2), ..TableChanges::default() };
    let (mut shrinking, mut removed) = (table.configure(&changes).unwrap(), Vec::new());
    while table.shrink(&mut shrinking, 1000, &mut removed) {}
    table.delivered_copied(&first, &mut removed);
    assert_eq!(removed.len(), 0, "the other draw may come back");
    table.delivered_copied(&second, &mut removed);
    assert_eq!((removed.len(), table.contains(0)), (1, false));
}

#[test]
fn after_a_reset_there_is_nothing_to_give_back() {
    let mut table = table(config(Uniform, Fifo, 1000), 1);
    let (_, draws) = sample_leased(&mut table, 60);
    drop(table.reset());
    let before = counts(&mut table);
    table.give_back_copied(&draws, &mut Vec::new());
    assert_eq!(counts(&mut table), before);
}
