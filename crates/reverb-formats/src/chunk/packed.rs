//! Tensors that stay compressed until their chunk is first read.
//!
//! They are either copied out of their message, or stay in the whole message, which can then be sent again as it is. Only chunks without strings are packed. Their contents were checked, so unpacking cannot fail.

use super::allocator::ChunkAllocator;
use super::{delta, snappy};
use bytes::Bytes;
use reverb_core::{Column, Unpack};
use std::cell::RefCell;
use std::ops::Range;

/// Size in bytes of the fields of a message beside the data of its tensors, if they are few.
const MESSAGE_BYTES: usize = 512;

thread_local! {
    /// Allocates the chunks that this thread unpacks.
    static ALLOCATOR: RefCell<ChunkAllocator> = RefCell::default();
}

/// The compressed tensors of a chunk, none of which holds strings.
#[derive(Debug)]
pub struct PackedTensors {
    contents: Bytes,
    /// Whether `contents` is the whole message of the chunk.
    is_message: bool,
    tensors: Box<[PackedTensor]>,
}

#[derive(Debug)]
struct PackedTensor {
    /// Range of the Snappy elements in `contents`.
    elements: Range<usize>,
    /// Range of the unpacked tensor in the data of the chunk.
    region: Range<usize>,
    /// Sizes of a row and of a number in bytes, if the rows are delta-encoded.
    delta: Option<(usize, usize)>,
}

impl PackedTensor {
    fn new(elements: Range<usize>, column: &Column, is_delta: bool) -> Self {
        let delta = is_delta.then_some((column.row_bytes, column.dtype.size()));
        Self { elements, region: column.offset..column.offset + column.size_bytes, delta }
    }
}

/// Whether compression saves at least half of `size_bytes`. Less is not worth the wait of the chunk's first reader.
pub fn is_worth_packing(content_bytes: usize, size_bytes: usize) -> bool {
    content_bytes <= size_bytes / 2
}

/// Whether a message is small enough to stay in memory in place of `size_bytes` bytes of data. Fields that are not
/// known, and typed values of tensors, can make a message much larger than its data.
pub fn may_stay(message_bytes: usize, size_bytes: usize) -> bool {
    message_bytes <= size_bytes + size_bytes / 4 + MESSAGE_BYTES
}

impl PackedTensors {
    /// Copies the tensors of `columns`. Each consists of its Snappy elements, which must have been checked, and of
    /// whether its rows are delta-encoded.
    pub fn new(columns: &[Column], tensors: &[(&[u8], bool)], allocator: &mut ChunkAllocator) -> Self {
        let mut contents = allocator.zeros(tensors.iter().map(|(elements, _)| elements.len()).sum());
        let mut end = 0;
        let mut pack = |(column, &(elements, is_delta)): (&Column, &(&[u8], bool))| {
            let place = end..end + elements.len();
            end = place.end;
            contents.as_mut()[place.clone()].copy_from_slice(elements);
            PackedTensor::new(place, column, is_delta)
        };
        let tensors = columns.iter().zip(tensors).map(&mut pack).collect();
        Self { contents: contents.into(), is_message: false, tensors }
    }

    /// Keeps a whole message. The elements of the tensors lie in `message`, which is `shared` or will be copied;
    /// otherwise as [`PackedTensors::new`].
    pub fn in_message(message: &[u8], shared: Option<&Bytes>, columns: &[Column], tensors: &[(&[u8], bool)]) -> Self {
        // From the global allocator, which uses the memory of dropped messages again. New pages of the system cost more
        // than the copy.
        let contents = shared.cloned().unwrap_or_else(|| Bytes::copy_from_slice(message));
        let place = |(column, &(elements, is_delta)): (&Column, &(&[u8], bool))| {
            // A tensor without elements may lie anywhere.
            let start = elements.as_ptr().addr().wrapping_sub(message.as_ptr().addr());
            let place = if elements.is_empty() { 0..0 } else { start..start + elements.len() };
            PackedTensor::new(place, column, is_delta)
        };
        let tensors = columns.iter().zip(tensors).map(place).collect();
        Self { contents, is_message: true, tensors }
    }
}

impl Unpack for PackedTensors {
    fn unpack(&self, size_bytes: usize) -> Bytes {
        let mut data = ALLOCATOR.with_borrow_mut(|allocator| allocator.zeros(size_bytes));
        self.unpack_into(data.as_mut());
        data.into()
    }

    fn unpack_into(&self, target: &mut [u8]) {
        for PackedTensor { elements, region, delta } in &self.tensors {
            let target = &mut target[region.clone()];
            snappy::decode(&self.contents[elements.clone()], target).expect("the elements were checked");
            if let Some((row_bytes, size)) = *delta {
                delta::decode(target, row_bytes, size);
            }
        }
    }

    fn message(&self) -> Option<Bytes> {
        self.is_message.then(|| self.contents.clone())
    }
}
