//! Reads checkpoints without a server: lists and verifies them, and returns their items as batches.

use super::folder::{checkpoints, load_newest};
use super::load::{SizeLimit, read_checkpoint, read_tables};
use crate::disk::{Disk, RealDisk};
use crate::durable;
use crate::log::Recovered;
use reverb_core::{Error, ItemView, Result, TableInfo};
use reverb_formats::table::TableRecord;
use reverb_service::Batch;
use reverb_service::TableStatus;
use std::path::{Path, PathBuf};

/// A summary of a table in a checkpoint.
#[derive(Debug)]
pub struct TableSummary {
    /// Definition and counts of the table.
    pub status: TableStatus,
    /// Number of items. `None` if it is not known without reading all items.
    pub items: Option<u64>,
}

/// A summary of a checkpoint.
#[derive(Debug)]
pub struct Summary {
    /// Path of the checkpoint.
    pub path: PathBuf,
    /// Whether this package wrote the checkpoint, with hashes in a sidecar. Otherwise the reference did.
    pub is_ours: bool,
    /// Tables in the checkpoint.
    pub tables: Vec<TableSummary>,
}

impl Summary {
    /// Reads the definitions of the tables of a checkpoint, but not their items.
    ///
    /// # Errors
    /// [`Error::DataLoss`] if these files are damaged, [`Error::Storage`] if they cannot be read.
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

/// Returns the paths of the checkpoints in a folder, newest first.
///
/// # Errors
/// [`Error::Storage`] if the folder cannot be read.
pub fn list(root: &Path) -> Result<Vec<PathBuf>> {
    Ok(checkpoints(&RealDisk, root)?.into_iter().map(|entry| root.join(entry.name)).collect())
}

/// Reads a checkpoint completely and verifies it: hashes if there is a sidecar, checksums, and the chunks of every
/// item. Refuses chunks above `limit`.
///
/// # Errors
/// [`Error::DataLoss`] if it is damaged; [`Error::InvalidArgument`] if the path is not a checkpoint or its content is
/// not supported; [`Error::Storage`] if it cannot be read.
pub fn verify(path: &Path, limit: SizeLimit) -> Result<Summary> {
    let is_ours = read_tables(&RealDisk, path)?.1.is_some();
    let (tables, _) = read_checkpoint(&RealDisk, path, limit, &mut |_, _| Ok(None))?;
    let tables = tables
        .into_iter()
        .map(|table| TableSummary { status: to_status(&table.record, table.items), items: Some(table.items) });
    Ok(Summary { path: path.into(), is_ours, tables: tables.collect() })
}

/// Reads and checks the log of the changes after a checkpoint, if the checkpoint names one.
///
/// # Errors
/// [`Error::DataLoss`] if the log is missing or damaged; [`Error::Storage`] if it cannot be read.
pub fn verify_log(path: &Path) -> Result<Option<Recovered>> {
    let (_, sidecar) = read_tables(&RealDisk, path)?;
    let (Some(log), Some(folder)) = (sidecar.and_then(|sidecar| sidecar.log), path.parent()) else { return Ok(None) };
    durable::check(&RealDisk, folder, log.position()?).map(Some)
}

fn to_status(record: &TableRecord, items: u64) -> TableStatus {
    let counts = record.counts;
    let info = TableInfo {
        current_size: items,
        num_deleted_episodes: counts.num_deleted_episodes,
        num_unique_samples: counts.num_unique_samples,
        inserts: counts.inserts,
        samples: counts.samples,
        ..TableInfo::new(record.config.clone())
    };
    info.into()
}

/// A checkpoint whose items are in memory.
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

/// Items as one batch, in the order of insertion.
#[derive(Debug)]
pub struct CheckpointBatch {
    /// The batch that holds the items.
    pub batch: Batch,
    /// Time of insertion of each item in nanoseconds since the Unix epoch.
    pub inserted_at: Vec<u64>,
}

impl CheckpointReader {
    /// Reads these tables of a checkpoint, or all tables if `None`. If the path is a folder of checkpoints, reads the
    /// newest good one.
    ///
    /// # Errors
    /// Those of [`verify`]; [`Error::TableNotFound`] if the checkpoint does not have one of the tables.
    pub fn open(path: &Path, tables: Option<&[String]>, limit: SizeLimit) -> Result<Self> {
        let (found, damaged) = load_newest(&RealDisk, path, |newest| Self::read(&RealDisk, newest, tables, limit))?;
        if !damaged.is_empty() {
            tracing::warn!("skipped damaged checkpoints: {}", damaged.join("; "));
        }
        if let Some((_, reader)) = found {
            return Ok(reader);
        }
        Self::read(&RealDisk, path, tables, limit)
    }

    fn read(disk: &dyn Disk, path: &Path, wanted: Option<&[String]>, limit: SizeLimit) -> Result<Self> {
        let mut known = Vec::new();
        let (read, _) = read_checkpoint(disk, path, limit, &mut |record, _| {
            let name = &record.config.name;
            known.push(name.clone());
            Ok(wanted.is_none_or(|wanted| wanted.contains(name)).then(|| record.config.clone()))
        })?;
        if let Some(missing) = wanted.unwrap_or_default().iter().find(|name| !known.contains(name)) {
            return Err(Error::TableNotFound { table: missing.clone(), known: known.join(", ") });
        }
        let tables = read.into_iter().filter_map(|table| table.table).map(|mut table| ReaderTable {
            status: table.info().into(),
            signature_token: table.config().signature.as_ref().map_or(0, |signature| signature.token()),
            items: table.snapshot().items().collect(),
        });
        Ok(Self { path: path.into(), tables: tables.collect() })
    }

    /// Returns the path of the checkpoint.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the tables that were read.
    pub fn tables(&self) -> impl Iterator<Item = &TableStatus> {
        self.tables.iter().map(|table| &table.status)
    }

    /// Returns up to `count` items of a table, starting at item `first`. Fewer if the next items do not fit into the
    /// batch, and `None` at the end of the table.
    ///
    /// # Errors
    /// [`Error::TableNotFound`]; [`Error::InvalidArgument`] if a single item does not fit into memory.
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
        let batch = Batch::of_items(items, table.items.len() as u64, squeeze_time, table.signature_token)?;
        inserted_at.truncate(batch.info.keys().len());
        Ok(Some(CheckpointBatch { batch, inserted_at }))
    }
}
