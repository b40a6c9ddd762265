//! Data that stays packed until it is first read.
//!
//! A table that is loaded from a checkpoint may hold gigabytes of which few rows are ever drawn. Data that compresses
//! well stays compressed, and the first reader of each chunk unpacks it, once.

use bytes::Bytes;
use parking_lot::Mutex;
use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

/// A source of a chunk's bytes. It was checked, so unpacking cannot fail.
pub trait Unpack: Debug + Send + Sync {
    /// Returns all bytes of the chunk, as many as its layout states.
    fn unpack(&self, size_bytes: usize) -> Bytes;

    /// Writes all bytes of the chunk to `target`, which has exactly this size.
    fn unpack_into(&self, target: &mut [u8]);

    /// Returns the message in which the chunk arrived, if this is one, for readers that take it as it is.
    fn message(&self) -> Option<Bytes> {
        None
    }
}

/// Bytes that the first reader unpacks.
#[derive(Debug)]
pub(crate) struct Packed {
    /// `Some` until the bytes are unpacked.
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

    /// Returns the bytes. The first call unpacks them, keeps them, and drops the source.
    pub fn bytes(&self, size_bytes: usize) -> &Bytes {
        self.bytes.get_or_init(|| {
            let source = self.source.lock().take();
            source.expect("only this call takes it, and only once").unpack(size_bytes)
        })
    }

    /// Returns the message in which the bytes arrived, if they are still packed in one.
    pub fn message(&self) -> Option<Bytes> {
        self.source.lock().as_ref()?.message()
    }

    /// Returns the bytes. If they are still packed, they are written to `scratch` and stay packed.
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
