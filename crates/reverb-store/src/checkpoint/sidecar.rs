//! The sidecar: a file with the data for which the format of the reference has no place.
//!
//! `reverb.jsonl` has two lines: a JSON object, and the hash of the first line (XXH3, 128 bits). The object holds the
//! sizes and hashes of the other files and, for each table, the true `max_size`, `max_bytes`, the seed, the number of
//! items, the largest priority so far and, of a shard of a cluster, the counts of all shards. Of a server with a log, it
//! holds where the changes after the checkpoint begin there.

use crate::log::Position;
use reverb_core::published_room::{Counts, Incarnation, Tally};
use reverb_core::{Error, Result};
use reverb_formats::tfrecord::hash_text;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name of the file. The reference ignores files that it does not know.
pub const SIDECAR: &str = "reverb.jsonl";
/// Version of the format that is written.
const FORMAT: u32 = 1;
/// Maximum size in bytes of a sidecar that is read.
pub const MAX_BYTES: u64 = 64 << 20;

/// The content of the sidecar.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sidecar {
    /// Version of the format.
    pub format: u32,
    /// Name and version of the program that wrote it.
    pub writer: String,
    /// Compression level of zlib in the other files. 0 means stored blocks only.
    pub compression: u32,
    /// The other files of the checkpoint by name.
    pub files: BTreeMap<String, FileSum>,
    /// Number of chunks.
    pub chunks: u64,
    /// The tables of the checkpoint.
    pub tables: Vec<TableExtra>,
    /// Lengths of runs of chunks in the order of their file. Runs of chunks whose rows belong to one episode alternate
    /// with runs of chunks in which each row is an episode. The first run is of the first kind.
    pub episode_runs: Vec<u64>,
    /// Where the log of later changes begins. `None` if the server that saved the checkpoint has kept none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogBegin>,
}

/// Where the log of the changes after a checkpoint begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogBegin {
    /// Id of the log, in hex.
    pub id: String,
    /// The epoch.
    pub epoch: u64,
    /// LSN of its first frame.
    pub lsn: u64,
}

impl From<Position> for LogBegin {
    fn from(Position { log_id, epoch, lsn }: Position) -> Self {
        Self { id: format!("{:032x}", u128::from_be_bytes(log_id)), epoch, lsn }
    }
}

impl LogBegin {
    /// Returns the place in the log.
    ///
    /// # Errors
    /// [`Error::DataLoss`] if the id is not one.
    pub fn position(&self) -> Result<Position> {
        let Self { ref id, epoch, lsn } = *self;
        let log_id = u128::from_str_radix(id, 16).map(u128::to_be_bytes);
        let log_id = log_id.map_err(|_| Error::DataLoss(format!("{SIDECAR}: `{id}` is not the id of a log")))?;
        Ok(Position { log_id, epoch, lsn })
    }
}

/// The only field that every version of the format has.
#[derive(Debug, Deserialize)]
struct Format {
    format: u32,
}

/// Size and hash of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSum {
    /// Size in bytes.
    pub size: u64,
    /// 128-bit XXH3 hash in hex.
    pub xxh3: String,
}

/// Data of a table that the record of the reference lacks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TableExtra {
    /// Name of the table.
    pub name: String,
    /// Maximum number of items. The record of the reference has the number of items instead if that is larger.
    pub max_size: u64,
    /// Limit of the data that items keep in memory, in bytes. `None` for no limit.
    pub max_bytes: Option<u64>,
    /// Seed of the draws. `None` for a random seed.
    pub seed: Option<u64>,
    /// Number of items in the checkpoint.
    pub items: u64,
    /// The largest priority that the table has seen since its last reset. `None` if none was above 0, and in checkpoints
    /// of earlier versions: then it is that of the items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_priority: Option<f64>,
    /// Options with which the server had defined the table, as texts by name. Those that differ from the table's own were
    /// changed while the server ran, or are of an earlier checkpoint. `None` in checkpoints of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defined: Option<BTreeMap<String, String>>,
    /// What a shard of a cluster knew of the counts of all shards. Empty for a table alone, and in checkpoints of earlier
    /// versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tally: Vec<ShardCounts>,
}

/// What one start of a shard of a cluster has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardCounts {
    /// Id of the shard.
    pub shard: u32,
    /// Number of the start.
    pub start: u64,
    /// Number of items at the start.
    pub restored: u64,
    /// Number of inserts.
    pub inserts: u64,
    /// Number of removed items.
    pub deletes: u64,
    /// Number of samples.
    pub samples: u64,
}

impl From<(Incarnation, Counts)> for ShardCounts {
    fn from((Incarnation { shard, number }, counts): (Incarnation, Counts)) -> Self {
        let Counts { restored, inserts, deletes, samples } = counts;
        Self { shard, start: number, restored, inserts, deletes, samples }
    }
}

impl TableExtra {
    /// Returns what a shard knew of the counts of all shards.
    ///
    /// # Errors
    /// [`Error::DataLoss`] if no shard can have reached a count.
    pub fn known_tally(&self) -> Result<Tally> {
        let read = |&ShardCounts { shard, start, restored, inserts, deletes, samples }: &ShardCounts| {
            let counts = Counts { restored, inserts, deletes, samples }.checked();
            let counts = counts.map_err(|error| Error::DataLoss(format!("{SIDECAR}: {error}")))?;
            Ok((Incarnation { shard, number: start }, counts))
        };
        self.tally.iter().map(read).collect()
    }
}

impl Sidecar {
    /// Creates the sidecar of an empty checkpoint. `compression` is the compression level of zlib.
    pub fn new(compression: u32) -> Self {
        Self {
            format: FORMAT,
            compression,
            writer: concat!("reverb-replay ", env!("CARGO_PKG_VERSION")).into(),
            files: BTreeMap::new(),
            chunks: 0,
            tables: Vec::new(),
            episode_runs: Vec::new(),
            log: None,
        }
    }

    /// Returns the content of the file.
    ///
    /// # Errors
    /// [`Error::Internal`] if the content cannot be serialised.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut text = serde_json::to_string(self).map_err(|error| Error::Internal(format!("{SIDECAR}: {error}")))?;
        text.push_str(&hash_line(text.as_bytes()));
        Ok(text.into_bytes())
    }

    /// Parses the content of the file.
    ///
    /// # Errors
    /// [`Error::DataLoss`] if it is damaged; [`Error::Unimplemented`] if its format is newer than this version
    /// supports.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let damaged = |what: &str| Error::DataLoss(format!("{SIDECAR}: {what}"));
        let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
        if bytes[line.len()..] != *hash_line(line).as_bytes() {
            return Err(damaged("it does not match its hash"));
        }
        let invalid = |error: serde_json::Error| damaged(&error.to_string());
        match serde_json::from_slice(line).map_err(invalid)? {
            Format { format } if format > FORMAT => Err(Error::Unimplemented(format!(
                "{SIDECAR} has format {format}; this version reads {FORMAT}. A newer version of this package wrote it."
            ))),
            Format { .. } => serde_json::from_slice(line).map_err(invalid),
        }
    }

    /// Returns the data of a table.
    pub fn table(&self, name: &str) -> Option<&TableExtra> {
        self.tables.iter().find(|table| table.name == name)
    }
}

fn hash_line(line: &[u8]) -> String {
    format!("\n{{\"xxh3\":\"{}\"}}\n", hash_text(line))
}

/// Tells for each chunk what [`Sidecar::episode_runs`] states.
#[derive(Debug, Default)]
pub struct Runs {
    /// End of each run, as the number of chunks before it.
    ends: Vec<u64>,
}

impl Runs {
    /// Creates runs from their lengths.
    pub fn new(lengths: &[u64]) -> Self {
        let ends = lengths.iter().scan(0_u64, |end, &length| {
            *end = end.saturating_add(length);
            Some(*end)
        });
        Self { ends: ends.collect() }
    }

    /// Whether each row of the chunk at `index` in the file is an episode.
    pub fn is_per_row(&self, index: u64) -> bool {
        let run = self.ends.partition_point(|&end| end <= index);
        run % 2 == 1 && run < self.ends.len()
    }

    /// Appends a chunk to the lengths of runs.
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
