//! What is in a zlib stream (RFC 1950).

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

/// Any stream. Unlike flate2's reader, it does not take the end of the file for the end of the stream.
pub struct Inflate<R> {
    file: R,
    state: Decompress,
    ended: bool,
}

impl<R> Inflate<R> {
    /// The stream in a file.
    pub fn new(file: R) -> Self {
        Self { file, state: Decompress::new(true), ended: false }
    }

    /// The file, at what follows the stream, if that was read whole.
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

/// A stream of stored blocks only, read without a copy. Its checksum is passed over.
pub struct Stored<R> {
    file: R,
    place: Place,
}

/// What comes next.
#[derive(Debug, Clone, Copy)]
enum Place {
    Header,
    Block,
    Data { left: usize, is_last: bool },
    Checksum,
    End,
}

impl<R: BufRead> Stored<R> {
    /// The stream in a file.
    pub fn new(file: R) -> Self {
        Self { file, place: Place::Header }
    }

    /// The file, at what follows the stream, if that was read whole.
    pub fn into_file(self) -> R {
        self.file
    }

    /// Data that lies ready; nothing at the end of the stream.
    pub fn fill_buf(&mut self) -> io::Result<&[u8]> {
        loop {
            self.place = match self.place {
                Place::Header => {
                    let header = self.array::<STREAM_HEADER_BYTES>()?;
                    let is_deflate = header[0] & 0xf == 8 && header[0] >> 4 <= 7;
                    // A preset dictionary would precede the blocks.
                    if !is_deflate || u16::from_be_bytes(header) % 31 != 0 || header[1] & 0x20 != 0 {
                        return Err(invalid("incorrect header"));
                    }
                    Place::Block
                }
                Place::Block => self.block()?,
                Place::Data { left: 0, is_last: false } => Place::Block,
                Place::Data { left: 0, is_last: true } => Place::Checksum,
                Place::Data { .. } => break,
                Place::Checksum => {
                    self.array::<CHECKSUM_BYTES>()?;
                    Place::End
                }
                Place::End => return Ok(&[]),
            };
        }
        let Place::Data { left, .. } = self.place else { return Ok(&[]) };
        match self.file.fill_buf()? {
            [] => Err(cut_off()),
            buffered => Ok(&buffered[..buffered.len().min(left)]),
        }
    }

    /// Passes over data that `fill_buf` has shown.
    pub fn consume(&mut self, size: usize) {
        if let Place::Data { left, .. } = &mut self.place {
            *left -= size;
            self.file.consume(size);
        }
    }

    fn block(&mut self) -> io::Result<Place> {
        let [kind, length @ .., inverse_low, inverse_high] = self.array::<BLOCK_HEADER_BYTES>()?;
        if kind >> 1 & 3 != 0 {
            return Err(invalid("a block is not stored"));
        }
        let length = u16::from_le_bytes(length);
        if length != !u16::from_le_bytes([inverse_low, inverse_high]) {
            return Err(invalid("a stored block's length is damaged"));
        }
        Ok(Place::Data { left: length.into(), is_last: kind & 1 == 1 })
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
