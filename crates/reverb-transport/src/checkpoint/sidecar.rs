//! The file of our own beside the reference's: what its format has no place for.
//!
//! `reverb.jsonl` has two lines: an object, and the BLAKE3 hash of the first line. The object has the sizes and hashes of
//! the other files, and of each table its true `max_size`, `max_bytes`, its seed and its number of items.

use reverb_core::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The file's name. The reference passes over files that it does not know.
pub const SIDECAR: &str = "reverb.jsonl";
/// The format written here.
const FORMAT: u32 = 1;
/// Bytes that are read of it at most.
pub const MAX_BYTES: u64 = 64 << 20;

/// The content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sidecar {
    /// Version of the format.
    pub format: u32,
    /// Who wrote it.
    pub writer: String,
    /// The checkpoint's other files.
    pub files: BTreeMap<String, FileSum>,
    /// Chunks in all.
    pub chunks: u64,
    /// The tables.
    pub tables: Vec<TableExtra>,
    /// Lengths of runs of chunks, in the order of their file: first those whose rows belong to one episode, then those
    /// whose rows are episodes of their own, and so on in turn.
    pub episode_runs: Vec<u64>,
}

/// The one field that every version has.
#[derive(Debug, Deserialize)]
struct Format {
    format: u32,
}

/// Size and hash of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSum {
    /// Bytes.
    pub size: u64,
    /// BLAKE3, in hex.
    pub blake3: String,
}

/// What the reference's record of a table lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableExtra {
    /// The table.
    pub name: String,
    /// Its limit. The reference's record has the number of items instead where that is larger.
    pub max_size: u64,
    /// Its limit in bytes.
    pub max_bytes: Option<u64>,
    /// Seed of its draws.
    pub seed: Option<u64>,
    /// Items in the checkpoint.
    pub items: u64,
}

impl Sidecar {
    /// An empty one.
    pub fn new() -> Self {
        Self {
            format: FORMAT,
            writer: concat!("reverb-replay ", env!("CARGO_PKG_VERSION")).into(),
            files: BTreeMap::new(),
            chunks: 0,
            tables: Vec::new(),
            episode_runs: Vec::new(),
        }
    }

    /// As the file has it.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut text = serde_json::to_string(self).map_err(|error| Error::Internal(format!("{SIDECAR}: {error}")))?;
        let hash = blake3::hash(text.as_bytes()).to_hex();
        text.push_str(&format!("\n{{\"blake3\":\"{hash}\"}}\n"));
        Ok(text.into_bytes())
    }

    /// From the file.
    ///
    /// # Errors
    /// [`Error::DataLoss`] if it is damaged; [`Error::Unimplemented`] if a later version wrote it.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let damaged = |what: &str| Error::DataLoss(format!("{SIDECAR}: {what}"));
        let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let expected = format!("\n{{\"blake3\":\"{}\"}}\n", blake3::hash(line).to_hex());
        if bytes[line.len()..] != *expected.as_bytes() {
            return Err(damaged("it does not have the hash that was written"));
        }
        let invalid = |error: serde_json::Error| damaged(&error.to_string());
        match serde_json::from_slice(line).map_err(invalid)? {
            Format { format } if format > FORMAT => Err(Error::Unimplemented(format!(
                "{SIDECAR} has format {format}; this version reads {FORMAT}. A newer version of this package wrote it."
            ))),
            Format { .. } => serde_json::from_slice(line).map_err(invalid),
        }
    }

    /// What is known of a table.
    pub fn table(&self, name: &str) -> Option<&TableExtra> {
        self.tables.iter().find(|table| table.name == name)
    }
}

/// Walks along [`Sidecar::episode_runs`].
#[derive(Debug, Default)]
pub struct Runs {
    runs: Vec<u64>,
    index: usize,
    used: u64,
}

impl Runs {
    /// From the first chunk on.
    pub fn new(runs: Vec<u64>) -> Self {
        Self { runs, index: 0, used: 0 }
    }

    /// Whether the rows of the next chunk are episodes of their own.
    pub fn advance(&mut self) -> bool {
        while self.runs.get(self.index).is_some_and(|&length| self.used == length) {
            (self.index, self.used) = (self.index + 1, 0);
        }
        self.used += 1;
        self.index % 2 == 1 && self.index < self.runs.len()
    }

    /// Appends a chunk.
    pub fn push(runs: &mut Vec<u64>, per_row: bool) {
        if runs.is_empty() {
            runs.push(0);
        }
        if runs.len().is_multiple_of(2) != per_row {
            runs.push(0);
        }
        if let Some(last) = runs.last_mut() {
            *last += 1;
        }
    }
}
