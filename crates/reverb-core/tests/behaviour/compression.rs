//! Chunks whose bytes are encoded: smaller, with the same rows.

use crate::common;
use crate::common::drawn::{gathered, items};
use proptest::prelude::*;
use reverb_core::{
    AutoCodec, Chunk, Codec, Compression, Compressor, DType, Encoding, EpisodeIds, Error, Layout, MovedRows,
    SelectorKind, Shape, Slice, StepRange, Table, Trajectory, TrajectoryColumn, UsedRows, encode_strings, keep_rows,
    random_key,
};
use smallvec::smallvec;
use std::sync::Arc;

const CODECS: [Codec; 2] = [Codec::Lz4, Codec::Zstd];

fn make(layout: &Arc<Layout>, data: Vec<u8>) -> Chunk {
    Chunk::new(random_key(), EpisodeIds::Same(1), StepRange::default(), layout.clone(), data.into()).unwrap()
}

fn encoded(layout: &Arc<Layout>, data: Vec<u8>, codec: Codec, delta: &[bool]) -> reverb_core::Result<Chunk> {
    let layout = layout.encoded(Encoding { codec, delta: delta.into() })?;
    Chunk::new(7, EpisodeIds::Same(1), StepRange::default(), Arc::new(layout), data.into())
}

fn bytes_layout(rows: usize, row_bytes: usize) -> Arc<Layout> {
    Arc::new(Layout::new(rows, [(DType::UInt8, smallvec![row_bytes], 0)]).unwrap())
}

/// Rows that increase by one from row to row, like a counter.
fn counting(rows: usize, row_bytes: usize) -> Vec<u8> {
    (0..rows).flat_map(|row| (0..row_bytes).map(move |column| (row + column * 37) as u8)).collect()
}

/// Bytes without any order.
fn noise(count: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..count).map(|_| next()).collect()
}

fn rows_of(chunk: &Chunk) -> Vec<u8> {
    chunk.view(&mut Vec::new()).unwrap().data().to_vec()
}

#[test]
fn an_encoded_chunk_is_smaller_and_counts_as_such() {
    let layout = bytes_layout(50, 100);
    for codec in CODECS {
        let chunk = Arc::new(make(&layout, vec![3; 5000]).compress(codec, &[]));
        assert_eq!(chunk.encoding().unwrap().codec, codec);
        assert!(chunk.size_bytes() < 100, "{}", chunk.size_bytes());
        assert_eq!((chunk.decoded_bytes(), chunk.rows()), (5000, 50));
        assert_eq!(rows_of(&chunk), [3; 5000]);
        let mut table = Table::new(common::config(SelectorKind::Fifo, SelectorKind::Fifo, 10)).unwrap();
        table.insert(common::row_item(1, 1.0, &chunk, 0), 0, &mut Vec::new());
        assert_eq!(table.bytes(), chunk.size_bytes() as u64);
    }
}

#[test]
fn an_item_of_slices_holds_its_part_of_the_encoded_bytes() {
    let chunk = Arc::new(make(&bytes_layout(50, 100), vec![3; 5000]).compress(Codec::Lz4, &[]));
    let slice = Slice { chunk: chunk.clone(), column: 0, offset: 10, length: 25 };
    let half = Trajectory::columns(vec![TrajectoryColumn { slices: smallvec![slice], squeeze: false }]).unwrap();
    assert_eq!(half.size_bytes(), 2500);
    assert_eq!(half.held_bytes(), (chunk.size_bytes() as u64).div_ceil(2));
}

#[test]
fn bytes_that_do_not_shrink_stay_as_they_are() {
    for codec in CODECS {
        let chunk = make(&bytes_layout(50, 100), noise(5000, 1));
        assert!(!chunk.compress(codec, &[true]).is_encoded());
        assert!(!make(&bytes_layout(1, 100), vec![0; 100]).compress(codec, &[]).is_encoded(), "too small to try");
        assert!(!make(&bytes_layout(5, 0), vec![]).compress(codec, &[true]).is_encoded(), "nothing");
    }
}

#[test]
fn what_is_encoded_is_not_encoded_again() {
    let chunk = make(&bytes_layout(50, 100), vec![3; 5000]).compress(Codec::Lz4, &[]);
    let again = chunk.compress(Codec::Zstd, &[true]);
    assert_eq!((again.encoding(), again.data()), (chunk.encoding(), chunk.data()));
}

#[test]
fn differences_wrap_and_are_only_of_integers() {
    let columns = [(DType::UInt8, smallvec![2], 0), (DType::Float32, smallvec![], 0), (DType::Int16, smallvec![], 0)];
    let layout = Arc::new(Layout::new(100, columns).unwrap());
    let mut data = vec![0; layout.size_bytes];
    data[..8].copy_from_slice(&[1, 250, 3, 2, 2, 5, 255, 0]);
    let chunk = make(&layout, data.clone()).compress(Codec::Lz4, &[true; 3]);
    assert_eq!(*chunk.encoding().unwrap().delta, [true, false, true]);
    assert_eq!(rows_of(&chunk), data);
    let mut differences = vec![0; layout.size_bytes];
    lz4_flex::block::decompress_into(chunk.data(), &mut differences).unwrap();
    assert_eq!(differences[..10], [1, 250, 2, 8, 255, 3, 253, 251, 1, 0]);
    assert_eq!(differences[10..], data[10..]);
}

#[test]
fn missing_flags_mean_no_differences() {
    let layout = Arc::new(Layout::new(100, [(DType::UInt8, smallvec![4], 0), (DType::Int32, smallvec![], 0)]).unwrap());
    let chunk = make(&layout, vec![0; layout.size_bytes]).compress(Codec::Zstd, &[true]);
    assert_eq!(*chunk.encoding().unwrap().delta, [true, false]);
}

#[test]
fn bytes_that_decode_to_another_size_are_refused() {
    for codec in CODECS {
        let of = |count| make(&bytes_layout(1, count), vec![1; count]).compress(codec, &[]).data().to_vec();
        let good = encoded(&bytes_layout(10, 100), of(1000), codec, &[false]);
        assert_eq!(rows_of(&good.unwrap()), [1; 1000]);
        for wrong in [999, 1001, 100_000_000] {
            let error = encoded(&bytes_layout(10, 100), of(wrong), codec, &[false]).unwrap_err();
            let Error::InvalidArgument(text) = error else { panic!("{error:?}") };
            assert!(text.contains("does not decode to 1000 bytes") || text.contains("do not compress it"), "{text}");
        }
    }
}

#[test]
fn encodings_that_cannot_be_are_refused() {
    let layout = Arc::new(Layout::new(10, [(DType::Float32, smallvec![100], 0)]).unwrap());
    let bytes = make(&layout, vec![0; 4000]).compress(Codec::Lz4, &[]).data().to_vec();
    let said = |data: Vec<u8>, delta: &[bool]| encoded(&layout, data, Codec::Lz4, delta).unwrap_err().to_string();
    assert_eq!(
        said(bytes.clone(), &[true]),
        "column 0 of dtype float cannot be stored as differences: only integers can"
    );
    assert_eq!(said(bytes.clone(), &[]), "expected 1 delta flags, one for each column, got 0");
    assert_eq!(said(bytes, &[false; 2]), "expected 1 delta flags, one for each column, got 2");
    let long = said(vec![0; 4000], &[false]);
    assert_eq!(long, "chunk 7: 4000 bytes of lz4 data decode to only 4000 bytes; do not compress it");
}

#[test]
fn strings_are_checked_after_decoding() {
    let ends = [0_u32, 3, 2].iter().flat_map(|end| end.to_le_bytes()).chain([b'x'; 300]);
    let region: Vec<u8> = ends.collect();
    let layout = Arc::new(Layout::new(2, [(DType::String, Shape::new(), region.len())]).unwrap());
    let data = make(&bytes_layout(1, region.len()), region).compress(Codec::Zstd, &[]).data().to_vec();
    let error = encoded(&layout, data, Codec::Zstd, &[false]).unwrap_err().to_string();
    assert!(error.contains("column 0: string 2 ends at 2"), "{error}");
}

#[test]
fn auto_takes_what_pays() {
    let choice = |data: &dyn Fn(u64) -> Vec<u8>, rows| {
        let mut auto = AutoCodec::default();
        let layout = bytes_layout(rows, data(0).len() / rows);
        let chunks: Vec<_> = (0..10).map(|seed| auto.compress(make(&layout, data(seed)))).collect();
        (auto.choice().cloned(), chunks)
    };
    let (none, chunks) = choice(&|seed| noise(10_000, seed), 10);
    assert!(none.is_none() && chunks.iter().all(|chunk| !chunk.is_encoded()));
    let (plain, _) = choice(&|seed| vec![seed as u8; 10_000], 10);
    assert_eq!(plain, Some(Encoding { codec: Codec::Lz4, delta: [false].into() }));
    // Nothing repeats, but four bits for each byte are enough.
    let (entropy, _) = choice(&|seed| noise(10_000, seed).into_iter().map(|byte| byte % 16).collect(), 10);
    assert_eq!(entropy.unwrap().codec, Codec::Zstd);
    // Each row is the row before plus one: nothing repeats, and all differences are equal.
    let rows = |seed| {
        let first = noise(1000, seed);
        (0..20_u8).flat_map(|row| first.iter().map(move |byte| byte.wrapping_add(row)).collect::<Vec<_>>()).collect()
    };
    let (differences, chunks) = choice(&rows, 20);
    assert!(differences.unwrap().delta[0]);
    for (seed, chunk) in (0..).zip(&chunks) {
        assert!(chunk.size_bytes() < 2000);
        assert_eq!(rows_of(chunk), rows(seed));
    }
}

#[test]
fn auto_tries_again_when_data_may_have_changed() {
    let mut auto = AutoCodec::default();
    let layout = bytes_layout(10, 100);
    (0..1024).for_each(|_| drop(auto.compress(make(&layout, vec![0; 1000]))));
    assert!(auto.choice().is_some());
    (0..3).for_each(|seed| drop(auto.compress(make(&layout, noise(1000, seed)))));
    assert!(auto.choice().is_none());
}

#[test]
fn compression_is_named_by_users() {
    let layout = bytes_layout(50, 100);
    let compress = |name: &str| {
        let mut compressor = Compressor::new(name.parse::<Compression>().unwrap(), &[true]);
        let chunk = compressor.compress(make(&layout, counting(50, 100)));
        chunk.encoding().map(|encoding| (encoding.codec, encoding.delta[0]))
    };
    assert_eq!(compress("none"), None);
    assert_eq!(compress("lz4"), Some((Codec::Lz4, true)));
    assert_eq!(compress("zstd"), Some((Codec::Zstd, true)));
    assert!(compress("auto").is_some());
    let error = "gzip".parse::<Compression>().unwrap_err().to_string();
    assert_eq!(error, "compression must be `none`, `lz4`, `zstd` or `auto`, got `gzip`");
}

fn any_column() -> impl Strategy<Value = (DType, Vec<usize>)> {
    (prop::sample::select(DType::ALL), prop::collection::vec(0_usize..5, 0..3))
}

prop_compose! {
    /// A layout, and data that compresses more or less.
    fn any_chunk()(
        rows in 1_usize..12, columns in prop::collection::vec(any_column(), 1..4), texts in prop::collection::vec("[ab]{0,9}", 300),
        seed in any::<u64>(), spread in prop::sample::select(&[1_u8, 3, 255]),
    ) -> Chunk {
        let region = |(dtype, shape): &(DType, Vec<usize>)| {
            let elements = rows * shape.iter().product::<usize>();
            match dtype {
                DType::String => encode_strings(texts[..elements.min(300)].iter().cycle().take(elements).map(|text| text.as_bytes()).collect::<Vec<_>>().into_iter()).unwrap(),
                _ => noise(elements * dtype.size(), seed).into_iter().map(|byte| byte % spread).collect(),
            }
        };
        let regions: Vec<Vec<u8>> = columns.iter().map(region).collect();
        let specs = columns.iter().zip(&regions);
        let specs = specs.map(|((dtype, shape), region)| (*dtype, Shape::from_slice(shape), region.len()));
        let layout = Layout::new(rows, specs).unwrap();
        let mut data = Vec::new();
        for (column, region) in layout.columns.iter().zip(&regions) {
            data.resize(column.offset, 0);
            data.extend_from_slice(region);
        }
        make(&Arc::new(layout), data)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn rows_come_back_bit_by_bit(chunk in any_chunk(), zstd in any::<bool>(), delta in prop::collection::vec(any::<bool>(), 0..4)) {
        let small = chunk.compress(CODECS[usize::from(zstd)], &delta);
        prop_assert!(small.size_bytes() <= chunk.size_bytes());
        prop_assert_eq!(rows_of(&small), chunk.data().to_vec());
        if let Some(Encoding { codec, delta }) = small.encoding() {
            let again = encoded(chunk.layout(), small.data().to_vec(), *codec, delta).unwrap();
            prop_assert_eq!(rows_of(&again), chunk.data().to_vec());
        }
    }

    #[test]
    fn a_batch_is_the_same_whatever_its_chunks_are(
        chunk in any_chunk(), zstd in any::<bool>(), delta in any::<[bool; 4]>(), slices in prop::sample::select(&[0_usize, 2]),
        picks in prop::collection::vec((any::<u32>(), any::<u32>()), 1..6), piece in 0_usize..50, mixed in any::<bool>(),
    ) {
        let small = Arc::new(chunk.compress(CODECS[usize::from(zstd)], &delta));
        let chunk = Arc::new(chunk);
        let (plain, mut encoded) = (items(&chunk, &picks, slices), items(&small, &picks, slices));
        if mixed {
            encoded[0] = plain[0].clone();
        }
        prop_assert_eq!(gathered(&encoded, piece), gathered(&plain, 0));
    }

    #[test]
    fn bytes_of_any_kind_decode_or_are_refused(
        row_bytes in 0_usize..300, zstd in any::<bool>(), delta in any::<bool>(), seed in any::<u64>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4), cut in 0_usize..9,
    ) {
        let codec = CODECS[usize::from(zstd)];
        let layout = bytes_layout(4, row_bytes);
        let data: Vec<u8> = noise(4 * row_bytes, seed).into_iter().map(|byte| byte % 3).collect();
        let mut bytes = make(&layout, data).compress(codec, &[delta]).data().to_vec();
        for (at, byte) in changes {
            let len = bytes.len().max(1);
            if let Some(place) = bytes.get_mut(at.index(len)) {
                *place = byte;
            }
        }
        bytes.truncate(bytes.len().saturating_sub(cut));
        if let Ok(chunk) = encoded(&layout, bytes, codec, &[delta]) {
            prop_assert_eq!(rows_of(&chunk).len(), 4 * row_bytes);
        }
    }
}

#[test]
fn rows_are_copied_out_of_an_encoded_chunk() {
    let layout = bytes_layout(50, 100);
    let chunk = Arc::new(make(&layout, counting(50, 100)).compress(Codec::Lz4, &[true]));
    let items = items(&chunk, &[(3, 1), (40, 0), (4, 2)], 2);
    let (mut used, mut moved) = (UsedRows::default(), MovedRows::default());
    items.iter().for_each(|item| used.add(item, |chunk| chunk.is_encoded()));
    for (chunk, rows) in used {
        assert_eq!(rows, [3, 4, 5, 6, 40]);
        let copy = keep_rows(&chunk, &rows, &mut Vec::new()).unwrap();
        assert!(!copy.is_encoded());
        moved.insert(chunk, copy, rows);
    }
    let rewritten: Vec<_> = items.iter().map(|item| moved.rewrite(item).unwrap()).collect();
    assert!(rewritten.iter().all(|item| item.chunks().iter().all(|copy| copy.rows() == 5)));
    for (old, new) in items.iter().zip(&rewritten) {
        assert_eq!(gathered(std::slice::from_ref(new), 0), gathered(std::slice::from_ref(old), 0));
    }
    assert!(moved.rewrite(&Trajectory::rows(Arc::new(make(&layout, vec![0; 5000])), 0, 1).unwrap()).is_none());
}
