//! Arbitrary and damaged messages, and a counter of panics.

use super::chunk_of;
use proptest::prelude::*;
use reverb_core::{Codec, DType, Layout};
use reverb_net::replay_v1::proto::{Chunk, ColumnSpec, OtherShards};
use smallvec::smallvec;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Counts the panics of all threads from now on. They are still printed.
pub fn count_panics() -> &'static AtomicUsize {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Relaxed);
        print(info);
    }));
    &PANICS
}

/// The bytes of a valid message with some bytes changed, inserted or removed.
pub fn mutated(valid: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<prop::sample::Index>(), 0..3, any::<u8>());
    prop::collection::vec(change, 1..6).prop_map(move |changes| {
        let mut bytes = valid.clone();
        for (index, how, byte) in changes {
            let index = index.index(bytes.len() + 1);
            match how {
                0 => bytes.insert(index, byte),
                1 if index < bytes.len() => bytes[index] = byte,
                _ => drop(bytes.drain(index..(index + byte as usize % 4).min(bytes.len()))),
            }
        }
        bytes
    })
}

/// A small number, or an invalid one.
pub fn number() -> impl Strategy<Value = u32> {
    prop_oneof![12 => 0_u32..3, 1 => Just(u32::MAX), 1 => any::<u32>()]
}

fn spec() -> impl Strategy<Value = ColumnSpec> {
    let dim = prop_oneof![20 => 0_u64..4, 1 => any::<u64>(), 1 => (0_u32..64).prop_map(|shift| 1 << shift)];
    let dtype = prop_oneof![8 => Just(9_u32), 4 => Just(7), 8 => Just(4), 1 => 0_u32..30];
    let string_bytes = prop_oneof![8 => Just(64_u64), 2 => Just(640), 1 => Just(4), 1 => any::<u64>()];
    (dtype, prop::collection::vec(dim, 0..3), string_bytes, prop::bool::weighted(0.1))
        .prop_map(|(dtype, shape, string_bytes, delta)| ColumnSpec { dtype, shape, string_bytes, delta })
}

prop_compose! {
    /// Chunks, most of which are valid.
    pub fn any_chunk()(
        key in 0_u64..2, rows in prop_oneof![9 => 1_u32..6, 1 => number()], columns in prop::collection::vec(spec(), 0..3),
        // The size that the columns need, where that is possible, so that many chunks are valid.
        fits in prop::bool::weighted(0.95), byte in 0_u8..2, len in 0_usize..64,
        codec in prop_oneof![8 => Just(0), 5 => Just(1), 5 => Just(2), 5 => Just(3), 1 => any::<i32>()],
        flip in prop::option::weighted(0.2, any::<(prop::sample::Index, u8)>()),
    ) -> Chunk {
        let needed = columns.iter().try_fold(0_u64, |end, spec| {
            let elements = spec.shape.iter().try_fold(u64::from(rows), |n, &dim| n.checked_mul(dim))?;
            let size = match spec.dtype { 7 => spec.string_bytes, 4 => elements, _ => elements.checked_mul(8)? };
            // Interleaved rows have no gaps.
            if codec == 3 { end.checked_add(size) } else { end.checked_next_multiple_of(8)?.checked_add(size) }
        });
        let needed = needed.filter(|&needed| fits && needed < 100_000);
        let data = vec![if columns.iter().any(|spec| spec.dtype == 7) { 0 } else { byte }; needed.map_or(len, |n| n as usize)];
        let (mut data, codec) = encoded(data, codec);
        if let Some((at, byte)) = flip && codec != 0 && !data.is_empty() {
            let at = at.index(data.len());
            data[at] = byte;
        }
        let mut columns = columns;
        // Differences without a codec are refused. Without this line, nothing else of such chunks would be tested.
        columns.iter_mut().for_each(|column| column.delta &= matches!(codec, 1 | 2) || !fits);
        Chunk { key, rows, columns, data: data.into(), codec, ..Chunk::default() }
    }
}

/// Returns the bytes as encoded by a codec, and its number. Bytes that would not shrink are returned unchanged.
fn encoded(data: Vec<u8>, number: i32) -> (Vec<u8>, i32) {
    let codec = match number {
        1 => Codec::Lz4,
        2 => Codec::Zstd,
        _ => return (data, number),
    };
    let layout = Layout::new(1, [(DType::UInt8, smallvec![data.len()], 0)]).unwrap();
    let chunk = chunk_of(layout, data).compress(codec, &[]);
    (chunk.data().to_vec(), if chunk.is_encoded() { number } else { 0 })
}

/// What a client may say of other shards.
pub fn any_others() -> impl Strategy<Value = Option<OtherShards>> {
    let others = (prop_oneof![Just(2.0), any::<f64>()], 0_u64..3);
    prop::option::of(others.prop_map(|(largest_priority, epoch)| OtherShards { largest_priority, epoch }))
}
