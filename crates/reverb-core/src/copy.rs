//! Copies of rows, most of which have a few bytes.

use std::mem::MaybeUninit;

/// Copies bytes to a target of the same length.
#[inline(always)]
pub(crate) fn copy(target: &mut [MaybeUninit<u8>], bytes: &[u8]) {
    assert_eq!(target.len(), bytes.len());
    // SAFETY: both have `bytes.len()` bytes, and a mutable borrow cannot overlap a shared one.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target.as_mut_ptr().cast(), bytes.len()) }
}

/// Evaluates the first expression, in which the number of bytes is a constant of the given name, if the number is a
/// common one, and otherwise the second expression. A call that copies a few bytes costs more than the copy, so the
/// macro makes common sizes known to the compiler.
macro_rules! by_size {
    ($bytes:expr, $SIZE:ident => $usual:expr, _ => $other:expr) => {
        by_size!(@ $bytes, $SIZE, $usual, $other,
            1 2 4 8 12 16 20 24 32 40 48 56 60 64 72 80 88 96 104 112 120 128)
    };
    (@ $bytes:expr, $SIZE:ident, $usual:expr, $other:expr, $($size:literal)*) => {
        match $bytes {
            $($size => {
                const $SIZE: usize = $size;
                $usual
            })*
            _ => $other,
        }
    };
}
pub(crate) use by_size;
