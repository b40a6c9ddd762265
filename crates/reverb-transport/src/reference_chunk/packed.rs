//! Tensors that stay compressed until their chunk is first read.

use super::memory::Memory;
use super::{delta, snappy};
use bytes::Bytes;
use reverb_core::{Column, Unpack};
use std::cell::RefCell;
use std::ops::Range;

thread_local! {
    /// For what this thread unpacks.
    static MEMORY: RefCell<Memory> = RefCell::default();
}

/// The contents of all tensors of a chunk, of which none is of strings.
#[derive(Debug)]
pub struct PackedTensors {
    contents: Bytes,
    tensors: Box<[PackedTensor]>,
}

#[derive(Debug)]
struct PackedTensor {
    /// Its elements of Snappy, in `contents`.
    elements: Range<usize>,
    /// Its place in the chunk.
    region: Range<usize>,
    /// Bytes of a row and of an element, if rows are differences.
    delta: Option<(usize, usize)>,
}

/// Whether tensors whose contents have so many bytes are worth it: whoever reads the chunk must wait for it.
pub fn pays(content_bytes: usize, size_bytes: usize) -> bool {
    content_bytes <= size_bytes / 2
}

impl PackedTensors {
    /// Of each column the elements of Snappy, which were checked, and whether its rows are differences.
    pub fn new(columns: &[Column], tensors: &[(&[u8], bool)], memory: &mut Memory) -> Self {
        let mut contents = memory.zeros(tensors.iter().map(|(elements, _)| elements.len()).sum());
        let mut end = 0;
        let mut pack = |(column, &(elements, is_delta)): (&Column, &(&[u8], bool))| {
            let place = end..end + elements.len();
            end = place.end;
            contents.as_mut()[place.clone()].copy_from_slice(elements);
            PackedTensor {
                elements: place,
                region: column.offset..column.offset + column.size_bytes,
                delta: is_delta.then_some((column.row_bytes, column.dtype.size())),
            }
        };
        let tensors = columns.iter().zip(tensors).map(&mut pack).collect();
        Self { contents: contents.into(), tensors }
    }
}

impl Unpack for PackedTensors {
    fn unpack(&self, size_bytes: usize) -> Bytes {
        let mut data = MEMORY.with_borrow_mut(|memory| memory.zeros(size_bytes));
        self.unpack_into(data.as_mut());
        data.into()
    }

    fn unpack_into(&self, target: &mut [u8]) {
        for PackedTensor { elements, region, delta } in &self.tensors {
            let target = &mut target[region.clone()];
            snappy::decode(&self.contents[elements.clone()], target).expect("it was checked");
            if let Some((row_bytes, size)) = *delta {
                delta::decode(target, row_bytes, size);
            }
        }
    }
}
