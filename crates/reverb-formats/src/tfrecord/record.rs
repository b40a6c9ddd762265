//! Record files as the reference writes them: TFRecords in one zlib stream.
//!
//! A record consists of its length (u64), the masked CRC-32C of the length, the payload, and the masked CRC-32C of the
//! payload, all little-endian. Files of records without zlib are read, too.

use super::inflate::{Inflate, Stored};
use flate2::Compression;
use reverb_core::{Error, Result};
use std::fmt::{Debug, Formatter};
use std::io::{self, BufRead, BufReader, Read, Write};
use twox_hash::XxHash3_128;

const HEADER_BYTES: usize = 12;
const BUFFER_BYTES: usize = 256 << 10;
/// First allocation for a large record in bytes. Afterwards memory grows with the data, because the length may be
/// false.
const FIRST_RESERVE_BYTES: usize = 1 << 20;

#[inline]
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Returns the 128-bit XXH3 hash in hex. It only has to detect damage: an attacker who can change the files can change
/// the hashes as well. It takes a tenth of the time of a cryptographic hash.
pub fn hash_text(bytes: &[u8]) -> String {
    format!("{:032x}", XxHash3_128::oneshot(bytes))
}

/// Size and hash of the bytes read or written so far.
pub struct Tally {
    hasher: XxHash3_128,
    size: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Self { hasher: XxHash3_128::new(), size: 0 }
    }
}

impl Debug for Tally {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Tally").field("size", &self.size).finish_non_exhaustive()
    }
}

impl Tally {
    fn add(&mut self, bytes: &[u8]) {
        self.hasher.write(bytes);
        self.size += bytes.len() as u64;
    }

    /// Returns the size in bytes and the hash, formatted as by [`hash_text`].
    pub fn result(&self) -> (u64, String) {
        (self.size, format!("{:032x}", self.hasher.finish_128()))
    }
}

/// A reader or writer that counts and hashes the bytes that pass through it.
pub struct Tallied<T> {
    inner: T,
    tally: Tally,
}

impl<T> Tallied<T> {
    /// Wraps a reader or writer.
    pub fn new(inner: T) -> Self {
        Self { inner, tally: Tally::default() }
    }

    /// Returns the reader or writer.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// Returns the reader or writer, and the tally.
    pub fn into_parts(self) -> (T, Tally) {
        (self.inner, self.tally)
    }
}

impl<T: Read> Read for Tallied<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = self.inner.read(buffer)?;
        self.tally.add(&buffer[..size]);
        Ok(size)
    }
}

impl<T: Write> Write for Tallied<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let size = self.inner.write(bytes)?;
        self.tally.add(&bytes[..size]);
        Ok(size)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Writes records into a zlib stream.
pub struct RecordWriter<W: Write> {
    out: io::BufWriter<flate2::write::ZlibEncoder<W>>,
}

impl<W: Write> RecordWriter<W> {
    /// Creates a writer to `target`. `level` is the compression level of zlib: 0 (stored) to 9.
    pub fn new(target: W, level: u32) -> Self {
        let deflate = flate2::write::ZlibEncoder::new(target, Compression::new(level));
        Self { out: io::BufWriter::with_capacity(BUFFER_BYTES, deflate) }
    }

    /// Appends records that were framed by [`put_record`].
    ///
    /// # Errors
    /// Those of writing to the target.
    pub fn write_framed(&mut self, records: &[u8]) -> io::Result<()> {
        self.out.write_all(records)
    }

    /// Returns the target. Records written last may still be buffered.
    pub fn target_mut(&mut self) -> &mut W {
        self.out.get_mut().get_mut()
    }

    /// Ends the stream and returns the target.
    ///
    /// # Errors
    /// Those of writing to the target.
    pub fn finish(self) -> io::Result<W> {
        self.out.into_inner().map_err(io::IntoInnerError::into_error)?.finish()
    }
}

/// Appends a record with its length and checksums to `out`.
#[inline]
pub fn put_record(out: &mut Vec<u8>, payload: &[u8]) {
    let length = (payload.len() as u64).to_le_bytes();
    out.extend_from_slice(&length);
    out.extend_from_slice(&masked_crc(&length).to_le_bytes());
    out.extend_from_slice(payload);
    out.extend_from_slice(&masked_crc(payload).to_le_bytes());
}

/// The checksum that a file states for a record.
#[derive(Debug, Clone, Copy)]
pub struct Checksum(u32);

impl Checksum {
    /// Compares the checksum with that of `payload`. `number` names the record in the error.
    ///
    /// # Errors
    /// [`Error::DataLoss`] if they differ.
    pub fn check(self, number: u64, payload: &[u8]) -> Result<()> {
        if masked_crc(payload) == self.0 {
            return Ok(());
        }
        Err(Error::DataLoss(format!("record {number} does not match its checksum")))
    }
}

/// Reads records, with or without a zlib stream around them.
pub struct RecordReader<R: Read> {
    source: Source<R>,
    limit_bytes: usize,
    number: u64,
    finished: bool,
}

enum Source<R: Read> {
    Plain(BufReader<R>),
    Stored(Stored<BufReader<R>>),
    Zlib(Box<BufReader<Inflate<BufReader<R>>>>),
}

impl<R: Read> Source<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match self {
            Self::Plain(source) => source.fill_buf(),
            Self::Stored(source) => source.fill_buf(),
            Self::Zlib(source) => source.fill_buf(),
        }
    }

    fn consume(&mut self, size: usize) {
        match self {
            Self::Plain(source) => source.consume(size),
            Self::Stored(source) => source.consume(size),
            Self::Zlib(source) => source.consume(size),
        }
    }

    /// Calls `take` with the next `size` bytes, piece by piece. Returns the number of bytes, less at the end of the
    /// file.
    fn take(&mut self, size: usize, mut take: impl FnMut(&[u8])) -> Result<usize> {
        let mut taken = 0;
        while taken < size {
            let piece = match self.fill_buf() {
                Ok([]) => break,
                Ok(buffered) => &buffered[..buffered.len().min(size - taken)],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(read_error(&error)),
            };
            take(piece);
            let size = piece.len();
            taken += size;
            self.consume(size);
        }
        Ok(taken)
    }

    /// Returns the next `N` bytes, and how many of them the file had.
    fn array<const N: usize>(&mut self) -> Result<([u8; N], usize)> {
        let mut bytes = [0; N];
        let mut filled = 0;
        self.take(N, |piece| {
            bytes[filled..filled + piece.len()].copy_from_slice(piece);
            filled += piece.len();
        })?;
        Ok((bytes, filled))
    }
}

impl<R: Read> RecordReader<R> {
    /// Creates a reader of `file`. Refuses records of more than `limit_bytes` bytes.
    ///
    /// # Errors
    /// [`Error::Storage`] if the beginning of the file cannot be read.
    pub fn new(file: R, limit_bytes: usize) -> Result<Self> {
        let mut file = BufReader::with_capacity(BUFFER_BYTES, file);
        let head = file.fill_buf().map_err(|error| read_error(&error))?;
        let source = if head.is_empty() || is_header(head) {
            Source::Plain(file)
        } else {
            Source::Zlib(Box::new(BufReader::with_capacity(BUFFER_BYTES, Inflate::new(file))))
        };
        Ok(Self { source, limit_bytes, number: 0, finished: false })
    }

    /// Creates a reader of a file that is known to be a zlib stream of stored blocks. Takes less than half the time.
    /// Does not verify the checksum of the stream, because the caller compares the hash of the file.
    pub fn of_stored(file: R, limit_bytes: usize) -> Self {
        let file = BufReader::with_capacity(BUFFER_BYTES, file);
        Self { source: Source::Stored(Stored::new(file)), limit_bytes, number: 0, finished: false }
    }

    /// Whether the file is a zlib stream.
    pub fn is_compressed(&self) -> bool {
        !matches!(self.source, Source::Plain(_))
    }

    /// Appends the next record to `payload`. Returns its checksum without verifying it, so that another thread can do
    /// that. `None` at the end of the file.
    ///
    /// # Errors
    /// [`Error::DataLoss`] if the record is damaged or cut off, [`Error::MessageTooLarge`] if it exceeds the limit.
    /// Both name the number of the record. [`Error::Storage`] if the file cannot be read.
    pub fn append(&mut self, payload: &mut Vec<u8>) -> Result<Option<Checksum>> {
        if self.finished {
            return Ok(None);
        }
        let number = self.number;
        let at = |what: &str| Error::DataLoss(format!("record {number} {what}"));
        let (header, filled) = self.source.array::<HEADER_BYTES>()?;
        match filled {
            0 => {
                self.finished = true;
                return Ok(None);
            }
            HEADER_BYTES if is_header(&header) => {}
            HEADER_BYTES => return Err(at("has a damaged length")),
            _ => return Err(at("is cut off")),
        }
        let length = u64::from_le_bytes(header[..8].try_into().expect("eight bytes"));
        let length = usize::try_from(length).ok().filter(|&length| length <= self.limit_bytes).ok_or_else(|| {
            Error::MessageTooLarge {
                what: format!("record {number}"),
                option: "max_message_size (an argument of reverb.Server)".into(),
                size_bytes: length,
                limit_bytes: self.limit_bytes as u64,
            }
        })?;
        let start = payload.len();
        self.read_payload(payload, length)?;
        let (checksum, filled) = self.source.array::<4>()?;
        if payload.len() - start < length || filled < 4 {
            return Err(at("is cut off"));
        }
        self.number += 1;
        Ok(Some(Checksum(u32::from_le_bytes(checksum))))
    }

    fn read_payload(&mut self, payload: &mut Vec<u8>, length: usize) -> Result<()> {
        let start = payload.len();
        self.source.take(length, |piece| {
            if length > FIRST_RESERVE_BYTES && payload.capacity() - payload.len() < piece.len() {
                let arrived = payload.len() - start;
                // `Vec` would double its capacity, which could waste half of the memory of a large record.
                payload.reserve_exact((length - arrived).min(arrived.max(FIRST_RESERVE_BYTES)).max(piece.len()));
            }
            payload.extend_from_slice(piece);
        })?;
        Ok(())
    }

    /// Returns the file after all records were read.
    ///
    /// # Errors
    /// [`Error::DataLoss`] if bytes follow the stream, [`Error::Storage`] if the file cannot be read.
    pub fn into_file(self) -> Result<R> {
        let mut file = match self.source {
            Source::Plain(file) => file,
            Source::Stored(source) => source.into_file(),
            Source::Zlib(source) => source.into_inner().into_file(),
        };
        match file.fill_buf().map_err(|error| read_error(&error))? {
            [] => Ok(file.into_inner()),
            _ => Err(Error::DataLoss("bytes follow the end of the stream".into())),
        }
    }
}

fn is_header(bytes: &[u8]) -> bool {
    bytes.len() >= HEADER_BYTES && masked_crc(&bytes[..8]).to_le_bytes() == bytes[8..HEADER_BYTES]
}

/// Invalid or missing data is reported as damage, everything else as an error of the storage.
fn read_error(error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => Error::DataLoss(error.to_string()),
        _ => Error::Storage(error.to_string()),
    }
}
