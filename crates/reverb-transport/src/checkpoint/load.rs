//! Reads a checkpoint, ours or the reference's, into tables that nobody has seen yet.

use super::disk::{Disk, storage_error};
use super::folder::{CHUNKS, DONE, ITEMS, TABLES, files_of};
use super::item::{Chunks, ItemMessage};
use super::progress::Progress;
use super::record::{Tallied, Tally};
use super::record_stream::{Finished, for_each_decoded, for_each_record};
use super::sidecar::{MAX_BYTES, Runs, SIDECAR, Sidecar};
use super::table::{Counts, TableRecord, decode_table};
use crate::reference_chunk::ChunkDecoder;
use reverb_core::{EpisodeIds, Error, Result, Table, TableConfig};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

/// What a record has besides the data of a chunk, and what Snappy adds to data that it cannot compress.
const RECORD_SLACK: u64 = 1 << 20;

/// Chunks for which room is made before they have come.
const MAX_RESERVED: u64 = 1 << 22;

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
    let (size, blake3) = tally.result();
    match sidecar.files.get(name) {
        Some(sum) if (sum.size, &sum.blake3) == (size, &blake3) => Ok(()),
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
    fn read_file(
        &mut self,
        name: &str,
        read: impl FnOnce(&mut Self, Box<dyn Read + Send>, usize) -> Result<Finished>,
    ) -> Result<()> {
        let path = self.path.join(name);
        let file = open(self.disk, &path)?;
        let limit = self.limit_bytes.saturating_add(self.limit_bytes / 64).saturating_add(RECORD_SLACK);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let finished = read(self, file, limit).and_then(|finished| {
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

    /// Calls `visit` with each record of a file, then checks the file's hash.
    fn for_each_record(&mut self, name: &str, mut visit: impl FnMut(&mut Self, &[u8]) -> Result<()>) -> Result<()> {
        self.read_file(name, |loader, file, limit| for_each_record(file, limit, |record| visit(loader, record)))
    }

    fn read_tables(&mut self, choose: Choose<'_>) -> Result<()> {
        self.for_each_record(TABLES, |loader, record| loader.add_table(record, choose))
    }

    fn add_table(&mut self, record: &[u8], choose: Choose<'_>) -> Result<()> {
        let mut record = decode_table(record)?;
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
        let mut decoder = ChunkDecoder::new(self.limit_bytes);
        let mut runs = Runs::new(self.sidecar.as_ref().map(|sidecar| sidecar.episode_runs.clone()).unwrap_or_default());
        // As many as were written; but what the file beside says is no reason to allocate without bound.
        let announced = self.sidecar.as_ref().map_or(0, |sidecar| sidecar.chunks);
        self.chunks.reserve(announced.min(MAX_RESERVED) as usize);
        let mut progress = Progress::new("loading chunks of", self.path, 0);
        let mut count = 0;
        let decode = |record: &[u8]| {
            let per_row = runs.advance();
            let episodes = |id| if per_row { EpisodeIds::PerRow(id) } else { EpisodeIds::Same(id) };
            decoder.decode(record, episodes).map(Arc::new)
        };
        self.read_file(CHUNKS, |loader, file, limit| {
            for_each_decoded(file, limit, decode, |chunk| {
                loader.chunks.entry(chunk.key).or_insert(chunk);
                count += 1;
                progress.advance();
                Ok(())
            })
        })?;
        match &self.sidecar {
            Some(sidecar) if sidecar.chunks != count => {
                Err(Error::DataLoss(format!("{CHUNKS} has {count} chunks, and {} when it was written", sidecar.chunks)))
            }
            _ => Ok(()),
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
        let mut progress = Progress::new("loading", self.path, total);
        self.for_each_record(ITEMS, |loader, record| {
            progress.advance();
            loader.add_item(record, None)
        })
    }

    fn read_old_items(&mut self) -> Result<()> {
        let records: Vec<_> = self.targets.iter().map(|target| target.record.clone()).collect();
        for record in records {
            record.items().try_for_each(|item| self.add_item(item, Some(&record.config.name)))?;
        }
        Ok(())
    }

    /// Puts an item into its table. In old checkpoints that is the one in whose record it lies.
    fn add_item(&mut self, message: &[u8], table: Option<&str>) -> Result<()> {
        let message = ItemMessage::read(message)?;
        let name = table.unwrap_or(message.table);
        // Looked up by hand, so that the chunks can be borrowed too.
        let target = self.targets.iter_mut().find(|target| target.record.config.name == name);
        let target =
            target.ok_or_else(|| Error::DataLoss(format!("an item is in table `{name}`, which is missing")))?;
        target.items += 1;
        // Also for tables that are passed over: what cannot be loaded whole is damaged.
        let (item, inserted_at) = message.resolve(&self.chunks)?;
        let Some(table) = &mut target.table else { return Ok(()) };
        if self.sidecar.is_none() && table.len() as u64 >= target.record.config.max_size {
            return Err(Error::DataLoss(format!(
                "InsertCheckpointItem called on already full Table. table size: {}, maximum size: {}",
                table.len(),
                target.record.config.max_size
            )));
        }
        if target.is_changed {
            table.check_item(&item)?;
        }
        table.restore_item(item, inserted_at).map_err(|error| match error {
            Error::InvalidArgument(reason) => Error::DataLoss(reason),
            error => error,
        })
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
