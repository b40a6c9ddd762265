//! Which codec the chunks of a writer get: the one that was asked for, or the one that pays.

use crate::compression::{Codec, Encoding, MIN_BYTES, encoded_layout, subtract_rows, takes_delta};
use crate::{Chunk, Error, Layout, Result};
use std::str::FromStr;
use std::sync::Arc;

/// Chunks that are tried, and of how many.
const TRIALS: u32 = 3;
const TRIALS_EVERY: u32 = 1024;

/// What a writer is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// Nothing.
    #[default]
    None,
    /// LZ4, which is fast to read.
    Lz4,
    /// Zstandard, which is smaller.
    Zstd,
    /// Whatever pays, found by trying; also differences.
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
    /// For chunks of these columns.
    ///
    /// # Arguments
    /// `delta` says for each column whether to store differences; columns that cannot are passed over, missing ones
    /// count as false. With [`Compression::Auto`] it is not read.
    pub fn new(kind: Compression, delta: &[bool]) -> Self {
        Self { kind, delta: delta.into(), auto: AutoCodec::default(), layouts: Layouts::default() }
    }

    /// The chunk, smaller if that pays.
    pub fn compress(&mut self, chunk: Chunk) -> Chunk {
        match self.kind {
            Compression::None => chunk,
            Compression::Lz4 => self.layouts.compress(&chunk, Codec::Lz4, &self.delta),
            Compression::Zstd => self.layouts.compress(&chunk, Codec::Zstd, &self.delta),
            Compression::Auto => self.auto.compress(chunk),
        }
    }
}

/// Remembers the last layout and what it is encoded: chunks that follow each other mostly share both.
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

/// Finds out what pays for the chunks of one set of columns: it tries everything on a few chunks, then keeps to what was
/// best for a while, then tries again, for data changes.
#[derive(Debug, Default)]
pub struct AutoCodec {
    /// Chunks seen since the last trials began.
    chunks: u32,
    trial: Trial,
    choice: Option<Encoding>,
    layouts: Layouts,
}

/// Bytes of the chunks that were tried, in each form.
#[derive(Debug, Default)]
struct Trial {
    plain: usize,
    lz4: usize,
    zstd: usize,
    /// LZ4 bytes of each column: as it is, and as differences.
    columns: Vec<(usize, usize)>,
}

impl AutoCodec {
    /// The chunk in the form that was found best so far.
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

    /// What is used now; `None` for bytes as they are.
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
        // Whoever samples pays for it each time, so a little less memory is not worth it.
        let best =
            if self.zstd + self.plain / 8 < self.lz4 { (Codec::Zstd, self.zstd) } else { (Codec::Lz4, self.lz4) };
        (best.1 < self.plain / 4 * 3).then_some(Encoding { codec: best.0, delta })
    }
}
