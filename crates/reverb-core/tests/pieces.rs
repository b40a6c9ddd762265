//! Batches that are gathered piece by piece, as a server sends them.

mod common;
#[path = "../../reverb-store/tests/common/memory.rs"]
mod memory;

use common::drawn::{drawn, gathered, items};
use memory::peak_of;
use proptest::prelude::*;
use reverb_core::gather::Gatherer;
use reverb_core::{Chunk, DType, EpisodeIds, Layout, StepRange, Trajectory, encode_strings, random_key};
use smallvec::smallvec;
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex};

/// Only one of the tests may allocate while another one measures memory.
static ALONE: Mutex<()> = Mutex::new(());

/// A chunk of a column of numbers, one of strings, two in each row, and one of bytes.
fn chunk(numbers: &[u64], strings: &[[Vec<u8>; 2]]) -> Arc<Chunk> {
    let rows = numbers.len();
    let text = encode_strings(strings.as_flattened().iter().map(Vec::as_slice)).unwrap();
    let columns =
        [(DType::UInt64, smallvec![], 0), (DType::String, smallvec![2], text.len()), (DType::UInt8, smallvec![], 0)];
    let layout = Arc::new(Layout::new(rows, columns).unwrap());
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let low: Vec<u8> = numbers.iter().map(|number| *number as u8).collect();
    let data = layout.assemble(&[bytes, text, low]).into();
    Arc::new(Chunk::new(random_key(), EpisodeIds::Same(1), StepRange::default(), layout, data).unwrap())
}

/// The buffer of a batch of these rows.
fn expected(rows: &[(u64, [Vec<u8>; 2])]) -> Vec<u8> {
    let mut buffer: Vec<u8> = rows.iter().flat_map(|(number, _)| number.to_le_bytes()).collect();
    buffer.resize(buffer.len().next_multiple_of(64), 0);
    let strings: Vec<&[u8]> = rows.iter().flat_map(|(_, strings)| strings).map(Vec::as_slice).collect();
    buffer.extend(encode_strings(strings.into_iter()).unwrap());
    buffer.resize(buffer.len().next_multiple_of(64), 0);
    buffer.extend(rows.iter().map(|(number, _)| *number as u8));
    buffer
}

fn any_rows() -> impl Strategy<Value = Vec<(u64, [Vec<u8>; 2])>> {
    let string = || prop::collection::vec(any::<u8>(), 0..9);
    prop::collection::vec((any::<u64>(), [string(), string()]), 1..7)
}

proptest! {
    #[test]
    fn pieces_of_any_size_make_the_batch(
        rows in any_rows(), picks in prop::collection::vec((any::<u32>(), any::<u32>()), 1..20),
        slices in 0_usize..4, same_length in any::<bool>(), piece in 0_usize..200,
    ) {
        let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
        let (numbers, strings): (Vec<_>, Vec<_>) = rows.iter().cloned().unzip();
        let chunk = chunk(&numbers, &strings);
        let picks: Vec<_> = picks.into_iter().map(|(first, more)| (first, if same_length { 0 } else { more })).collect();
        let items = items(&chunk, &picks, slices);
        let mut all = Vec::new();
        for (first, more) in &picks {
            let first = *first as usize % rows.len();
            let length = 1 + *more as usize % (rows.len() - first);
            (0..slices.max(1)).for_each(|_| all.extend_from_slice(&rows[first..first + length]));
        }
        prop_assert_eq!(gathered(&items, piece), expected(&all));
    }
}

#[test]
fn a_column_of_strings_is_not_held_whole() {
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    let strings: Vec<_> = (0..1000).map(|_| [vec![7; 2000], vec![8; 2000]]).collect();
    let chunk = chunk(&vec![0; 1000], &strings);
    let items: Vec<_> = (0..1000).map(|row| Trajectory::rows(chunk.clone(), row, 1).unwrap()).collect();
    let mut gatherer = Gatherer::new(drawn(&items), false).unwrap();
    assert!(gatherer.remaining() > 4_000_000);
    let mut piece = vec![MaybeUninit::uninit(); 64 << 10];
    let ((), peak) = peak_of(|| {
        while gatherer.remaining() > 0 {
            let now = piece.len().min(gatherer.remaining());
            gatherer.fill(&mut piece[..now]);
        }
    });
    assert!(peak < 256 << 10, "{peak} bytes");
}

#[test]
fn a_batch_whose_number_of_strings_overflows_is_refused() {
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    // No string, in rows that a peer may send.
    let layout = Arc::new(Layout::new(1, [(DType::String, smallvec![usize::MAX / 2, 0], 4)]).unwrap());
    let chunk = Chunk::new(1, EpisodeIds::Same(1), StepRange::default(), layout, vec![0; 4].into()).unwrap();
    let item = Trajectory::rows(Arc::new(chunk), 0, 1).unwrap();
    assert_eq!(gathered(std::slice::from_ref(&item), 0), [0; 4]);
    let error = Gatherer::new(drawn(&[item.clone(), item.clone(), item]), false).expect_err("it overflows");
    assert!(error.reason.contains("is too large"), "{}", error.reason);
}
