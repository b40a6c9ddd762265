//! Compression of a chunk's bytes: differences along time, then a codec for the whole chunk.

use crate::encoding::{Codec, Encoding, takes_delta};
use crate::layout::Layout;
use std::cell::RefCell;

/// The level that is nearly as fast as LZ4 to write, because actors have no time to spare.
const ZSTD_LEVEL: i32 = 1;
/// Chunks below this size in bytes stay uncompressed.
pub(crate) const MIN_BYTES: usize = 128;

/// Returns the encoded layout of a chunk. Flags in `delta` of columns that cannot be stored as differences are ignored;
/// missing flags are false.
pub(crate) fn encoded_layout(layout: &Layout, codec: Codec, delta: &[bool]) -> Layout {
    let wanted = delta.iter().copied().chain(std::iter::repeat(false));
    let flags = layout.columns.iter().zip(wanted).map(|(column, delta)| delta && takes_delta(column.dtype));
    layout
        .encoded(Encoding { codec, delta: flags.collect() })
        .expect("there is one flag for each column, set only for integers")
}

/// Encodes a chunk's bytes; `None` if that saves less than a sixteenth.
pub(crate) fn encode(layout: &Layout, data: &[u8], encoding: &Encoding) -> Option<Vec<u8>> {
    if data.len() < MIN_BYTES {
        return None;
    }
    let mut differences = Vec::new();
    if encoding.delta.contains(&true) {
        differences.extend_from_slice(data);
        for_each_delta(layout, encoding, &mut differences, subtract_rows);
    }
    let data = if differences.is_empty() { data } else { &differences };
    let encoded = match encoding.codec {
        Codec::Lz4 => lz4_flex::block::compress(data),
        Codec::Zstd => ZSTD.with_borrow_mut(|zstd| zstd.compress(data))?,
    };
    // A copy, because compressors return a buffer with room for the worst case.
    (encoded.len() < data.len() - data.len() / 16).then(|| encoded.as_slice().to_vec())
}

/// Decodes into `target`, whose size is the decoded size that the layout states.
///
/// # Errors
/// A description of what is wrong with the bytes. Whatever the bytes are, this writes to nothing but `target` and
/// allocates nothing.
pub(crate) fn decode(
    layout: &Layout,
    encoded: &[u8],
    encoding: &Encoding,
    target: &mut [u8],
) -> std::result::Result<(), String> {
    let written = match encoding.codec {
        Codec::Lz4 => lz4_flex::block::decompress_into(encoded, target).map_err(|error| error.to_string())?,
        Codec::Zstd => ZSTD.with_borrow_mut(|zstd| zstd.decompress(encoded, target))?,
    };
    if written != target.len() {
        return Err(format!("it decodes to {written} bytes"));
    }
    for_each_delta(layout, encoding, target, add_rows);
    Ok(())
}

fn for_each_delta(layout: &Layout, encoding: &Encoding, data: &mut [u8], change: fn(&mut [u8], usize, usize)) {
    for (column, &delta) in layout.columns.iter().zip(&encoding.delta) {
        if delta && takes_delta(column.dtype) {
            let region = &mut data[column.offset..column.offset + column.size_bytes];
            change(region, column.row_bytes, column.dtype.size());
        }
    }
}

/// Replaces each row but the first by its difference from the row before.
pub(crate) fn subtract_rows(region: &mut [u8], row_bytes: usize, element_bytes: usize) {
    if row_bytes == 0 {
        return;
    }
    for row in (1..region.len() / row_bytes).rev() {
        let (before, here) = region.split_at_mut(row * row_bytes);
        combine(&mut here[..row_bytes], &before[(row - 1) * row_bytes..], element_bytes, false);
    }
}

/// The reverse of [`subtract_rows`].
fn add_rows(region: &mut [u8], row_bytes: usize, element_bytes: usize) {
    if row_bytes == 0 {
        return;
    }
    for row in 1..region.len() / row_bytes {
        let (before, here) = region.split_at_mut(row * row_bytes);
        combine(&mut here[..row_bytes], &before[(row - 1) * row_bytes..], element_bytes, true);
    }
}

/// Adds a row of integers to another, or subtracts it, element by element. Signs do not matter, because the numbers
/// wrap.
fn combine(target: &mut [u8], other: &[u8], element_bytes: usize, add: bool) {
    macro_rules! combine {
        ($number:ty) => {{
            const SIZE: usize = size_of::<$number>();
            let (targets, _) = target.as_chunks_mut::<SIZE>();
            let (others, _) = other.as_chunks::<SIZE>();
            for (target, other) in targets.iter_mut().zip(others) {
                let (a, b) = (<$number>::from_le_bytes(*target), <$number>::from_le_bytes(*other));
                *target = if add { a.wrapping_add(b) } else { a.wrapping_sub(b) }.to_le_bytes();
            }
        }};
    }
    match element_bytes {
        1 => combine!(u8),
        2 => combine!(u16),
        4 => combine!(u32),
        _ => combine!(u64),
    }
}

thread_local! {
    /// Creating a context is slow, so each thread keeps its own.
    static ZSTD: RefCell<Zstd> = const { RefCell::new(Zstd { compressor: None, decompressor: None }) };
}

struct Zstd {
    compressor: Option<zstd::bulk::Compressor<'static>>,
    decompressor: Option<zstd::bulk::Decompressor<'static>>,
}

impl Zstd {
    fn compress(&mut self, data: &[u8]) -> Option<Vec<u8>> {
        if self.compressor.is_none() {
            self.compressor = zstd::bulk::Compressor::new(ZSTD_LEVEL).ok();
        }
        self.compressor.as_mut()?.compress(data).ok()
    }

    fn decompress(&mut self, encoded: &[u8], target: &mut [u8]) -> std::result::Result<usize, String> {
        let decompressor = match &mut self.decompressor {
            Some(decompressor) => decompressor,
            none => none.insert(zstd::bulk::Decompressor::new().map_err(|error| error.to_string())?),
        };
        decompressor.decompress_to_buffer(encoded, target).map_err(|error| error.to_string())
    }
}
