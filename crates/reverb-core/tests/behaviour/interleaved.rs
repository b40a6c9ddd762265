//! Interleaved chunks: other bytes, with the same rows.

use crate::common::drawn::{gathered, items};
use proptest::prelude::*;
use reverb_core::{
    Chunk, Codec, DType, EpisodeIds, Error, Layout, MovedRows, Shape, StepRange, Trajectory, UsedRows, keep_rows,
    keep_rows_encoded, random_key,
};
use smallvec::smallvec;
use std::sync::Arc;

fn make(layout: &Arc<Layout>, data: Vec<u8>) -> reverb_core::Result<Chunk> {
    Chunk::new(random_key(), EpisodeIds::PerRow(1), StepRange::default(), layout.clone(), data.into())
}

fn layout(rows: usize, columns: &[(DType, usize)]) -> Layout {
    Layout::new(rows, columns.iter().map(|&(dtype, width)| (dtype, smallvec![width], 0))).unwrap()
}

fn rows_of(chunk: &Chunk) -> Vec<u8> {
    chunk.view(&mut Vec::new()).unwrap().data().to_vec()
}

/// Three rows of a column of bytes and of a column of pairs of bytes.
fn small() -> Chunk {
    let layout = Arc::new(layout(3, &[(DType::UInt8, 1), (DType::UInt8, 2)]));
    // The second column starts at a multiple of 8.
    make(&layout, vec![1, 2, 3, 0, 0, 0, 0, 0, 11, 12, 21, 22, 31, 32]).unwrap()
}

#[test]
fn the_columns_of_a_row_lie_side_by_side() {
    let chunk = small().interleave().unwrap();
    assert_eq!(chunk.data()[..], [1, 11, 12, 2, 21, 22, 3, 31, 32]);
    assert_eq!((chunk.size_bytes(), chunk.bytes_per_row(), chunk.decoded_bytes()), (9, 3, 14));
    assert!(chunk.is_encoded() && !chunk.is_compressed() && chunk.encoding().is_none());
    assert_eq!(rows_of(&chunk), small().data()[..]);
    assert_eq!(chunk.rows_of(1, 2, 1), [31, 32]);
    assert_eq!(rows_of(&chunk.interleave().unwrap()), rows_of(&chunk));
    let trajectory = Trajectory::rows(Arc::new(chunk), 0, 2).unwrap();
    assert_eq!((trajectory.size_bytes(), trajectory.held_bytes()), (6, 6));
}

#[test]
fn a_layout_puts_columns_where_they_belong() {
    let (plain, columns) = (small(), [&[1, 2, 3][..], &[11, 12, 21, 22, 31, 32]]);
    for layout in [(**plain.layout()).clone(), plain.layout().interleaved().unwrap()] {
        let bytes = layout.assemble(&columns);
        assert_eq!(rows_of(&make(&Arc::new(layout), bytes).unwrap()), plain.data()[..]);
    }
}

#[test]
fn bytes_of_another_number_and_strings_are_refused() {
    let interleaved = Arc::new(small().layout().interleaved().unwrap());
    for count in [0, 8, 10, 14] {
        let error = make(&interleaved, vec![0; count]).unwrap_err();
        assert!(matches!(&error, Error::InvalidArgument(text) if text.contains("expected 9 bytes")), "{error:?}");
    }
    let strings = Layout::new(1, [(DType::Int8, smallvec![], 0), (DType::String, smallvec![], 8)]).unwrap();
    let error = strings.interleaved().unwrap_err();
    assert!(matches!(&error, Error::InvalidArgument(text) if text.contains("column 1 holds strings")), "{error:?}");
}

#[test]
fn a_codec_leaves_it_as_it_is() {
    let layout = Arc::new(layout(100, &[(DType::UInt8, 10), (DType::UInt8, 10)]));
    let chunk = make(&layout, vec![3; layout.size_bytes]).unwrap().interleave().unwrap();
    let small = chunk.compress(Codec::Lz4, &[]);
    assert!(!small.is_compressed());
    assert_eq!(small.data(), chunk.data());
}

#[test]
fn rows_without_bytes_are_rows() {
    let layout = Arc::new(layout(3, &[(DType::Float32, 0), (DType::Int16, 0)]).interleaved().unwrap());
    let chunk = Arc::new(make(&layout, vec![]).unwrap());
    let item = Trajectory::rows(chunk.clone(), 1, 1).unwrap();
    assert_eq!((item.size_bytes(), item.held_bytes()), (0, 0));
    assert!(gathered(&[item.clone(), item], 0).is_empty());
    assert_eq!(keep_rows_encoded(&chunk, &[0, 2], &mut Vec::new()).unwrap().rows(), 2);
}

prop_compose! {
    fn any_chunk()(
        rows in 1_usize..70, seed in 0_u64..1_000_000,
        columns in prop::collection::vec((prop::sample::select(DType::ALL), prop::collection::vec(0_usize..14, 0..2)), 1..5),
    ) -> Chunk {
        let number = |dtype| if dtype == DType::String { DType::UInt8 } else { dtype };
        let columns = columns.iter().map(|(dtype, shape)| (number(*dtype), Shape::from_slice(shape), 0));
        let layout = Layout::new(rows, columns).unwrap();
        let mut data = vec![0; layout.size_bytes];
        for column in &layout.columns {
            for (at, byte) in (seed..).zip(&mut data[column.offset..column.offset + column.size_bytes]) {
                *byte = (at + column.offset as u64).wrapping_mul(2_654_435_761).to_le_bytes()[2];
            }
        }
        make(&Arc::new(layout), data).unwrap()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn a_batch_is_the_same_whatever_its_chunks_are(
        chunk in any_chunk(), slices in 0_usize..3, single in any::<bool>(), piece in prop_oneof![Just(0), 1_usize..50],
        mut picks in prop::collection::vec((any::<u32>(), any::<u32>()), 1..90), other in 0..3,
    ) {
        if single {
            picks.iter_mut().for_each(|(_, length)| *length = 0);
        }
        let (interleaved, chunk) = (Arc::new(chunk.interleave().unwrap()), Arc::new(chunk));
        prop_assert_eq!(rows_of(&interleaved), rows_of(&chunk));
        let (plain, mut read) = (items(&chunk, &picks, slices), items(&interleaved, &picks, slices));
        // Together with items of other chunks.
        match other {
            0 => read[0] = plain[0].clone(),
            1 => {
                let compressed = Arc::new(chunk.compress(Codec::Lz4, &[]));
                read[0] = items(&compressed, &picks[..1], slices).remove(0);
            }
            _ => {}
        }
        prop_assert_eq!(gathered(&read, piece), gathered(&plain, 0));
    }

    #[test]
    fn rows_that_are_kept_are_the_same(chunk in any_chunk(), picks in prop::collection::vec((any::<u32>(), Just(0)), 1..9)) {
        let chunk = Arc::new(chunk.interleave().unwrap());
        let items = items(&chunk, &picks, 0);
        for stays in [false, true] {
            let (mut used, mut moved) = (UsedRows::default(), MovedRows::default());
            items.iter().for_each(|item| used.add(item, |_| true));
            for (chunk, rows) in used {
                let keep = if stays { keep_rows_encoded } else { keep_rows };
                let copy = keep(&chunk, &rows, &mut vec![7; 9]).unwrap();
                prop_assert_eq!(copy.layout().is_interleaved(), stays);
                moved.insert(chunk, copy, rows);
            }
            let kept: Vec<_> = items.iter().map(|item| moved.rewrite(item).unwrap()).collect();
            prop_assert_eq!(gathered(&kept, 0), gathered(&items, 0));
        }
    }
}
