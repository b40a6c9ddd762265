//! How often items are looked up while a batch is gathered piece by piece.

use super::Gatherer;
use super::columns::take_visits;
use crate::{
    Chunk, DType, Drawn, EpisodeIds, Layout, NewItem, RateLimiterConfig, SelectorKind, Slice, StepRange, Table,
    TableConfig, Trajectory, TrajectoryColumn, encode_strings,
};
use smallvec::smallvec;
use std::mem::MaybeUninit;
use std::sync::Arc;

const ROWS: usize = 2000;
const COLUMNS: usize = 3;
/// A few rows of a column, and not a multiple of one.
const PIECE_BYTES: usize = 100;

/// A chunk of two columns of numbers and one of strings.
fn chunk() -> Arc<Chunk> {
    let text = encode_strings((0..ROWS).map(|_| &b"a string"[..])).unwrap();
    let columns =
        [(DType::UInt64, smallvec![4], 0), (DType::String, smallvec![], text.len()), (DType::Float32, smallvec![3], 0)];
    let layout = Arc::new(Layout::new(ROWS, columns).unwrap());
    let data = layout.assemble(&[vec![1; 32 * ROWS], text, vec![2; 12 * ROWS]]).into();
    Arc::new(Chunk::new(1, EpisodeIds::Same(1), StepRange::default(), layout, data).unwrap())
}

fn drawn(items: impl ExactSizeIterator<Item = Trajectory>) -> Vec<Drawn> {
    let rate_limiter =
        RateLimiterConfig { samples_per_insert: 1.0, min_size_to_sample: 1, min_diff: -f64::MAX, max_diff: f64::MAX };
    let config = TableConfig {
        name: "table".into(),
        sampler: SelectorKind::Fifo,
        remover: SelectorKind::Fifo,
        max_size: items.len() as u64,
        max_times_sampled: 1,
        rate_limiter,
        signature: None,
        max_bytes: None,
        seed: None,
    };
    let (mut table, count) = (Table::new(config).unwrap(), items.len());
    for (key, trajectory) in (0..).zip(items) {
        table.insert(
            NewItem { key, priority: 1.0, takes_largest: false, others: None, times_sampled: 0, trajectory },
            0,
            &mut Vec::new(),
        );
    }
    (0..count).filter_map(|_| table.sample(0)).collect()
}

/// Gathers the batch in pieces, and returns the number of pieces and of visits.
fn gather(items: Vec<Drawn>) -> (usize, usize) {
    let mut gatherer = Gatherer::new(items, false).unwrap();
    let mut piece = [MaybeUninit::uninit(); PIECE_BYTES];
    let mut pieces = 0;
    take_visits();
    while gatherer.remaining() > 0 {
        let now = PIECE_BYTES.min(gatherer.remaining());
        gatherer.fill(&mut piece[..now]);
        pieces += 1;
    }
    (pieces, take_visits())
}

/// A visit finds a slice, or that an item has no more. Strings are visited for their ends and for their text.
fn most_visits(slices: usize, pieces: usize) -> usize {
    2 * (COLUMNS + 1) * slices + 4 * pieces
}

#[test]
fn the_visits_of_single_rows_grow_with_the_batch() {
    let chunk = chunk();
    let items = (0..ROWS as u32).map(|row| Trajectory::rows(chunk.clone(), row, 1).unwrap());
    let (pieces, visits) = gather(drawn(items));
    assert!(pieces > 1000 && visits <= most_visits(ROWS, pieces), "{visits} visits in {pieces} pieces");
}

#[test]
fn the_visits_of_one_item_of_many_slices_grow_with_its_slices() {
    let chunk = chunk();
    let column = |column: u32| TrajectoryColumn {
        slices: (0..ROWS as u32).map(|offset| Slice { chunk: chunk.clone(), column, offset, length: 1 }).collect(),
        squeeze: false,
    };
    let item = Trajectory::columns((0..COLUMNS as u32).map(column).collect()).unwrap();
    let (pieces, visits) = gather(drawn([item].into_iter()));
    assert!(pieces > 1000 && visits <= most_visits(ROWS, pieces), "{visits} visits in {pieces} pieces");
}

#[test]
fn rows_without_a_time_axis_are_stacked_like_others() {
    let chunk = chunk();
    let squeezed = || (0..5).map(|row| Trajectory::squeezed_row(chunk.clone(), row).unwrap());
    let whole = |items: Vec<Drawn>| {
        let mut gatherer = Gatherer::new(items, false).unwrap();
        let columns = gatherer.layout().columns.clone();
        // SAFETY: the batch is gathered completely.
        (columns, unsafe { gatherer.gather().to_vec() })
    };
    let (columns, bytes) = whole(drawn(squeezed()));
    let (others, same) = whole(drawn((0..5).map(|row| Trajectory::rows(chunk.clone(), row, 1).unwrap())));
    assert_eq!(bytes, same);
    for (column, other) in columns.iter().zip(&others) {
        assert!(column.squeezed && !other.squeezed);
        assert_eq!([&[5, 1][..], &column.shape[1..]].concat(), other.shape[..]);
    }
    let mixed: Vec<_> = squeezed().chain([Trajectory::rows(chunk.clone(), 5, 1).unwrap()]).collect();
    let mismatch = Gatherer::new(drawn(mixed.into_iter()), false).unwrap_err();
    assert_eq!(mismatch.index, 5);
    assert!(mismatch.reason.contains("has a time axis in only one of this item and the first item"));
}

/// An item of one step: `length` pairs of bytes, and as many empty strings.
fn open_row(length: usize) -> Trajectory {
    let text = encode_strings((0..length).map(|_| &b""[..])).unwrap();
    let columns = [(DType::UInt8, smallvec![length, 2], 0), (DType::String, smallvec![length], text.len())];
    let layout = Arc::new(Layout::new(1, columns).unwrap());
    let pairs: Vec<u8> = (0..2 * length).map(|byte| (16 * length + byte) as u8).collect();
    let data = layout.assemble(&[pairs, text]).into();
    let chunk = Chunk::new(1, EpisodeIds::Same(1), StepRange::default(), layout, data).unwrap();
    Trajectory::rows(Arc::new(chunk), 0, 1).unwrap()
}

#[test]
fn rows_of_different_lengths_lie_one_after_another() {
    let gatherer = || Gatherer::new(drawn([3, 0, 2].map(open_row).into_iter()), false).unwrap();
    let columns = gatherer().layout().columns.clone();
    assert_eq!([&columns[0].shape[..], &columns[1].shape], [&[5, 2][..], &[5]]);
    for column in &columns {
        assert_eq!((column.row_lengths.as_deref(), column.has_open_rows), (Some(&[3, 0, 2][..]), true));
    }
    let whole = gatherer().gather();
    // SAFETY: the batch was gathered completely.
    let whole = unsafe { whole.to_vec() };
    assert_eq!(whole[..10], [48, 49, 50, 51, 52, 53, 32, 33, 34, 35]);
    let (mut pieces, mut gatherer) = (Vec::new(), gatherer());
    while gatherer.remaining() > 0 {
        let mut piece = [MaybeUninit::uninit(); 7];
        let now = piece.len().min(gatherer.remaining());
        gatherer.fill(&mut piece[..now]);
        // SAFETY: `fill` has written these bytes.
        pieces.extend(piece[..now].iter().map(|byte| unsafe { byte.assume_init() }));
    }
    assert_eq!(pieces, whole);
}

#[test]
fn rows_of_different_lengths_in_an_item_of_several_are_refused() {
    let layout =
        Arc::new(Layout::new(2, [(DType::UInt8, smallvec![3, 2], 0), (DType::String, smallvec![3], 28)]).unwrap());
    let text = encode_strings((0..6).map(|_| &b""[..])).unwrap();
    let data = layout.assemble(&[vec![0; 12], text]).into();
    let chunk = Arc::new(Chunk::new(2, EpisodeIds::Same(1), StepRange::default(), layout, data).unwrap());
    let two = Trajectory::rows(chunk, 0, 2).unwrap();
    let mismatch = Gatherer::new(drawn([open_row(3), two, open_row(2)].into_iter()), false).unwrap_err();
    assert_eq!(mismatch.index, 1);
    assert!(mismatch.reason.contains("has 2 rows of shape [3,2]"), "{}", mismatch.reason);
}
