//! The file of our own beside the reference's: what its format has no place for.
//!
//! `reverb.jsonl` has two lines: an object, and the hash of the first line (XXH3, 128 bits). The object has the sizes and hashes of
//! the other files, and of each table its true `max_size`, `max_bytes`, its seed and its number of items.

use super::record::hash_text;
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
    /// The level at which zlib has compressed them: 0 for stored blocks only.
    pub compression: u32,
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
    /// XXH3 of 128 bits, in hex.
    pub xxh3: String,
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
    /// An empty one for files of zlib's level `compression`.
    pub fn new(compression: u32) -> Self {
        Self {
            format: FORMAT,
            compression,
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
        text.push_str(&hash_line(text.as_bytes()));
        Ok(text.into_bytes())
    }

    /// From the file.
    ///
    /// # Errors
    /// [`Error::DataLoss`] if it is damaged; [`Error::Unimplemented`] if a later version wrote it.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let damaged = |what: &str| Error::DataLoss(format!("{SIDECAR}: {what}"));
        let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
        if bytes[line.len()..] != *hash_line(line).as_bytes() {
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

fn hash_line(line: &[u8]) -> String {
    format!("\n{{\"xxh3\":\"{}\"}}\n", hash_text(line))
}

/// What [`Sidecar::episode_runs`] says of each chunk.
#[derive(Debug, Default)]
pub struct Runs {
    /// Where each run ends.
    ends: Vec<u64>,
}

impl Runs {
    /// From the lengths of the runs.
    pub fn new(lengths: &[u64]) -> Self {
        let ends = lengths.iter().scan(0_u64, |end, &length| {
            *end = end.saturating_add(length);
            Some(*end)
        });
        Self { ends: ends.collect() }
    }

    /// Whether the rows of the chunk at `index` in the file are episodes of their own.
    pub fn is_per_row(&self, index: u64) -> bool {
        let run = self.ends.partition_point(|&end| end <= index);
        run % 2 == 1 && run < self.ends.len()
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
