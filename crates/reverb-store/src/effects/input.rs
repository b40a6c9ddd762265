//! Reads the fields of records. The bytes may be anything: each read says what it expects, and takes no memory for what
//! is not there.

use bytes::Bytes;
use reverb_core::{Error, Result, WriterId};
use reverb_formats::wire;

/// What has not been read yet of a frame.
pub struct Input<'a> {
    frame: &'a Bytes,
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    /// Begins at the first byte of a frame.
    pub fn new(frame: &'a Bytes) -> Self {
        Self { frame, rest: frame }
    }

    /// Whether all was read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Number of bytes that were read.
    fn at(&self) -> usize {
        self.frame.len() - self.rest.len()
    }

    /// The error of what was read last.
    #[cold]
    pub fn damaged(&self, what: impl std::fmt::Display) -> Error {
        Error::DataLoss(format!("a frame of the log is damaged before byte {}: {what}", self.at()))
    }

    /// The error of what this version does not know.
    #[cold]
    pub fn unknown(&self, what: &str, got: impl std::fmt::Display) -> Error {
        self.damaged(format_args!(
            "{got} is not {what} that is known; a later version of this package may have written it"
        ))
    }

    #[cold]
    fn ended(&self, what: &str, bytes: u64) -> Error {
        self.damaged(format_args!("expected {what} in the next {bytes} bytes, but only {} follow", self.rest.len()))
    }

    fn take(&mut self, bytes: u64, what: &str) -> Result<&'a [u8]> {
        let split = usize::try_from(bytes).ok().and_then(|bytes| self.rest.split_at_checked(bytes));
        let (taken, rest) = split.ok_or_else(|| self.ended(what, bytes))?;
        self.rest = rest;
        Ok(taken)
    }

    /// Reads a byte.
    #[inline]
    pub fn byte(&mut self, what: &str) -> Result<u8> {
        let (&byte, rest) = self.rest.split_first().ok_or_else(|| self.ended(what, 1))?;
        self.rest = rest;
        Ok(byte)
    }

    /// Reads eight bytes.
    #[inline]
    pub fn u64(&mut self, what: &str) -> Result<u64> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or_else(|| self.ended(what, 8))?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*bytes))
    }

    /// Reads a float, which may be NaN.
    #[inline]
    pub fn f64(&mut self, what: &str) -> Result<f64> {
        self.u64(what).map(f64::from_bits)
    }

    /// Reads a number that fits its type.
    #[inline]
    pub fn number<T: TryFrom<u64>>(&mut self, what: &str) -> Result<T> {
        let number = wire::varint(&mut self.rest).map_err(|error| self.damaged(format_args!("{what}: {error}")))?;
        T::try_from(number).map_err(|_| self.damaged(format_args!("{number} is too large for {what}")))
    }

    /// Reads a number that may be negative and fits its type.
    #[inline]
    pub fn signed<T: TryFrom<i64>>(&mut self, what: &str) -> Result<T> {
        let zigzag: u64 = self.number(what)?;
        let number = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
        T::try_from(number).map_err(|_| self.damaged(format_args!("{number} is out of range for {what}")))
    }

    /// Reads the number of entries of a list, each of which takes `least_bytes` or more.
    pub fn count(&mut self, what: &str, least_bytes: usize) -> Result<usize> {
        let count: u64 = self.number(what)?;
        let most = self.rest.len() / least_bytes;
        match usize::try_from(count) {
            Ok(count) if count <= most => Ok(count),
            _ => {
                Err(self.damaged(format_args!("expected at most {most} {what} in the rest of the frame, got {count}")))
            }
        }
    }

    /// Reads a text.
    pub fn text(&mut self, what: &str) -> Result<&'a str> {
        let bytes = self.number(what)?;
        self.text_of(bytes, what)
    }

    fn text_of(&mut self, bytes: u64, what: &str) -> Result<&'a str> {
        let text = self.take(bytes, what)?;
        std::str::from_utf8(text).map_err(|error| self.damaged(format_args!("{what}: {error}")))
    }

    /// Reads a writer.
    pub fn writer(&mut self) -> Result<WriterId> {
        let owner = match self.number::<u64>("the owner of a writer")? {
            0 => None,
            bytes => Some(self.text_of(bytes - 1, "the owner of a writer")?.into()),
        };
        Ok(WriterId { owner, id: self.u64("the id of a writer")? })
    }

    /// Reads the data of a chunk. It is copied unless it is most of the frame, so that a small chunk does not keep the
    /// memory of a large frame.
    pub fn data(&mut self) -> Result<Bytes> {
        let what = "the data of a chunk";
        let bytes = self.number(what)?;
        let data = self.take(bytes, what)?;
        if data.len() > self.frame.len() / 2 {
            return Ok(self.frame.slice_ref(data));
        }
        Ok(Bytes::copy_from_slice(data))
    }
}
