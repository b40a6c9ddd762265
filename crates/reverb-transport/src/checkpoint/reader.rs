//! Checkpoints without a server: what is in a folder, whether it is whole, and its items as batches.

use super::disk::{Disk, RealDisk};
use super::folder::checkpoints;
use super::load::{read_checkpoint, read_tables};
use super::table::TableRecord;
use crate::client::Batch;
use crate::table_handle::{TableStatus, WaitTimes};
use reverb_core::BatchInfo;
use reverb_core::gather::Gatherer;
use reverb_core::{Drawn, Error, ItemView, Result, TableInfo};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A table of a checkpoint, as people want to see it.
#[derive(Debug)]
pub struct TableSummary {
    /// Definition and counts.
    pub status: TableStatus,
    /// Items; `None` where only reading all of them would tell.
    pub items: Option<u64>,
}

/// What a checkpoint says of itself.
#[derive(Debug)]
pub struct Summary {
    /// Where it is.
    pub path: PathBuf,
    /// Whether this package wrote it, with hashes, or the reference.
    pub is_ours: bool,
    /// Its tables.
    pub tables: Vec<TableSummary>,
}

impl Summary {
    /// Reads the definitions of the tables of a checkpoint, and none of its items.
    ///
    /// # Errors
    /// [`Error::DataLoss`] if what it reads is damaged; [`Error::Storage`].
    pub fn read(path: &Path) -> Result<Self> {
        let (records, sidecar) = read_tables(&RealDisk, path)?;
        let tables = records.into_iter().map(|record| {
            let items =
                sidecar.as_ref().and_then(|sidecar| sidecar.table(&record.config.name)).map(|table| table.items);
            TableSummary { status: to_status(&record, items.unwrap_or(0)), items }
        });
        Ok(Self { path: path.into(), is_ours: sidecar.is_some(), tables: tables.collect() })
    }
}

/// The checkpoints in a folder, newest first.
///
/// # Errors
/// [`Error::Storage`] if the folder cannot be read.
pub fn list(root: &Path) -> Result<Vec<PathBuf>> {
    Ok(checkpoints(&RealDisk, root)?.into_iter().map(|entry| root.join(entry.name)).collect())
}

/// Reads all of a checkpoint and checks it: hashes where it has any, checksums, and that every item is whole.
///
/// # Errors
/// [`Error::DataLoss`] with what is wrong; [`Error::InvalidArgument`] for what is no checkpoint, or holds what this
/// package cannot; [`Error::Storage`].
pub fn verify(path: &Path, limit_bytes: u64) -> Result<Summary> {
    let is_ours = read_tables(&RealDisk, path)?.1.is_some();
    let tables = read_checkpoint(&RealDisk, path, limit_bytes, &mut |_| Ok(None))?;
    let tables = tables
        .into_iter()
        .map(|table| TableSummary { status: to_status(&table.record, table.items), items: Some(table.items) });
    Ok(Summary { path: path.into(), is_ours, tables: tables.collect() })
}

fn to_status(record: &TableRecord, items: u64) -> TableStatus {
    let counts = record.counts;
    let info = TableInfo {
        config: record.config.clone(),
        current_size: items,
        num_episodes: 0,
        num_deleted_episodes: counts.num_deleted_episodes,
        num_unique_samples: counts.num_unique_samples,
        inserts: counts.inserts,
        samples: counts.samples,
        deletes: counts.deletes,
        bytes: 0,
    };
    offline(info)
}

fn offline(info: TableInfo) -> TableStatus {
    TableStatus {
        info,
        waiting_inserts: 0,
        waiting_samples: 0,
        insert_wait: None,
        sample_wait: None,
        undelivered: 0,
        waited: WaitTimes { alive_ms: 0, inserts_ms: 0, samples_ms: 0 },
    }
}

/// The items of a checkpoint in memory.
#[derive(Debug)]
pub struct CheckpointReader {
    path: PathBuf,
    tables: Vec<ReaderTable>,
}

#[derive(Debug)]
struct ReaderTable {
    status: TableStatus,
    items: Vec<ItemView>,
    signature_token: u64,
}

/// Items as one batch, in the order in which they were inserted.
#[derive(Debug)]
pub struct CheckpointBatch {
    /// The batch.
    pub batch: Batch,
    /// When each was inserted, in nanoseconds since the epoch.
    pub inserted_at: Vec<u64>,
}

impl CheckpointReader {
    /// Reads these tables of a checkpoint, all of them if `None`; of a folder of checkpoints, those of the newest good one.
    ///
    /// # Errors
    /// As [`verify`]; [`Error::TableNotFound`].
    pub fn open(path: &Path, tables: Option<&[String]>, limit_bytes: u64) -> Result<Self> {
        let entries = checkpoints(&RealDisk, path)?;
        let mut damaged = Vec::new();
        for entry in &entries {
            match Self::read(&RealDisk, &path.join(&entry.name), tables, limit_bytes) {
                Err(Error::DataLoss(reason)) => damaged.push(format!("{}: {reason}", entry.name)),
                result => {
                    if !damaged.is_empty() {
                        tracing::warn!("{}: passed over damaged checkpoints: {}", path.display(), damaged.join("; "));
                    }
                    return result;
                }
            }
        }
        if !damaged.is_empty() {
            return Err(Error::DataLoss(format!("no checkpoint can be loaded: {}", damaged.join("; "))));
        }
        Self::read(&RealDisk, path, tables, limit_bytes)
    }

    fn read(disk: &dyn Disk, path: &Path, wanted: Option<&[String]>, limit_bytes: u64) -> Result<Self> {
        let mut known = Vec::new();
        let read = read_checkpoint(disk, path, limit_bytes, &mut |record| {
            let name = &record.config.name;
            known.push(name.clone());
            Ok(wanted.is_none_or(|wanted| wanted.contains(name)).then(|| record.config.clone()))
        })?;
        if let Some(missing) = wanted.unwrap_or_default().iter().find(|name| !known.contains(name)) {
            return Err(Error::TableNotFound { table: missing.clone(), known: known.join(", ") });
        }
        let tables = read.into_iter().filter_map(|table| table.table).map(|table| ReaderTable {
            status: offline(table.info()),
            signature_token: table.config().signature.as_ref().map_or(0, |signature| signature.token()),
            items: table.snapshot().items().collect(),
        });
        Ok(Self { path: path.into(), tables: tables.collect() })
    }

    /// The checkpoint.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its tables that were read.
    pub fn tables(&self) -> impl Iterator<Item = &TableStatus> {
        self.tables.iter().map(|table| &table.status)
    }

    /// Up to `count` items of a table from the item `first` on. Fewer where the next ones do not fit into one batch.
    ///
    /// # Errors
    /// [`Error::TableNotFound`]; [`Error::InvalidArgument`] if an item alone does not fit into memory.
    pub fn batch(
        &self,
        table: &str,
        first: usize,
        count: usize,
        squeeze_time: bool,
    ) -> Result<Option<CheckpointBatch>> {
        let table = self.tables.iter().find(|read| read.status.info.config.name == table).ok_or_else(|| {
            let known =
                self.tables.iter().map(|read| read.status.info.config.name.clone()).collect::<Vec<_>>().join(", ");
            Error::TableNotFound { table: table.into(), known }
        })?;
        let end = first.saturating_add(count).min(table.items.len());
        let items = table.items.get(first..end).unwrap_or_default();
        if items.is_empty() {
            return Ok(None);
        }
        let inserted_at = items.iter().map(|item| item.inserted_at);
        let mut inserted_at: Vec<_> = inserted_at.collect();
        let batch = to_batch(items, table.items.len() as u64, squeeze_time, table.signature_token)?;
        inserted_at.truncate(batch.info.keys().len());
        Ok(Some(CheckpointBatch { batch, inserted_at }))
    }
}

/// The longest beginning of `items` that fits into one batch.
pub fn to_batch(items: &[ItemView], table_size: u64, squeeze_time: bool, signature_token: u64) -> Result<Batch> {
    let drawn = items.iter().map(|item| Drawn::peeked(item.clone(), table_size)).collect();
    let gatherer = Gatherer::new(drawn, squeeze_time).or_else(|mismatch| {
        let mut fitting = mismatch.items;
        fitting.truncate(mismatch.index);
        if fitting.is_empty() {
            return Err(mismatch.reason);
        }
        Gatherer::new(fitting, squeeze_time).map_err(|mismatch| mismatch.reason)
    });
    let mut gatherer = gatherer.map_err(|reason| Error::invalid(format!("items do not fit into a batch: {reason}")))?;
    let info = BatchInfo::of(gatherer.items());
    let buffer = gatherer.gather();
    Ok(Batch {
        info,
        layout: gatherer.layout().clone(),
        buffer,
        signature_token,
        receipt_may_wait: true,
        waited: Duration::ZERO,
        arrived: Instant::now(),
    })
}
