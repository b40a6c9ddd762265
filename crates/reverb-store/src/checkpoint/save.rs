//! Writes a checkpoint: the state of all tables at one moment, in the files of the reference and a sidecar.

use super::folder::{CHUNKS, DONE, ITEMS, TABLES};
use super::progress::Progress;
use super::record_file::RecordFile;
use super::sidecar::{Runs, SIDECAR, ShardCounts, Sidecar, TableExtra};
use crate::disk::{Disk, storage_error};
use crate::log::Position;
use reverb_core::{Chunk, EpisodeIds, ItemView, Result, TableSnapshot, random_key};
use reverb_formats::chunk::ChunkEncoder;
use reverb_formats::item::ItemEncoder;
use reverb_formats::table::encode_table;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

/// Writes all files of a checkpoint to the new folder `path`, and returns when they are on disk. `level` is the
/// compression level of zlib. `defined` has what [`TableExtra::defined`] states, by the names of tables, and `log` where the
/// log of later changes begins.
///
/// # Errors
/// [`reverb_core::Error::Storage`], naming the file.
pub fn write_checkpoint(
    disk: &dyn Disk,
    path: &Path,
    snapshots: Vec<TableSnapshot>,
    level: u32,
    defined: &HashMap<String, BTreeMap<String, String>>,
    log: Option<Position>,
) -> Result<Sidecar> {
    disk.create_dir_all(path).map_err(|error| storage_error("cannot create", path, &error))?;
    let mut sidecar = Sidecar { log: log.map(Into::into), ..Sidecar::new(level) };
    write_tables(disk, path, &snapshots, &mut sidecar, defined)?;
    let mut content = ContentWriter::new(disk, path, level)?;
    let total = sidecar.tables.iter().map(|table| table.items).sum();
    let mut progress = Progress::new("saving", path, total);
    for snapshot in snapshots {
        let table = snapshot.config.name.clone();
        for item in snapshot.into_items() {
            content.write_item(&item, &table)?;
            progress.advance();
        }
    }
    content.finish(&mut sidecar)?;
    write_small(disk, &path.join(SIDECAR), &sidecar.to_bytes()?)?;
    write_small(disk, &path.join(DONE), &[])?;
    disk.sync_dir(path).map_err(|error| storage_error("cannot sync", path, &error))?;
    Ok(sidecar)
}

fn write_tables(
    disk: &dyn Disk,
    path: &Path,
    snapshots: &[TableSnapshot],
    sidecar: &mut Sidecar,
    defined: &HashMap<String, BTreeMap<String, String>>,
) -> Result<()> {
    let mut tables = RecordFile::create(disk, path, TABLES, sidecar.compression)?;
    for snapshot in snapshots {
        let config = &snapshot.config;
        let items = snapshot.num_items() as u64;
        tables.write(&encode_table(snapshot, items))?;
        sidecar.tables.push(TableExtra {
            name: config.name.clone(),
            max_size: config.max_size,
            max_bytes: config.max_bytes,
            seed: config.seed,
            items,
            largest_priority: snapshot.largest_priority,
            defined: defined.get(&config.name).cloned(),
            tally: snapshot.tally.incarnations().map(ShardCounts::from).collect(),
        });
    }
    tables.finish(sidecar)
}

/// Writes and syncs a small or empty file.
fn write_small(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<()> {
    let error = |error| storage_error("cannot write", path, &error);
    let mut file = disk.create(path).map_err(error)?;
    file.write_all(bytes).map_err(error)?;
    file.sync().map_err(error)
}

/// Writes items, and each chunk when the first item refers to it.
struct ContentWriter {
    items: RecordFile,
    chunks: RecordFile,
    names: ChunkNames,
    item_encoder: ItemEncoder,
    chunk_encoder: ChunkEncoder,
    record: Vec<u8>,
    /// Chunks that the current item is the first to refer to, and their keys in the checkpoint.
    fresh: Vec<(Arc<Chunk>, u64)>,
    num_chunks: u64,
    episode_runs: Vec<u64>,
}

impl ContentWriter {
    fn new(disk: &dyn Disk, folder: &Path, level: u32) -> Result<Self> {
        Ok(Self {
            items: RecordFile::create(disk, folder, ITEMS, level)?,
            chunks: RecordFile::create(disk, folder, CHUNKS, level)?,
            names: ChunkNames::default(),
            item_encoder: ItemEncoder::default(),
            chunk_encoder: ChunkEncoder::default(),
            record: Vec::new(),
            fresh: Vec::new(),
            num_chunks: 0,
            episode_runs: Vec::new(),
        })
    }

    fn write_item(&mut self, item: &ItemView, table: &str) -> Result<()> {
        self.record.clear();
        let (names, fresh) = (&mut self.names, &mut self.fresh);
        let name = |chunk: &Arc<Chunk>| {
            let (key, is_new) = names.name(chunk);
            if is_new {
                fresh.push((chunk.clone(), key));
            }
            key
        };
        self.item_encoder.encode(item, table, name, &mut self.record)?;
        self.items.write(&self.record)?;
        for (chunk, key) in self.fresh.drain(..) {
            self.record.clear();
            self.chunk_encoder.encode(&chunk, key, false, &mut self.record)?;
            self.chunks.write(&self.record)?;
            self.num_chunks += 1;
            Runs::push(&mut self.episode_runs, matches!(chunk.episodes, EpisodeIds::PerRow(_)));
        }
        Ok(())
    }

    fn finish(self, sidecar: &mut Sidecar) -> Result<()> {
        self.items.finish(sidecar)?;
        self.chunks.finish(sidecar)?;
        sidecar.chunks = self.num_chunks;
        sidecar.episode_runs = self.episode_runs;
        Ok(())
    }
}

/// The keys under which chunks are saved: their own keys, unless another chunk has the same. Writers choose keys, so
/// this is possible.
#[derive(Debug, Default)]
struct ChunkNames {
    by_key: HashMap<u64, usize, foldhash::fast::RandomState>,
    renamed: HashMap<usize, u64>,
}

impl ChunkNames {
    /// Returns the key of a chunk, and whether the chunk was not seen before.
    fn name(&mut self, chunk: &Arc<Chunk>) -> (u64, bool) {
        // The snapshots keep all chunks alive, so no two have the same address.
        let address = Arc::as_ptr(chunk) as usize;
        let known = *self.by_key.entry(chunk.key).or_insert(0);
        if known == 0 {
            self.by_key.insert(chunk.key, address);
            return (chunk.key, true);
        }
        if known == address {
            return (chunk.key, false);
        }
        if let Some(&key) = self.renamed.get(&address) {
            return (key, false);
        }
        let mut key = random_key();
        while self.by_key.contains_key(&key) {
            key = random_key();
        }
        self.by_key.insert(key, address);
        self.renamed.insert(address, key);
        (key, true)
    }
}
