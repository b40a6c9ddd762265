//! Copies small arrays that are not in C order, which takes NumPy longer to prepare than to do.

use numpy::{PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;

/// Number of elements above which NumPy copies faster.
const MOST_ELEMENTS: usize = 32;

/// The elements of a small array of numbers in C order; `None` for other arrays.
///
/// # Arguments
/// `item_bytes` is the size of an element, as the array's dtype has it.
pub fn copy_small(array: &Bound<'_, PyUntypedArray>, item_bytes: usize) -> Option<Vec<u8>> {
    if array.len() > MOST_ELEMENTS {
        return None;
    }
    let mut bytes = Vec::with_capacity(array.len() * item_bytes);
    // SAFETY: the array lives, and its shape and strides describe its memory.
    unsafe {
        let data = (*array.as_array_ptr()).fields.data.cast::<u8>();
        copy_axes(data, array.shape(), array.strides(), item_bytes, &mut bytes);
    }
    Some(bytes)
}

/// # Safety
/// An element of `item_bytes` bytes can be read at each place that the shape and the strides, in bytes, describe.
unsafe fn copy_axes(data: *const u8, shape: &[usize], strides: &[isize], item_bytes: usize, bytes: &mut Vec<u8>) {
    let (Some((&count, inner)), Some((&stride, inner_strides))) = (shape.split_first(), strides.split_first()) else {
        // SAFETY: see above.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(data, item_bytes) });
        return;
    };
    for index in 0..count as isize {
        // SAFETY: see above.
        unsafe { copy_axes(data.offset(index * stride), inner, inner_strides, item_bytes, bytes) };
    }
}
