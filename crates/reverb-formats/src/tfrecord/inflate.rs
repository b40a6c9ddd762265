//! Readers of zlib streams (RFC 1950): any stream, and faster, streams of stored blocks only.

use flate2::{Decompress, FlushDecompress, Status};
use std::io::{self, BufRead, Read};

const STREAM_HEADER_BYTES: usize = 2;
const BLOCK_HEADER_BYTES: usize = 5;
const CHECKSUM_BYTES: usize = 4;

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("zlib: {what}"))
}

fn cut_off() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the zlib stream is cut off")
}

/// Reads any zlib stream. Unlike flate2's reader, it fails if the file ends before the stream.
pub struct Inflate<R> {
    file: R,
    state: Decompress,
    ended: bool,
}

impl<R> Inflate<R> {
    /// Creates a reader of the stream in `file`.
    pub fn new(file: R) -> Self {
        Self { file, state: Decompress::new(true), ended: false }
    }

    /// Returns the file, positioned behind the stream if the stream was read completely.
    pub fn into_file(self) -> R {
        self.file
    }
}

impl<R: BufRead> Read for Inflate<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !self.ended && !buffer.is_empty() {
            let input = self.file.fill_buf()?;
            let (at_end, before_in, before_out) = (input.is_empty(), self.state.total_in(), self.state.total_out());
            let status = self.state.decompress(input, buffer, FlushDecompress::None);
            let status = status.map_err(|error| invalid(&error.to_string()))?;
            self.file.consume((self.state.total_in() - before_in) as usize);
            self.ended = status == Status::StreamEnd;
            let written = (self.state.total_out() - before_out) as usize;
            if written > 0 {
                return Ok(written);
            }
            if at_end && !self.ended {
                return Err(cut_off());
            }
        }
        Ok(0)
    }
}

/// Reads a stream of stored blocks without copying. Does not verify the checksum of the stream.
pub struct Stored<R> {
    file: R,
    expected: Expected,
}

/// The part of the stream that comes next.
#[derive(Debug, Clone, Copy)]
enum Expected {
    Header,
    Block,
    Data { left: usize, is_last: bool },
    Checksum,
    End,
}

impl<R: BufRead> Stored<R> {
    /// Creates a reader of the stream in `file`.
    pub fn new(file: R) -> Self {
        Self { file, expected: Expected::Header }
    }

    /// Returns the file, positioned behind the stream if the stream was read completely.
    pub fn into_file(self) -> R {
        self.file
    }

    /// Returns buffered data, which is empty only at the end of the stream.
    pub fn fill_buf(&mut self) -> io::Result<&[u8]> {
        loop {
            self.expected = match self.expected {
                Expected::Header => {
                    let header = self.array::<STREAM_HEADER_BYTES>()?;
                    let is_deflate = header[0] & 0xf == 8 && header[0] >> 4 <= 7;
                    // The last test refuses a preset dictionary, which would precede the blocks.
                    if !is_deflate || u16::from_be_bytes(header) % 31 != 0 || header[1] & 0x20 != 0 {
                        return Err(invalid("incorrect header"));
                    }
                    Expected::Block
                }
                Expected::Block => self.block()?,
                Expected::Data { left: 0, is_last: false } => Expected::Block,
                Expected::Data { left: 0, is_last: true } => Expected::Checksum,
                Expected::Data { .. } => break,
                Expected::Checksum => {
                    self.array::<CHECKSUM_BYTES>()?;
                    Expected::End
                }
                Expected::End => return Ok(&[]),
            };
        }
        let Expected::Data { left, .. } = self.expected else { return Ok(&[]) };
        match self.file.fill_buf()? {
            [] => Err(cut_off()),
            buffered => Ok(&buffered[..buffered.len().min(left)]),
        }
    }

    /// Skips `size` bytes of the data that `fill_buf` returned.
    pub fn consume(&mut self, size: usize) {
        if let Expected::Data { left, .. } = &mut self.expected {
            *left -= size;
            self.file.consume(size);
        }
    }

    fn block(&mut self) -> io::Result<Expected> {
        let [kind, length @ .., inverse_low, inverse_high] = self.array::<BLOCK_HEADER_BYTES>()?;
        if kind >> 1 & 3 != 0 {
            return Err(invalid("a block is not a stored block"));
        }
        let length = u16::from_le_bytes(length);
        if length != !u16::from_le_bytes([inverse_low, inverse_high]) {
            return Err(invalid("the length of a stored block is damaged"));
        }
        Ok(Expected::Data { left: length.into(), is_last: kind & 1 == 1 })
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.file.read_exact(&mut bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => cut_off(),
            _ => error,
        })?;
        Ok(bytes)
    }
}
