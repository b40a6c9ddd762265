//! The codec for the chunks of a writer: the requested one, or the one that saves most.
//!
//! [`AutoCodec`] tries the codecs on three chunks out of every 1024. It compresses if that leaves less than three
//! quarters of the bytes, and uses Zstandard only if Zstandard saves a further eighth of the bytes.

use crate::compression::{MIN_BYTES, encoded_layout, subtract_rows};
use crate::encoding::{Codec, Encoding, takes_delta};
use crate::{Chunk, Error, Layout, Result};
use std::str::FromStr;
use std::sync::Arc;

/// Number of chunks that are tried, out of the number below.
const TRIALS: u32 = 3;
const TRIALS_EVERY: u32 = 1024;

/// The compression that a user requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// LZ4, which is fast to decode.
    Lz4,
    /// Zstandard, which compresses better.
    Zstd,
    /// The codec and the differences that save most, found by trial.
    Auto,
}

impl FromStr for Compression {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "none" => Ok(Self::None),
            "lz4" => Ok(Self::Lz4),
            "zstd" => Ok(Self::Zstd),
            "auto" => Ok(Self::Auto),
            _ => Err(Error::invalid(format!("compression must be `none`, `lz4`, `zstd` or `auto`, got `{name}`"))),
        }
    }
}

/// Compresses the chunks of one set of columns.
#[derive(Debug)]
pub struct Compressor {
    kind: Compression,
    delta: Box<[bool]>,
    auto: AutoCodec,
    layouts: Layouts,
}

impl Compressor {
    /// Creates a compressor for the chunks of one set of columns.
    ///
    /// # Arguments
    /// `delta` holds a flag for each column: whether to store differences between rows. Flags of columns that cannot be
    /// stored as differences are ignored; missing flags count as false. [`Compression::Auto`] does not read them.
    pub fn new(kind: Compression, delta: &[bool]) -> Self {
        Self { kind, delta: delta.into(), auto: AutoCodec::default(), layouts: Layouts::default() }
    }

    /// Returns the chunk, compressed if that saves enough.
    pub fn compress(&mut self, chunk: Chunk) -> Chunk {
        match self.kind {
            Compression::None => chunk,
            Compression::Lz4 => self.layouts.compress(&chunk, Codec::Lz4, &self.delta),
            Compression::Zstd => self.layouts.compress(&chunk, Codec::Zstd, &self.delta),
            Compression::Auto => self.auto.compress(chunk),
        }
    }
}

/// Remembers the last layout and its encoded form: consecutive chunks mostly share both.
#[derive(Debug, Default)]
struct Layouts {
    last: Option<(Arc<Layout>, Arc<Layout>)>,
}

impl Layouts {
    fn compress(&mut self, chunk: &Chunk, codec: Codec, delta: &[bool]) -> Chunk {
        let same = |plain: &Arc<Layout>| Arc::ptr_eq(plain, chunk.layout()) || **plain == **chunk.layout();
        if self.last.as_ref().is_none_or(|(plain, _)| !same(plain)) {
            let encoded = Arc::new(encoded_layout(chunk.layout(), codec, delta));
            self.last = Some((chunk.layout().clone(), encoded));
        }
        match &self.last {
            Some((_, encoded)) => chunk.compress_as(encoded),
            None => chunk.compress(codec, delta),
        }
    }
}

/// Finds the best encoding for the chunks of one set of columns. It tries all encodings on a few chunks, uses the best
/// one for a while, and then tries again, because data changes.
#[derive(Debug, Default)]
pub struct AutoCodec {
    /// Number of chunks since the last trials began.
    chunks: u32,
    trial: Trial,
    choice: Option<Encoding>,
    layouts: Layouts,
}

/// Sizes in bytes of the chunks that were tried, for each encoding.
#[derive(Debug, Default)]
struct Trial {
    plain: usize,
    lz4: usize,
    zstd: usize,
    /// LZ4 sizes of each column: plain, and as differences.
    columns: Vec<(usize, usize)>,
}

impl AutoCodec {
    /// Returns the chunk in the encoding that was best so far.
    pub fn compress(&mut self, chunk: Chunk) -> Chunk {
        if chunk.is_encoded() || chunk.size_bytes() < MIN_BYTES {
            return chunk;
        }
        if self.chunks < TRIALS {
            if self.chunks == 0 {
                self.trial = Trial::default();
            }
            self.choice = self.trial.add(&chunk);
            self.layouts = Layouts::default();
        }
        self.chunks = (self.chunks + 1) % TRIALS_EVERY;
        match &self.choice {
            Some(Encoding { codec, delta }) => self.layouts.compress(&chunk, *codec, delta),
            None => chunk,
        }
    }

    /// The encoding in use; `None` if chunks stay as they are.
    pub fn choice(&self) -> Option<&Encoding> {
        self.choice.as_ref()
    }
}

impl Trial {
    fn add(&mut self, chunk: &Chunk) -> Option<Encoding> {
        let layout = chunk.layout();
        self.columns.resize(layout.columns.len(), (0, 0));
        for (index, (plain, differences)) in self.columns.iter_mut().enumerate() {
            let column = &layout.columns[index];
            if takes_delta(column.dtype) && layout.rows > 1 {
                let mut region = chunk.data()[column.offset..column.offset + column.size_bytes].to_vec();
                *plain += lz4_flex::block::compress(&region).len();
                subtract_rows(&mut region, column.row_bytes, column.dtype.size());
                *differences += lz4_flex::block::compress(&region).len();
            }
        }
        // Differences of small numbers are hardly smaller, and cost time.
        let delta: Box<[bool]> = self.columns.iter().map(|&(plain, differences)| differences < plain / 8 * 7).collect();
        self.plain += chunk.size_bytes();
        self.lz4 += chunk.compress(Codec::Lz4, &delta).size_bytes();
        self.zstd += chunk.compress(Codec::Zstd, &delta).size_bytes();
        // Every sample pays for decoding, so a little less memory is not worth it.
        let best =
            if self.zstd + self.plain / 8 < self.lz4 { (Codec::Zstd, self.zstd) } else { (Codec::Lz4, self.lz4) };
        (best.1 < self.plain / 4 * 3).then_some(Encoding { codec: best.0, delta })
    }
}
