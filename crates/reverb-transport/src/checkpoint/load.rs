//! Reads a checkpoint, ours or the reference's, into tables that nobody has seen yet.

use super::disk::{Disk, storage_error};
use super::folder::{CHUNKS, DONE, ITEMS, TABLES, files_of};
use super::item::{Chunks, ItemMessage};
use super::progress::Progress;
use super::record::{Tallied, Tally};
use super::record_stream::{Finished, Records};
use super::sidecar::{MAX_BYTES, Runs, SIDECAR, Sidecar};
use super::table::{Counts, TableRecord, decode_table};
use crate::reference_chunk::ChunkDecoder;
use reverb_core::{EpisodeIds, Error, NewItem, Result, Table, TableConfig};
use std::io::{self, Read};
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;

/// What a record has besides the data of a chunk, and what Snappy adds to data that it cannot compress.
const RECORD_SLACK: u64 = 1 << 20;

/// Chunks for which room is made before they have come.
const MAX_RESERVED: u64 = 1 << 22;
/// Threads that read and decode chunks: more would wait for the file, which one reads at a time.
const MAX_DECODERS: usize = 4;
/// Chunks of fewer bytes are decoded at once: of small ones a batch has many, and is not to wait for each.
const PACKED_BYTES: usize = 64 << 10;

/// Chooses the tables to be made, and what of: `None` passes over a table and its items.
pub type Choose<'a> = &'a mut dyn FnMut(&TableRecord) -> Result<Option<TableConfig>>;

/// A table of a checkpoint that was read.
#[derive(Debug)]
pub struct ReadTable {
    /// What its record says, made whole by the file beside.
    pub record: TableRecord,
    /// Items in the checkpoint.
    pub items: u64,
    /// The table, unless it was passed over.
    pub table: Option<Table>,
}

/// Reads the checkpoint at `path`, refusing chunks of more than `limit_bytes`.
///
/// # Errors
/// [`Error::DataLoss`] if it is damaged or not complete, with the file and what is wrong there; [`Error::Storage`] if it
/// could not be read; those of `choose`; [`Error::InvalidPriority`] and [`Error::SignatureMismatch`] for items that do
/// not fit a table that `choose` has changed.
pub fn read_checkpoint(disk: &dyn Disk, path: &Path, limit_bytes: u64, choose: Choose<'_>) -> Result<Vec<ReadTable>> {
    let files = files_of(disk, path)?.unwrap_or_default();
    let has = |name: &str| files.iter().any(|file| file == name);
    if !has(DONE) {
        return Err(Error::invalid(format!("Load called with invalid checkpoint path: {}", path.display())));
    }
    let sidecar = if has(SIDECAR) { Some(read_sidecar(disk, path)?) } else { None };
    let mut loader = Loader::new(disk, path, limit_bytes, sidecar);
    loader.read_tables(choose)?;
    loader.read_chunks()?;
    // The reference writes none where there are no items, or its oldest versions elsewhere.
    if has(ITEMS) || loader.sidecar.is_some() {
        loader.read_items()?;
    } else {
        loader.read_old_items()?;
    }
    loader.finish()
}

/// Reads the tables of a checkpoint without their items, and the file beside, if there is one.
///
/// # Errors
/// As [`read_checkpoint`], for what it reads.
pub fn read_tables(disk: &dyn Disk, path: &Path) -> Result<(Vec<TableRecord>, Option<Sidecar>)> {
    let files = files_of(disk, path)?.unwrap_or_default();
    let sidecar = if files.iter().any(|file| file == SIDECAR) { Some(read_sidecar(disk, path)?) } else { None };
    let mut loader = Loader::new(disk, path, MAX_BYTES, sidecar);
    loader.read_tables(&mut |_| Ok(None))?;
    Ok((loader.targets.into_iter().map(|target| target.record).collect(), loader.sidecar))
}

/// The file beside those of the reference.
pub fn read_sidecar(disk: &dyn Disk, folder: &Path) -> Result<Sidecar> {
    let path = folder.join(SIDECAR);
    let mut bytes = Vec::new();
    let error = |error: io::Error| storage_error("cannot read", &path, &error);
    disk.open(&path).map_err(error)?.take(MAX_BYTES).read_to_end(&mut bytes).map_err(error)?;
    Sidecar::from_bytes(&bytes)
}

/// Compares a file with the size and hash that were written.
///
/// # Errors
/// [`Error::DataLoss`], or [`Error::Storage`].
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
        Some(sum) if sum.size != size => {
            Err(Error::DataLoss(format!("{name} has {size} bytes, and {} when it was written", sum.size)))
        }
        Some(_) => Err(Error::DataLoss(format!("{name} does not have the hash that was written"))),
        None => Err(Error::DataLoss(format!("{SIDECAR} does not know {name}"))),
    }
}

fn open(disk: &dyn Disk, path: &Path) -> Result<Box<dyn Read + Send>> {
    disk.open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Error::DataLoss(format!("{} is missing", path.file_name().unwrap_or_default().to_string_lossy()))
        }
        _ => storage_error("cannot open", path, &error),
    })
}

/// A table in the making.
struct Target {
    record: TableRecord,
    /// `None` if it is passed over.
    table: Option<Table>,
    /// Whether the configuration is another one than was saved, which items may not fit.
    is_changed: bool,
    items: u64,
}

impl Target {
    /// Puts an item into the table, if it is wanted.
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

/// Threads that read and decode chunks: most of the time is the system's, which gives their memory page by page.
fn num_decoders() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get).min(MAX_DECODERS)
}

struct Loader<'a> {
    disk: &'a dyn Disk,
    path: &'a Path,
    limit_bytes: u64,
    sidecar: Option<Sidecar>,
    /// Whether a file was a zlib stream: then one without any byte was cut off.
    is_compressed: bool,
    targets: Vec<Target>,
    chunks: Chunks,
}

impl<'a> Loader<'a> {
    fn new(disk: &'a dyn Disk, path: &'a Path, limit_bytes: u64, sidecar: Option<Sidecar>) -> Self {
        Self { disk, path, limit_bytes, sidecar, is_compressed: false, targets: Vec::new(), chunks: Chunks::default() }
    }

    /// Reads a file with `read`, then checks its hash.
    fn read_file(&mut self, name: &str, read: impl FnOnce(&mut Self, Records) -> Result<Finished>) -> Result<()> {
        let path = self.path.join(name);
        let file = open(self.disk, &path)?;
        let limit = self.limit_bytes.saturating_add(self.limit_bytes / 64).saturating_add(RECORD_SLACK);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let is_stored = self.sidecar.as_ref().is_some_and(|sidecar| sidecar.compression == 0);
        let finished = Records::new(file, limit, is_stored).and_then(|records| read(self, records));
        let finished = finished.and_then(|finished| {
            if self.is_compressed && !finished.is_compressed {
                return Err(Error::DataLoss("the zlib stream is missing".into()));
            }
            self.is_compressed |= finished.is_compressed;
            self.sidecar.as_ref().map_or(Ok(()), |sidecar| check_sum(&finished.tally, name, sidecar))
        });
        finished.map_err(|error| match error {
            Error::DataLoss(reason) if reason.contains(name) => Error::DataLoss(reason),
            Error::DataLoss(reason) => Error::DataLoss(format!("{name}: {reason}")),
            Error::Storage(reason) => Error::Storage(format!("cannot read {}: {reason}", path.display())),
            error => error,
        })
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
            return Err(Error::DataLoss(format!("table `{name}` is there twice")));
        }
        if let Some(sidecar) = &self.sidecar {
            let extra = sidecar.table(name);
            let extra = extra.ok_or_else(|| Error::DataLoss(format!("{SIDECAR} does not know table `{name}`")))?;
            record.config.max_size = extra.max_size;
            record.config.max_bytes = extra.max_bytes;
            record.config.seed = extra.seed;
            record.config.validate()?;
        }
        let chosen = choose(&record)?;
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
        // As many as were written; but what the file beside says is no reason to allocate without bound.
        let announced = self.sidecar.as_ref().map_or(0, |sidecar| sidecar.chunks);
        self.chunks.reserve(announced.min(MAX_RESERVED) as usize);
        let mut progress = Progress::new("loading chunks of", self.path, 0);
        let mut count = 0;
        let decoder = || {
            let mut decoder = ChunkDecoder::new(self.limit_bytes).leave_packed(PACKED_BYTES);
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
            Some(sidecar) if sidecar.chunks != count => {
                Err(Error::DataLoss(format!("{CHUNKS} has {count} chunks, and {} when it was written", sidecar.chunks)))
            }
            Some(_) => Ok(()),
            None => {
                self.chunks.drop_twins();
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
        let total = self.sidecar.as_ref().map_or(0, |s| s.tables.iter().map(|table| table.items).sum());
        self.reserve_items();
        let mut progress = Progress::new("loading", self.path, total);
        let chunks = std::mem::take(&mut self.chunks);
        let names: Vec<_> = self.targets.iter().map(|target| target.record.config.name.clone()).collect();
        // One, since the order of chunks helps it.
        let mut finder = chunks.finder();
        let decode = |_, record: &[u8]| {
            let message = ItemMessage::read(record)?;
            let target = names.iter().position(|name| name == message.table);
            let target = target.ok_or_else(|| Error::DataLoss(no_table(message.table)))?;
            // Also for tables that are passed over: what cannot be loaded whole is damaged.
            Ok((target, message.resolve(&mut finder)?))
        };
        self.read_file(ITEMS, |loader, records| {
            records.for_each(vec![decode], |(target, (item, inserted_at))| {
                progress.advance();
                loader.targets[target].add_item(item, inserted_at, loader.sidecar.is_none())
            })
        })
    }

    /// Makes room for as many items as were written, within bounds.
    fn reserve_items(&mut self) {
        let Some(sidecar) = &self.sidecar else { return };
        for Target { record, table, .. } in &mut self.targets {
            if let (Some(table), Some(extra)) = (table, sidecar.table(&record.config.name)) {
                table.reserve(extra.items.min(MAX_RESERVED) as usize);
            }
        }
    }

    /// Of old checkpoints, where items lie in the records of their tables.
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
            return Err(Error::DataLoss(format!("{TABLES} has {there} tables, and {written} when it was written")));
        }
        let finish = |target: Target| {
            let Target { record, mut table, items, .. } = target;
            let name = &record.config.name;
            if let Some(extra) = self.sidecar.as_ref().and_then(|sidecar| sidecar.table(name))
                && extra.items != items
            {
                let written = extra.items;
                return Err(Error::DataLoss(format!(
                    "table `{name}` has {items} items, and {written} when it was written"
                )));
            }
            let Counts { inserts, samples, deletes, num_deleted_episodes, num_unique_samples } = record.counts;
            if let Some(table) = &mut table {
                table.restore_counters(inserts, samples, deletes, num_deleted_episodes, num_unique_samples);
            }
            Ok(ReadTable { record, items, table })
        };
        self.targets.into_iter().map(finish).collect()
    }
}

/// Whether items that were in the one table may not fit the other.
fn is_changed(config: &TableConfig, saved: &TableConfig) -> bool {
    let structure = |config: &TableConfig| config.signature.as_ref().map(|signature| signature.structure.clone());
    structure(config) != structure(saved) || config.max_bytes != saved.max_bytes
}
