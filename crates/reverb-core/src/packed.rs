//! Data that stays as it came until it is first read.
//!
//! A table that is loaded from a checkpoint may have gigabytes of which little will ever be drawn. What compresses well
//! is left compressed, and each chunk is unpacked once, by whoever reads it first.

use bytes::Bytes;
use parking_lot::Mutex;
use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

/// What a chunk's bytes can be made of. It was checked: unpacking it cannot fail.
pub trait Unpack: Debug + Send + Sync {
    /// All bytes of the chunk, as many as its layout says.
    fn unpack(&self, size_bytes: usize) -> Bytes;

    /// Writes all bytes of the chunk to a place that has room for just that.
    fn unpack_into(&self, target: &mut [u8]);
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Packed {
    /// Until it is unpacked.
    source: Mutex<Option<Arc<dyn Unpack>>>,
    bytes: OnceLock<Bytes>,
}

impl Packed {
    pub fn new(source: Arc<dyn Unpack>) -> Self {
        Self { source: Mutex::new(Some(source)), bytes: OnceLock::new() }
    }

    #[inline]
    pub fn is_unpacked(&self) -> bool {
        self.bytes.get().is_some()
    }

    /// The bytes, unpacked here and now if nobody has done it yet. They stay, and what they were made of goes.
    pub fn bytes(&self, size_bytes: usize) -> &Bytes {
        self.bytes.get_or_init(|| {
            let source = self.source.lock().take();
            source.expect("it is taken once, here").unpack(size_bytes)
        })
    }

    /// The bytes; if they are not unpacked, they are written to `scratch`, and nothing changes.
    pub fn peek<'a>(&'a self, size_bytes: usize, scratch: &'a mut Vec<u8>) -> &'a [u8] {
        let source = self.source.lock().clone();
        match source {
            Some(source) => {
                scratch.resize(size_bytes, 0);
                source.unpack_into(scratch);
                scratch
            }
            None => self.bytes(size_bytes),
        }
    }
}
