//! Batches of several shards that are merged equal the batch that one table gives of the same items.

use proptest::prelude::*;
use reverb_core::gather::{BatchColumn, BatchLayout, Gatherer};
use reverb_core::{
    BatchInfo, Buffer, Chunk, CopiedBatch, DType, Drawn, EpisodeIds, Error, ItemView, Layout, RaceWinner, Shape,
    ShardBatch, Slice, StepRange, Trajectory, TrajectoryColumn, encode_strings, merge_batches, random_key,
};
use std::sync::Arc;

/// What the rows of a column are.
#[derive(Debug, Clone, PartialEq)]
struct Rows {
    dtype: DType,
    shape: Vec<usize>,
    rows: usize,
    squeezed: bool,
}

fn rows(dtype: DType, rows: usize, shape: &[usize]) -> Rows {
    Rows { dtype, shape: shape.to_vec(), rows, squeezed: false }
}

/// A chunk of columns of as many rows, whose values differ from those of all other seeds.
fn chunk(columns: &[Rows], seed: u64) -> Arc<Chunk> {
    let rows = columns[0].rows;
    let data: Vec<Vec<u8>> = columns
        .iter()
        .zip(seed * 31..)
        .map(|(column, seed)| {
            let elements = rows * column.shape.iter().product::<usize>();
            if column.dtype == DType::String {
                let strings: Vec<Vec<u8>> =
                    (0..elements as u64).map(|at| vec![(seed + at) as u8; ((seed * 7 + at) % 5) as usize]).collect();
                return encode_strings(strings.iter().map(Vec::as_slice)).unwrap();
            }
            (0..(elements * column.dtype.size()) as u64).map(|at| (seed * 13 + at) as u8).collect()
        })
        .collect();
    let spec = |(column, data): (&Rows, &Vec<u8>)| (column.dtype, Shape::from_slice(&column.shape), data.len());
    let layout = Layout::new(rows, columns.iter().zip(&data).map(spec)).unwrap();
    let bytes = layout.assemble(&data).into();
    Arc::new(Chunk::new(random_key(), EpisodeIds::Same(1), StepRange::default(), Arc::new(layout), bytes).unwrap())
}

/// An item of these columns, whose key is the seed of its values. Rows of one chunk, if all columns have as many.
fn item(columns: &[Rows], key: u64) -> Drawn {
    let is_rows = columns.iter().all(|column| column.rows == columns[0].rows && !column.squeezed);
    let trajectory = if is_rows {
        Trajectory::rows(chunk(columns, key), 0, columns[0].rows as u32)
    } else {
        let column = |(column, seed): (&Rows, u64)| {
            let chunk = chunk(std::slice::from_ref(column), seed);
            let slice = |offset| Slice { chunk: chunk.clone(), column: 0, offset, length: 1 };
            TrajectoryColumn { slices: (0..column.rows as u32).map(slice).collect(), squeeze: column.squeezed }
        };
        Trajectory::columns(columns.iter().zip(key * 31..).map(column).collect())
    };
    let (priority, times_sampled) = (key as f64 / 2.0, 1 + key as i32 % 3);
    let item = ItemView { key, priority, times_sampled, inserted_at: 0, trajectory: trajectory.unwrap() };
    Drawn::peeked(item, 100)
}

/// The batch that a gatherer makes of these items.
fn gathered(items: Vec<Drawn>, squeeze_time: bool) -> Result<CopiedBatch, String> {
    let mut gatherer = Gatherer::new(items, squeeze_time).map_err(|mismatch| mismatch.reason)?;
    let (info, layout, buffer) = (BatchInfo::of(gatherer.items()), gatherer.layout().clone(), gatherer.gather());
    Ok(CopiedBatch { info, layout, buffer })
}

/// The batches of shards 10, 11, ... of these items.
fn shards(items: Vec<Vec<Drawn>>) -> Vec<ShardBatch> {
    let batches = items.into_iter().map(|items| gathered(items, false).unwrap());
    (10..).zip(batches).map(|(shard, batch)| ShardBatch { shard, batch }).collect()
}

fn winners(places: &[(usize, usize)]) -> Vec<RaceWinner> {
    let winner = |(place, &(shard, index)): (usize, &(usize, usize))| RaceWinner {
        shard,
        index,
        probability: 1.0 / (place + 2) as f64,
        table_size: 1000 + place as i64,
    };
    places.iter().enumerate().map(winner).collect()
}

fn bytes(buffer: &Buffer) -> Vec<u8> {
    // SAFETY: the buffer of a batch is written completely.
    unsafe { buffer.to_vec() }
}

fn assert_same(merged: &CopiedBatch, one: &CopiedBatch, winners: &[RaceWinner]) {
    assert_eq!(merged.layout, one.layout);
    assert_eq!(bytes(&merged.buffer), bytes(&one.buffer));
    let (info, expected) = (&merged.info, &one.info);
    assert_eq!((info.keys(), info.priorities()), (expected.keys(), expected.priorities()));
    assert_eq!(info.times_sampled(), expected.times_sampled());
    assert!(winners.iter().map(|winner| winner.probability).eq(info.probabilities().iter().copied()));
    assert!(winners.iter().map(|winner| winner.table_size).eq(info.table_sizes().iter().copied()));
}

/// A column of a test, and what differs between its items.
#[derive(Debug, Clone)]
struct ColumnPlan {
    base: Rows,
    rows_differ: bool,
    first_axes_differ: bool,
}

fn any_column() -> impl Strategy<Value = ColumnPlan> {
    let dtypes = prop::sample::select(vec![DType::UInt8, DType::String, DType::Float64, DType::Int16, DType::Bool]);
    let shape = prop::collection::vec(0_usize..4, 0..3);
    let differ = || prop::bool::weighted(0.3);
    (dtypes, shape, 1_usize..4, prop::bool::weighted(0.2), differ(), differ()).prop_map(
        |(dtype, shape, rows, squeezed, rows_differ, first_axes_differ)| {
            let rows = if squeezed || first_axes_differ { 1 } else { rows };
            let base = Rows { dtype, shape, rows, squeezed };
            // Now and then both differ, which no table stacks.
            ColumnPlan { base, rows_differ: rows_differ && !squeezed, first_axes_differ }
        },
    )
}

/// An item of a test: its shard, its place among all draws, whether it wins, what its columns have, and whether one
/// differs from those of all other items, and how.
#[derive(Debug, Clone)]
struct ItemPlan {
    shard: usize,
    place: u64,
    wins: bool,
    lengths: Vec<(usize, usize)>,
    oddity: u8,
}

impl ItemPlan {
    fn columns(&self, plans: &[ColumnPlan]) -> Vec<Rows> {
        let column = |(plan, &(rows, axis)): (&ColumnPlan, &(usize, usize))| {
            let mut column = plan.base.clone();
            if plan.rows_differ {
                column.rows = rows;
            }
            if let Some(first) = column.shape.first_mut().filter(|_| plan.first_axes_differ) {
                *first = axis;
            }
            column
        };
        let mut columns: Vec<_> = plans.iter().zip(&self.lengths).map(column).collect();
        let last = columns.last_mut().unwrap();
        match self.oddity {
            0 => last.dtype = DType::Complex64,
            1 => last.shape.push(2),
            2 => last.squeezed ^= last.rows == 1,
            3 => columns.push(rows(DType::Int8, 1, &[])),
            _ => {}
        }
        columns
    }
}

fn any_item(columns: usize) -> impl Strategy<Value = ItemPlan> {
    let lengths = prop::collection::vec((1_usize..4, 0_usize..4), columns);
    let oddity = prop_oneof![60 => Just(9_u8), 1 => 0_u8..4];
    (0_usize..5, any::<u64>(), prop::bool::weighted(0.8), lengths, oddity)
        .prop_map(|(shard, place, wins, lengths, oddity)| ItemPlan { shard, place, wins, lengths, oddity })
}

fn any_draws() -> impl Strategy<Value = (Vec<ColumnPlan>, Vec<ItemPlan>)> {
    prop::collection::vec(any_column(), 1..4).prop_flat_map(|columns| {
        let items = prop::collection::vec(any_item(columns.len()), 0..24);
        (Just(columns), items)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_batch_of_several_shards_is_that_of_one_table(
        (columns, items) in any_draws(), used in 1_usize..6, squeeze_time in any::<bool>(), in_order in any::<bool>(),
    ) {
        let (mut drawn, mut won) = (vec![Vec::new(); used], Vec::new());
        for (key, plan) in (1..).zip(&items) {
            let (shard, item) = (plan.shard % used, item(&plan.columns(&columns), key));
            if plan.wins {
                won.push((if in_order { key } else { plan.place }, (shard, drawn[shard].len()), item.clone()));
            }
            drawn[shard].push(item);
        }
        won.sort_by_key(|(place, ..)| *place);
        let batches: Option<Vec<_>> = drawn.into_iter().map(|items| gathered(items, false).ok()).collect();
        // A shard that cannot stack its draws has no batch.
        let Some(batches) = batches else { return Ok(()) };
        let batches = (10..).zip(batches).map(|(shard, batch)| ShardBatch { shard, batch }).collect();
        let winners = winners(&won.iter().map(|(_, place, _)| *place).collect::<Vec<_>>());
        let one = gathered(won.into_iter().map(|(.., item)| item).collect(), squeeze_time);
        match (merge_batches(batches, &winners, squeeze_time), one) {
            (Ok(merged), Ok(one)) => assert_same(&merged, &one, &winners),
            (Err(Error::InvalidArgument(_)), Err(_)) => {}
            (merged, one) => prop_assert!(false, "merged: {merged:?}, one table: {one:?}"),
        }
    }

    #[test]
    fn a_batch_that_is_not_consistent_is_refused_or_merged_and_never_a_panic(
        dtype in prop::sample::select(vec![DType::UInt8, DType::String, DType::Int16]), squeezed in any::<bool>(),
        shape in prop::collection::vec(prop_oneof![8 => 0_usize..4, 1 => Just(usize::MAX), 1 => Just(1 << 40)], 0..4),
        row_lengths in prop::option::of(prop::collection::vec(prop_oneof![8 => 0_u32..4, 1 => Just(u32::MAX)], 0..4)),
        has_open_rows in any::<bool>(), offset in prop_oneof![4 => Just(0_usize), 1 => any::<usize>()],
        size_bytes in prop_oneof![8 => 0_usize..40, 1 => any::<usize>()], data in prop::collection::vec(0_u8..6, 0..40),
        with_other in any::<bool>(), squeeze_time in any::<bool>(),
    ) {
        let items: Vec<_> = (1..4).map(|key| item(&[rows(dtype, 1, &[2])], key)).collect();
        let mut batches = shards(vec![items.clone(), items]);
        let mut buffer = Buffer::new(data.len());
        buffer.as_uninit_mut().iter_mut().zip(data).for_each(|(target, byte)| { target.write(byte); });
        let column = BatchColumn { dtype, shape, row_lengths, has_open_rows, squeezed, offset, size_bytes };
        let batch = &mut batches[0].batch;
        (batch.layout, batch.buffer) = (BatchLayout { columns: vec![column], size_bytes: buffer.len() }, buffer);
        let mut places = vec![(0, 1), (0, 2), (0, 0)];
        if with_other {
            places.push((1, 1));
        }
        let _ = merge_batches(batches, &winners(&places), squeeze_time);
    }
}

#[test]
fn no_winners_make_an_empty_batch() {
    let batches = || shards(vec![vec![item(&[rows(DType::UInt8, 1, &[])], 1)], Vec::new()]);
    for batches in [Vec::new(), batches()] {
        let merged = merge_batches(batches, &[], true).unwrap();
        assert_same(&merged, &gathered(Vec::new(), true).unwrap(), &[]);
    }
}

#[test]
fn the_whole_batch_of_one_shard_is_not_copied() {
    let items = |key| item(&[rows(DType::Float64, 1, &[3]), rows(DType::String, 1, &[])], key);
    for squeeze_time in [false, true] {
        let batches = shards(vec![Vec::new(), (1..6).map(items).collect(), vec![items(7)]]);
        let address = batches[1].batch.buffer.as_ptr();
        let winners = winners(&[(1, 0), (1, 1), (1, 2), (1, 3), (1, 4)]);
        let merged = merge_batches(batches, &winners, squeeze_time).unwrap();
        assert_eq!(merged.buffer.as_ptr(), address);
        assert_same(&merged, &gathered((1..6).map(items).collect(), squeeze_time).unwrap(), &winners);
    }
}

#[track_caller]
fn assert_refused(shards_of_items: [Vec<Vec<Rows>>; 2], places: &[(usize, usize)], expected: &str) {
    let items = |items: &Vec<Vec<Rows>>| items.iter().zip(1..).map(|(columns, key)| item(columns, key)).collect();
    let batches = || shards(shards_of_items.iter().map(items).collect());
    let error = merge_batches(batches(), &winners(places), true).unwrap_err();
    assert_eq!(error, Error::InvalidArgument(format!("items of shards cannot be stacked into a batch: {expected}")));
    // What does not win does not count.
    let first: Vec<_> = places.iter().copied().filter(|place| place.0 == places[0].0).collect();
    assert_eq!(merge_batches(batches(), &winners(&first), true).unwrap().info.len(), first.len());
}

#[test]
fn what_one_table_refuses_is_refused_by_column_and_shard() {
    let numbers = || rows(DType::Int16, 1, &[2, 3]);
    let with = |other| [vec![vec![numbers(), numbers()]], vec![vec![numbers(), other]]];
    let order = [(0, 0), (1, 0)];
    let expected = "column 1: expected dtype int16, as from shard 10, got dtype float from shard 11";
    assert_refused(with(rows(DType::Float32, 1, &[2, 3])), &order, expected);
    let expected = "column 1: expected rows of shape [2,3], as from shard 10, got rows of shape [2,4] from shard 11";
    assert_refused(with(rows(DType::Int16, 1, &[2, 4])), &order, expected);
    let expected = "column 1: expected rows of shape [], as from shard 11, got rows of shape [2,3] from shard 10";
    assert_refused(with(rows(DType::Int16, 1, &[])), &[(1, 0), (0, 0)], expected);
    let expected = "column 1: expected a time axis, as from shard 10, got no time axis from shard 11";
    assert_refused(with(Rows { squeezed: true, ..numbers() }), &order, expected);
    let expected = "column 1: expected one row, since rows of the items differ in length, got 2 rows in an item from \
                    shard 11";
    assert_refused(with(rows(DType::Int16, 2, &[4, 3])), &order, expected);
    let open = [vec![vec![rows(DType::Int16, 1, &[2])], vec![rows(DType::Int16, 1, &[3])]], vec![vec![numbers()]]];
    let expected = "column 0: expected rows of shape [?], as from shard 10, got rows of shape [2,3] from shard 11";
    assert_refused(open, &[(0, 0), (1, 0), (0, 1)], expected);
    let fewer = [vec![vec![numbers()]], vec![vec![numbers(), numbers()]]];
    assert_refused(fewer, &order, "expected 1 columns, as from shard 10, got 2 from shard 11");
}

#[test]
fn a_winner_without_a_row_is_an_error() {
    let batches = || shards(vec![vec![item(&[rows(DType::UInt8, 1, &[])], 1)]]);
    for (place, expected) in
        [((0, 1), "expected row 1 of batch 0 of the 1 batches of shards, got 1 rows"), ((7, 0), "batch 7")]
    {
        let error = merge_batches(batches(), &winners(&[place]), true).unwrap_err();
        assert!(matches!(&error, Error::InvalidArgument(text) if text.contains(expected)), "{error}");
    }
}

#[test]
fn a_layout_that_does_not_fit_its_data_is_data_loss() {
    let strings = |key| item(&[rows(DType::String, 1, &[2])], key);
    let mut batches = shards(vec![(1..4).map(strings).collect()]);
    // The end of the first string.
    batches[0].batch.buffer.as_uninit_mut()[4].write(200);
    let error = merge_batches(batches, &winners(&[(0, 1)]), true).unwrap_err();
    assert!(
        matches!(&error, Error::DataLoss(text) if text.contains("column 0 of a batch of 3 items from shard 10")),
        "{error}"
    );
}
