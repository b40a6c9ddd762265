//! Reads a checkpoint of this package or of the reference into new tables.

use super::folder::{CHUNKS, ITEMS, TABLES, files_of, is_complete};
use super::progress::Progress;
use super::record_stream::{Finished, Records};
use super::sidecar::{LogBegin, MAX_BYTES, Runs, SIDECAR, Sidecar, TableExtra};
use crate::disk::{Disk, storage_error};
use crate::log::Position;
use reverb_core::published_room;
use reverb_core::{EpisodeIds, Error, NewItem, Result, Table, TableConfig};
use reverb_formats::chunk::ChunkDecoder;
use reverb_formats::item::{Chunks, ItemMessage};
use reverb_formats::table::{Counts, TableRecord, decode_table};
use reverb_formats::tfrecord::{Tallied, Tally};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;

/// Allowance in bytes for the parts of a record besides the data of a chunk.
const RECORD_SLACK: u64 = 1 << 20;

/// Maximum size in bytes of a record that is not a chunk, in files of this package.
const OWN_RECORD_BYTES: u64 = 256 << 20;

/// Maximum compression ratio of zlib.
const MAX_ZLIB_RATIO: u64 = 1032;
/// Minimum size of a record in bytes, with its length and checksums.
const MIN_RECORD_BYTES: u64 = 16;
// limit (Checkpoints): one chunk of a checkpoint that another program wrote | `max_message_size`; {} in
// `checkpointers.open`, whose `limit_bytes=` is for all checkpoints | `MessageTooLargeError`
/// The default limit of a server for one chunk, in bytes.
const DEFAULT_CHUNK_BYTES: u64 = 256 << 20;
// limit (Checkpoints): one chunk of a checkpoint of this package that a server loads | what the size of its file
// allows, {} at most | `MessageTooLargeError`
/// Maximum size of any chunk in bytes.
const MAX_CHUNK_BYTES: u64 = u32::MAX as u64;

/// Maximum number of chunks or items for which memory is reserved in advance.
const MAX_RESERVED: u64 = 1 << 22;
/// Maximum number of threads that decode chunks. They read the file in turn, so more threads would only wait.
const MAX_DECODERS: usize = 4;
/// Chunks below this size in bytes are decoded at once, so that a batch of many small chunks need not decode each.
const PACKED_BYTES: usize = 64 << 10;

/// Which chunks are too large to be read.
#[derive(Debug, Clone, Copy)]
pub enum SizeLimit {
    /// All chunks of more than this number of bytes.
    All(u64),
    /// As `All`, but only for chunks of the reference. A server has accepted what is in files of this package, perhaps
    /// with another limit, so it must be possible to load it again. A chunk is not larger than its compressed bytes can
    /// decode to, whatever size they declare.
    Foreign(u64),
}

impl Default for SizeLimit {
    /// [`DEFAULT_CHUNK_BYTES`], for chunks of other programs.
    fn default() -> Self {
        Self::Foreign(DEFAULT_CHUNK_BYTES)
    }
}

/// The limits of one checkpoint in bytes.
struct Limits {
    /// Maximum size of a chunk.
    chunk: u64,
    /// Maximum size of a chunk whose strings may be repeated. This package does not write such chunks.
    repeats: u64,
    /// Maximum size of a record that is not a chunk.
    record: u64,
}

impl Limits {
    fn new(limit: SizeLimit, sidecar: Option<&Sidecar>) -> Self {
        match (limit, sidecar) {
            (SizeLimit::Foreign(bytes), Some(_)) => {
                Self { chunk: MAX_CHUNK_BYTES, repeats: bytes, record: OWN_RECORD_BYTES.max(bytes) }
            }
            (SizeLimit::All(bytes) | SizeLimit::Foreign(bytes), _) => {
                Self { chunk: bytes, repeats: bytes, record: bytes }
            }
        }
    }
}

/// Returns the definition of the table to make of a record and of [`super::sidecar::TableExtra::defined`]. `None` skips
/// the table and its items.
pub type Choose<'a> = &'a mut dyn FnMut(&TableRecord, Option<&BTreeMap<String, String>>) -> Result<Option<TableConfig>>;

/// A table that was read from a checkpoint.
#[derive(Debug)]
pub struct ReadTable {
    /// The record of the table, completed by the sidecar.
    pub record: TableRecord,
    /// Number of items in the checkpoint.
    pub items: u64,
    /// What the table, if it was one of a shard, knew of the counts of all shards.
    pub tally: published_room::Tally,
    /// The table. `None` if it was skipped.
    pub table: Option<Table>,
}

/// Reads the checkpoint at `path`, and where the log of later changes begins, if it names one. Refuses chunks above
/// `limit`.
///
/// # Errors
/// [`Error::DataLoss`] if it is damaged or incomplete, naming the file and the damage; [`Error::Storage`] if it cannot
/// be read; those of `choose`; [`Error::InvalidPriority`] and [`Error::SignatureMismatch`] for items that do not fit a
/// table that `choose` has changed.
pub fn read_checkpoint(
    disk: &dyn Disk,
    path: &Path,
    limit: SizeLimit,
    choose: Choose<'_>,
) -> Result<(Vec<ReadTable>, Option<Position>)> {
    let files = check_complete(disk, path)?;
    let has = |name: &str| files.iter().any(|file| file == name);
    let sidecar = if has(SIDECAR) { Some(read_sidecar(disk, path)?) } else { None };
    let mut loader = Loader::new(disk, path, limit, sidecar);
    [TABLES, CHUNKS, ITEMS].iter().try_for_each(|name| loader.check_size(name))?;
    loader.read_tables(choose)?;
    loader.read_chunks()?;
    // The reference writes this file only if there are items. Its oldest versions store items in the file of tables.
    if has(ITEMS) || loader.sidecar.is_some() {
        loader.read_items()?;
    } else {
        loader.read_old_items()?;
    }
    let log = loader.sidecar.as_ref().and_then(|sidecar| sidecar.log.as_ref()).map(LogBegin::position).transpose()?;
    Ok((loader.finish()?, log))
}

/// Returns the names of the files of a checkpoint.
///
/// # Errors
/// [`Error::InvalidArgument`] if the path is not a checkpoint, [`Error::Storage`] if it cannot be read.
pub fn check_complete(disk: &dyn Disk, path: &Path) -> Result<Vec<String>> {
    let files = files_of(disk, path)?.unwrap_or_default();
    if !is_complete(&files) {
        return Err(Error::invalid(format!("Load called with invalid checkpoint path: {}", path.display())));
    }
    Ok(files)
}

/// Reads the records of the tables of a checkpoint without their items, and the sidecar if there is one.
///
/// # Errors
/// Those of [`read_checkpoint`] for these files.
pub fn read_tables(disk: &dyn Disk, path: &Path) -> Result<(Vec<TableRecord>, Option<Sidecar>)> {
    let files = files_of(disk, path)?.unwrap_or_default();
    let sidecar = if files.iter().any(|file| file == SIDECAR) { Some(read_sidecar(disk, path)?) } else { None };
    let mut loader = Loader::new(disk, path, SizeLimit::All(MAX_BYTES), sidecar);
    loader.read_tables(&mut |_, _| Ok(None))?;
    Ok((loader.targets.into_iter().map(|target| target.record).collect(), loader.sidecar))
}

/// Reads the sidecar of a checkpoint.
pub fn read_sidecar(disk: &dyn Disk, folder: &Path) -> Result<Sidecar> {
    let path = folder.join(SIDECAR);
    let mut bytes = Vec::new();
    let error = |error: io::Error| storage_error("cannot read", &path, &error);
    disk.open(&path).map_err(error)?.take(MAX_BYTES).read_to_end(&mut bytes).map_err(error)?;
    Sidecar::from_bytes(&bytes)
}

/// Compares a file with its size and hash in the sidecar.
///
/// # Errors
/// [`Error::DataLoss`] if they differ or the file is missing, [`Error::Storage`] if it cannot be read.
pub fn check_file(disk: &dyn Disk, folder: &Path, name: &str, sidecar: &Sidecar) -> Result<()> {
    let path = folder.join(name);
    let mut file = Tallied::new(open(disk, &path)?);
    let mut buffer = vec![0; 1 << 18];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(storage_error("cannot read", &path, &error)),
        }
    }
    check_sum(&file.into_parts().1, name, sidecar)
}

fn check_sum(tally: &Tally, name: &str, sidecar: &Sidecar) -> Result<()> {
    let (size, xxh3) = tally.result();
    match sidecar.files.get(name) {
        Some(sum) if (sum.size, &sum.xxh3) == (size, &xxh3) => Ok(()),
        Some(sum) if sum.size != size => Err(other_size(name, size, sum.size)),
        Some(_) => Err(Error::DataLoss(format!("{name} does not match its hash"))),
        None => Err(Error::DataLoss(format!("{SIDECAR} has no entry for {name}"))),
    }
}

fn other_size(name: &str, size: u64, written: u64) -> Error {
    Error::DataLoss(format!("{name} has {size} bytes, but had {written} when it was written"))
}

fn open(disk: &dyn Disk, path: &Path) -> Result<Box<dyn Read + Send>> {
    disk.open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Error::DataLoss(format!("{} is missing", path.file_name().unwrap_or_default().to_string_lossy()))
        }
        _ => storage_error("cannot open", path, &error),
    })
}

/// A table that is being read.
struct Target {
    record: TableRecord,
    /// `None` if the table is skipped.
    table: Option<Table>,
    /// Whether the configuration differs from the saved one, so that saved items may not fit.
    is_changed: bool,
    items: u64,
}

impl Target {
    /// Adds an item to the table, unless the table is skipped.
    fn add_item(&mut self, item: NewItem, inserted_at: u64, is_limited: bool) -> Result<()> {
        self.items += 1;
        let Some(table) = &mut self.table else { return Ok(()) };
        let max_size = self.record.config.max_size;
        if is_limited && table.len() as u64 >= max_size {
            return Err(Error::DataLoss(format!(
                "InsertCheckpointItem called on already full Table. table size: {}, maximum size: {max_size}",
                table.len(),
            )));
        }
        if self.is_changed {
            table.check_item(&item)?;
        }
        table.restore_item(item, inserted_at).map_err(|error| match error {
            Error::InvalidArgument(reason) => Error::DataLoss(reason),
            error => error,
        })
    }
}

fn no_table(name: &str) -> String {
    format!("an item is in table `{name}`, which is missing")
}

/// Returns the number of threads that decode chunks. Most of their time is spent in page faults for new memory.
fn num_decoders() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get).min(MAX_DECODERS)
}

struct Loader<'a> {
    disk: &'a dyn Disk,
    path: &'a Path,
    limits: Limits,
    sidecar: Option<Sidecar>,
    /// Whether an earlier file was a zlib stream. An empty file was cut off then.
    is_compressed: bool,
    targets: Vec<Target>,
    chunks: Chunks,
}

impl<'a> Loader<'a> {
    fn new(disk: &'a dyn Disk, path: &'a Path, limit: SizeLimit, sidecar: Option<Sidecar>) -> Self {
        let limits = Limits::new(limit, sidecar.as_ref());
        Self { disk, path, limits, sidecar, is_compressed: false, targets: Vec::new(), chunks: Chunks::default() }
    }

    /// Compares the size of a file with the sidecar, so that what the sidecar states about its content can be judged by
    /// its size.
    fn check_size(&self, name: &str) -> Result<()> {
        let Some(sum) = self.sidecar.as_ref().and_then(|sidecar| sidecar.files.get(name)) else { return Ok(()) };
        let path = self.path.join(name);
        match self.disk.size(&path) {
            Ok(size) if size == sum.size => Ok(()),
            Ok(size) => Err(other_size(name, size, sum.size)),
            // Reading it will tell.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(storage_error("cannot read", &path, &error)),
        }
    }

    /// Returns the number of records for which memory is reserved in advance. The number in the sidecar may be false, so
    /// it is not trusted beyond what the file can hold.
    fn to_reserve(&self, name: &str, stated: u64) -> usize {
        let Some(sidecar) = &self.sidecar else { return 0 };
        let ratio = if sidecar.compression == 0 { 1 } else { MAX_ZLIB_RATIO };
        let file_bytes = sidecar.files.get(name).map_or(0, |file| file.size);
        stated.min(file_bytes.saturating_mul(ratio) / MIN_RECORD_BYTES).min(MAX_RESERVED) as usize
    }

    /// Reads a file with `read`, then compares its hash with the sidecar.
    fn read_file(&mut self, name: &str, read: impl FnOnce(&mut Self, Records) -> Result<Finished>) -> Result<()> {
        let path = self.path.join(name);
        let file = open(self.disk, &path)?;
        let limit = if name == CHUNKS { self.limits.chunk } else { self.limits.record };
        let limit = limit.saturating_add(limit / 64).saturating_add(RECORD_SLACK);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let is_stored = self.sidecar.as_ref().is_some_and(|sidecar| sidecar.compression == 0);
        let finished = Records::new(file, limit, is_stored).and_then(|records| read(self, records));
        let finished = finished.and_then(|finished| match self.is_compressed && !finished.is_compressed {
            true => Err(Error::DataLoss("the zlib stream is missing".into())),
            false => Ok(finished),
        });
        let finished = finished.map_err(|error| match error {
            Error::DataLoss(reason) => Error::DataLoss(format!("{name}: {reason}")),
            Error::Storage(reason) => Error::Storage(format!("cannot read {}: {reason}", path.display())),
            Error::MessageTooLarge { what, option, size_bytes, limit_bytes } => {
                Error::MessageTooLarge { what: format!("{name}: {what}"), option, size_bytes, limit_bytes }
            }
            Error::ResourceExhausted(reason) => Error::ResourceExhausted(format!("{name}: {reason}")),
            error => error,
        })?;
        self.is_compressed |= finished.is_compressed;
        self.sidecar.as_ref().map_or(Ok(()), |sidecar| check_sum(&finished.tally, name, sidecar))
    }

    fn read_tables(&mut self, choose: Choose<'_>) -> Result<()> {
        self.read_file(TABLES, |loader, records| {
            let decode = |_, record: &[u8]| decode_table(record);
            records.for_each(vec![decode], |record| loader.add_table(record, choose))
        })
    }

    fn add_table(&mut self, mut record: TableRecord, choose: Choose<'_>) -> Result<()> {
        let name = &record.config.name;
        if self.target(name).is_some() {
            return Err(Error::DataLoss(format!("table `{name}` occurs twice")));
        }
        if let Some(sidecar) = &self.sidecar {
            let extra = sidecar.table(name);
            let extra = extra.ok_or_else(|| Error::DataLoss(format!("{SIDECAR} has no entry for table `{name}`")))?;
            record.config.max_size = extra.max_size;
            record.config.max_bytes = extra.max_bytes;
            record.config.seed = extra.seed;
            record.config.validate()?;
        }
        let extra = self.sidecar.as_ref().and_then(|sidecar| sidecar.table(&record.config.name));
        let chosen = choose(&record, extra.and_then(|extra| extra.defined.as_ref()))?;
        let is_changed = chosen.as_ref().is_some_and(|config| is_changed(config, &record.config));
        let table = chosen.map(Table::new).transpose()?;
        self.targets.push(Target { record, table, is_changed, items: 0 });
        Ok(())
    }

    fn target(&mut self, name: &str) -> Option<&mut Target> {
        self.targets.iter_mut().find(|target| target.record.config.name == name)
    }

    fn read_chunks(&mut self) -> Result<()> {
        let no_runs = Vec::new();
        let runs = Runs::new(self.sidecar.as_ref().map_or(&no_runs, |sidecar| &sidecar.episode_runs));
        let stated = self.sidecar.as_ref().map_or(0, |sidecar| sidecar.chunks);
        self.chunks.reserve(self.to_reserve(CHUNKS, stated));
        let mut progress = Progress::new("loading chunks of", self.path, 0);
        let mut count = 0;
        let Limits { chunk: limit, repeats, .. } = self.limits;
        let decoder = || {
            let mut decoder = ChunkDecoder::new(limit).limit_repeats(repeats).leave_packed(PACKED_BYTES);
            let runs = &runs;
            move |number, record: &[u8]| {
                let per_row = runs.is_per_row(number);
                let episodes = |id| if per_row { EpisodeIds::PerRow(id) } else { EpisodeIds::Same(id) };
                decoder.decode(record, episodes).map(Arc::new)
            }
        };
        let decoders = (0..num_decoders()).map(|_| decoder()).collect();
        self.read_file(CHUNKS, |loader, records| {
            records.for_each(decoders, |chunk| {
                count += 1;
                progress.advance();
                loader.chunks.push(chunk)
            })
        })?;
        match &self.sidecar {
            Some(sidecar) if sidecar.chunks != count => Err(Error::DataLoss(format!(
                "{CHUNKS} has {count} chunks, but had {} when it was written",
                sidecar.chunks
            ))),
            Some(_) => Ok(()),
            None => {
                self.chunks.share_duplicates();
                Ok(())
            }
        }
    }

    fn read_items(&mut self) -> Result<()> {
        if let Some(target) = self.targets.iter().find(|target| target.record.has_items()) {
            return Err(Error::DataLoss(format!(
                "Checkpoint loader found mix of deprecated_items field for table '{}' and items file '{ITEMS}'",
                target.record.config.name
            )));
        }
        let total = self
            .sidecar
            .as_ref()
            .map_or(0, |s| s.tables.iter().fold(0, |sum: u64, table| sum.saturating_add(table.items)));
        self.reserve_items();
        let mut progress = Progress::new("loading", self.path, total);
        let chunks = std::mem::take(&mut self.chunks);
        let names: Vec<_> = self.targets.iter().map(|target| target.record.config.name.clone()).collect();
        // A single finder, because it profits from the order of the items.
        let mut finder = chunks.finder();
        let decode = |_, record: &[u8]| {
            let message = ItemMessage::read(record)?;
            let target = names.iter().position(|name| name == message.table);
            let target = target.ok_or_else(|| Error::DataLoss(no_table(message.table)))?;
            // Items of skipped tables are resolved, too: a checkpoint with unresolvable items is damaged.
            Ok((target, message.resolve(&mut finder)?))
        };
        self.read_file(ITEMS, |loader, records| {
            records.for_each(vec![decode], |(target, (item, inserted_at))| {
                progress.advance();
                loader.targets[target].add_item(item, inserted_at, loader.sidecar.is_none())
            })
        })
    }

    /// Reserves memory for the number of items that the sidecar states, within bounds.
    fn reserve_items(&mut self) {
        let Some(sidecar) = &self.sidecar else { return };
        let mut left = self.to_reserve(ITEMS, u64::MAX);
        for Target { record, table, .. } in &mut self.targets {
            if let (Some(table), Some(extra)) = (table, sidecar.table(&record.config.name)) {
                let count = left.min(usize::try_from(extra.items).unwrap_or(usize::MAX));
                table.reserve(count);
                left -= count;
            }
        }
    }

    /// Reads the items of old checkpoints, which are part of the records of their tables.
    fn read_old_items(&mut self) -> Result<()> {
        let mut finder = self.chunks.finder();
        for target in &mut self.targets {
            let record = target.record.clone();
            record.items().try_for_each(|item| {
                let mut item = ItemMessage::read(item)?;
                item.table = &record.config.name;
                let (item, inserted_at) = item.resolve(&mut finder)?;
                target.add_item(item, inserted_at, self.sidecar.is_none())
            })?;
        }
        Ok(())
    }

    fn finish(self) -> Result<Vec<ReadTable>> {
        if let Some(sidecar) = &self.sidecar
            && sidecar.tables.len() != self.targets.len()
        {
            let (there, written) = (self.targets.len(), sidecar.tables.len());
            return Err(Error::DataLoss(format!("{TABLES} has {there} tables, but had {written} when it was written")));
        }
        let finish = |target: Target| {
            let Target { record, mut table, items, .. } = target;
            let name = &record.config.name;
            let extra = self.sidecar.as_ref().and_then(|sidecar| sidecar.table(name));
            if let Some(extra) = extra
                && extra.items != items
            {
                let written = extra.items;
                return Err(Error::DataLoss(format!(
                    "table `{name}` has {items} items, but had {written} when it was written"
                )));
            }
            let Counts { inserts, samples, deletes, num_deleted_episodes, num_unique_samples } = record.counts;
            if let Some(table) = &mut table {
                table.restore_counters(inserts, samples, deletes, num_deleted_episodes, num_unique_samples);
                if let Some(largest) = extra.and_then(|extra| extra.largest_priority) {
                    table.restore_largest_priority(largest);
                }
            }
            let known = extra.map_or_else(|| Ok(published_room::Tally::default()), TableExtra::known_tally);
            // Without it, the limiter of the cluster misses a part; without the table, the shard misses all.
            let tally = known.unwrap_or_else(|error| {
                tracing::warn!(table = name, "table `{name}` is restored without the counts of its cluster: {error}");
                published_room::Tally::default()
            });
            Ok(ReadTable { record, items, tally, table })
        };
        self.targets.into_iter().map(finish).collect()
    }
}

/// Whether items that fitted the saved table may not fit the new one.
fn is_changed(config: &TableConfig, saved: &TableConfig) -> bool {
    let structure = |config: &TableConfig| config.signature.as_ref().map(|signature| signature.structure.clone());
    structure(config) != structure(saved) || config.max_bytes != saved.max_bytes
}
