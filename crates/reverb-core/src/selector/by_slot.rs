//! Arrays indexed by slots.

/// The element of a slot in an array indexed by slots. The array grows if necessary.
#[inline]
pub(super) fn at<T: Clone + Default>(array: &mut Vec<T>, slot: u32) -> &mut T {
    let index = slot as usize;
    if index >= array.len() {
        array.resize(index + 1, T::default());
    }
    &mut array[index]
}
