//! Files of records, as the reference writes them: TFRecords in one zlib stream.
//!
//! A record is its length (u64), the masked CRC-32C of these eight bytes, the payload, and the masked CRC-32C of that,
//! all little-endian. Files without zlib around the records are read as well.

use flate2::{Compression, Decompress, FlushDecompress, Status};
use reverb_core::{Error, Result};
use std::io::{self, BufRead, BufReader, Read, Write};

const HEADER_BYTES: usize = 12;
const BUFFER_BYTES: usize = 256 << 10;
/// Memory for a record grows by this much at first, and then with what has arrived: its length may be a lie.
const FIRST_STEP: usize = 1 << 20;

fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Size and hash of the bytes that have passed through.
#[derive(Debug, Default)]
pub struct Tally {
    hasher: blake3::Hasher,
    size: u64,
}

impl Tally {
    fn add(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.size += bytes.len() as u64;
    }

    /// Bytes, and their BLAKE3 hash in hex.
    pub fn result(&self) -> (u64, String) {
        (self.size, self.hasher.finalize().to_hex().to_string())
    }
}

/// Passes bytes on and tallies them.
pub struct Tallied<T> {
    inner: T,
    tally: Tally,
}

impl<T> Tallied<T> {
    /// Around a reader or writer.
    pub fn new(inner: T) -> Self {
        Self { inner, tally: Tally::default() }
    }

    /// The reader or writer.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// The reader or writer, and the tally.
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

/// Writes records.
pub struct RecordWriter<W: Write> {
    out: io::BufWriter<flate2::write::ZlibEncoder<W>>,
}

impl<W: Write> RecordWriter<W> {
    /// Records to `target`, compressed with zlib's `level`: 0 (stored as they are) to 9.
    pub fn new(target: W, level: u32) -> Self {
        let deflate = flate2::write::ZlibEncoder::new(target, Compression::new(level));
        Self { out: io::BufWriter::with_capacity(BUFFER_BYTES, deflate) }
    }

    /// Appends a record.
    pub fn write(&mut self, payload: &[u8]) -> io::Result<()> {
        let mut record = Vec::with_capacity(payload.len() + HEADER_BYTES + 4);
        put_record(&mut record, payload);
        self.write_framed(&record)
    }

    /// Appends records that [`put_record`] has made.
    pub fn write_framed(&mut self, records: &[u8]) -> io::Result<()> {
        self.out.write_all(records)
    }

    /// The target, to be synced on the way. What was written last may not have come to it yet.
    pub fn target_mut(&mut self) -> &mut W {
        self.out.get_mut().get_mut()
    }

    /// Ends the stream and returns the target.
    pub fn finish(self) -> io::Result<W> {
        self.out.into_inner().map_err(io::IntoInnerError::into_error)?.finish()
    }
}

/// Appends a record, framed, to `out`.
pub fn put_record(out: &mut Vec<u8>, payload: &[u8]) {
    let length = (payload.len() as u64).to_le_bytes();
    out.extend_from_slice(&length);
    out.extend_from_slice(&masked_crc(&length).to_le_bytes());
    out.extend_from_slice(payload);
    out.extend_from_slice(&masked_crc(payload).to_le_bytes());
}

/// Reads records.
pub struct RecordReader<R: Read> {
    source: Source<R>,
    limit_bytes: usize,
    number: u64,
    finished: bool,
}

enum Source<R: Read> {
    Plain(BufReader<R>),
    Zlib(Box<BufReader<Inflate<BufReader<R>>>>),
}

impl<R: Read> Read for Source<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(source) => source.read(buffer),
            Self::Zlib(source) => source.read(buffer),
        }
    }
}

impl<R: Read> RecordReader<R> {
    /// Records from `file`, of at most `limit_bytes` bytes each.
    ///
    /// # Errors
    /// [`Error::Storage`] if the file's beginning cannot be read.
    pub fn new(file: R, limit_bytes: usize) -> Result<Self> {
        let mut file = BufReader::with_capacity(BUFFER_BYTES, file);
        let head = file.fill_buf().map_err(|error| read_error(&error))?;
        let source = if head.is_empty() || is_header(head) {
            Source::Plain(file)
        } else {
            let inflate = Inflate { file, state: Decompress::new(true), ended: false };
            Source::Zlib(Box::new(BufReader::with_capacity(BUFFER_BYTES, inflate)))
        };
        Ok(Self { source, limit_bytes, number: 0, finished: false })
    }

    /// Whether the file is a zlib stream.
    pub fn is_compressed(&self) -> bool {
        matches!(self.source, Source::Zlib(_))
    }

    /// Puts the next record into `payload`; false at the end of the file.
    ///
    /// # Errors
    /// [`Error::DataLoss`] for what is damaged or ends too early, with the number of the record; [`Error::MessageTooLarge`].
    pub fn next(&mut self, payload: &mut Vec<u8>) -> Result<bool> {
        payload.clear();
        self.append(payload)
    }

    /// As [`RecordReader::next`], behind what `payload` has already.
    pub fn append(&mut self, payload: &mut Vec<u8>) -> Result<bool> {
        if self.finished {
            return Ok(false);
        }
        let number = self.number;
        let at = |what: &str| Error::DataLoss(format!("record {number} {what}"));
        let mut header = [0; HEADER_BYTES];
        match read_up_to(&mut self.source, &mut header)? {
            0 => {
                self.finished = true;
                return Ok(false);
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
        let record = &payload[start..];
        let mut crc = [0; 4];
        if record.len() < length || read_up_to(&mut self.source, &mut crc)? < 4 {
            return Err(at("is cut off"));
        }
        if u32::from_le_bytes(crc) != masked_crc(record) {
            return Err(at("does not have the checksum that was written"));
        }
        self.number += 1;
        Ok(true)
    }

    fn read_payload(&mut self, payload: &mut Vec<u8>, length: usize) -> Result<()> {
        let first = payload.len();
        while payload.len() - first < length {
            let arrived = payload.len() - first;
            let step = (length - arrived).min(arrived.max(FIRST_STEP));
            let start = payload.len();
            if length > FIRST_STEP {
                // Not twice as much as there is, which a large record would pay for.
                payload.reserve_exact(step);
            }
            payload.resize(start + step, 0);
            let got = read_up_to(&mut self.source, &mut payload[start..])?;
            payload.truncate(start + got);
            if got < step {
                break;
            }
        }
        Ok(())
    }

    /// The file, once all records were read.
    ///
    /// # Errors
    /// [`Error::DataLoss`] if bytes follow the last record's stream.
    pub fn into_file(self) -> Result<R> {
        let mut file = match self.source {
            Source::Plain(file) => file,
            Source::Zlib(source) => source.into_inner().file,
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

/// Fills as much of `buffer` as there is.
fn read_up_to(source: &mut impl Read, buffer: &mut [u8]) -> Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(size) => filled += size,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(read_error(&error)),
        }
    }
    Ok(filled)
}

/// Damage that was found on the way is damage; the rest is trouble with the disk.
fn read_error(error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => Error::DataLoss(error.to_string()),
        _ => Error::Storage(error.to_string()),
    }
}

/// A zlib stream. Unlike flate2's reader, it does not take the end of the file for the end of the stream.
struct Inflate<R> {
    file: R,
    state: Decompress,
    ended: bool,
}

impl<R: BufRead> Read for Inflate<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !self.ended && !buffer.is_empty() {
            let input = self.file.fill_buf()?;
            let (at_end, before_in, before_out) = (input.is_empty(), self.state.total_in(), self.state.total_out());
            let status = self.state.decompress(input, buffer, FlushDecompress::None);
            let status =
                status.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("zlib: {error}")))?;
            self.file.consume((self.state.total_in() - before_in) as usize);
            self.ended = status == Status::StreamEnd;
            let written = (self.state.total_out() - before_out) as usize;
            if written > 0 {
                return Ok(written);
            }
            if at_end && !self.ended {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the zlib stream is cut off"));
            }
        }
        Ok(0)
    }
}
