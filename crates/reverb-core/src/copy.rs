//! Copies of rows, most of which are of a few bytes.

use std::mem::MaybeUninit;

/// Copies bytes to a place of as many.
#[inline(always)]
pub(crate) fn copy(target: &mut [MaybeUninit<u8>], bytes: &[u8]) {
    assert_eq!(target.len(), bytes.len());
    // SAFETY: both are `bytes.len()` long, and what is borrowed to be written cannot overlap what is borrowed to be read.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target.as_mut_ptr().cast(), bytes.len()) }
}

/// Evaluates an expression for which the number of bytes is a constant of the given name if it is a usual one, else another.
/// Calling a copy of a few bytes costs more than the copy, so their sizes are made known to the compiler.
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
