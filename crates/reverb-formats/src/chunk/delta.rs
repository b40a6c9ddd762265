//! Delta encoding as in the reference: each row except the first is stored as its difference to the previous row.

use reverb_core::DType;

/// Whether a delta-encoded chunk stores a tensor of this kind as differences. `rank` includes the dimension of the
/// rows.
pub fn applies(dtype: DType, rank: usize) -> bool {
    use DType::{Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    rank >= 2 && matches!(dtype, Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64)
}

/// Replaces rows by differences, in place. `row_bytes` and `size` are the sizes of a row and of a number in bytes.
pub fn encode(data: &mut [u8], row_bytes: usize, size: usize) {
    // From the last row to the first, so that the previous row still has its original values.
    let rows = data.len().checked_div(row_bytes).unwrap_or(0);
    for row in (1..rows).rev() {
        let (before, rest) = data.split_at_mut(row * row_bytes);
        let before = &before[(row - 1) * row_bytes..];
        combine(&mut rest[..row_bytes], before, size, u64::wrapping_sub);
    }
}

/// Replaces differences by the original rows, in place. Takes the same sizes as [`encode`].
pub fn decode(data: &mut [u8], row_bytes: usize, size: usize) {
    let rows = data.len().checked_div(row_bytes).unwrap_or(0);
    for row in 1..rows {
        let (before, rest) = data.split_at_mut(row * row_bytes);
        let before = &before[(row - 1) * row_bytes..];
        combine(&mut rest[..row_bytes], before, size, u64::wrapping_add);
    }
}

/// Computes `target = operation(target, other)` for each number, modulo 2 to the power of its width in bits.
fn combine(target: &mut [u8], other: &[u8], size: usize, operation: impl Fn(u64, u64) -> u64) {
    macro_rules! each {
        ($type:ty) => {{
            const SIZE: usize = size_of::<$type>();
            for (a, b) in target.chunks_exact_mut(SIZE).zip(other.chunks_exact(SIZE)) {
                let number = |bytes: &[u8]| <$type>::from_le_bytes(bytes.try_into().expect("a whole element"));
                // The lower bits of a wrapping operation on 64 bits equal those of the operation on fewer bits.
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
