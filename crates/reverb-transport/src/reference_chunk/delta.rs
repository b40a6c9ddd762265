//! The reference's delta code: each row but the first is its difference to the row before.

use reverb_core::DType;

/// Whether a tensor of `rank` dimensions, rows included, is stored as differences where its chunk says so.
pub fn applies(dtype: DType, rank: usize) -> bool {
    use DType::{Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    rank >= 2 && matches!(dtype, Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64)
}

/// Turns rows of `row_bytes` each into differences, in place. `size` is the element's, in bytes.
pub fn encode(data: &mut [u8], row_bytes: usize, size: usize) {
    // From the last row backwards, so that each difference is taken from a row that is still itself.
    let rows = data.len().checked_div(row_bytes).unwrap_or(0);
    for row in (1..rows).rev() {
        let (before, rest) = data.split_at_mut(row * row_bytes);
        let before = &before[(row - 1) * row_bytes..];
        combine(&mut rest[..row_bytes], before, size, u64::wrapping_sub);
    }
}

/// Turns differences back into rows, in place.
pub fn decode(data: &mut [u8], row_bytes: usize, size: usize) {
    let rows = data.len().checked_div(row_bytes).unwrap_or(0);
    for row in 1..rows {
        let (before, rest) = data.split_at_mut(row * row_bytes);
        let before = &before[(row - 1) * row_bytes..];
        combine(&mut rest[..row_bytes], before, size, u64::wrapping_add);
    }
}

/// `target = operation(target, other)` for each element, modulo the width of the type.
fn combine(target: &mut [u8], other: &[u8], size: usize, operation: impl Fn(u64, u64) -> u64) {
    macro_rules! each {
        ($type:ty) => {{
            const SIZE: usize = size_of::<$type>();
            for (a, b) in target.chunks_exact_mut(SIZE).zip(other.chunks_exact(SIZE)) {
                let number = |bytes: &[u8]| <$type>::from_le_bytes(bytes.try_into().expect("a whole element"));
                // What wraps in 64 bits wraps in fewer as well, once the upper bits are dropped.
                let result = operation(u64::from(number(a)), u64::from(number(b))) as $type;
                a.copy_from_slice(&result.to_le_bytes());
            }
        }};
    }
    match size {
        1 => each!(u8),
        2 => each!(u16),
        4 => each!(u32),
        _ => each!(u64),
    }
}
