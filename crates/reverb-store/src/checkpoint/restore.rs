//! Chooses a checkpoint in a folder, and restores the tables of a server from it or says what that would do.

use super::definition::{Merged, OptionTexts};
use super::folder::{files_of, is_complete, load_newest};
use super::load::{ReadTable, SizeLimit, check_complete, read_checkpoint, read_tables};
use super::options::{CheckpointOptions, Definitions, LoadOptions};
use super::status::StatusBoard;
use crate::disk::{Disk, RealDisk};
use crate::log::Position;
use reverb_core::published_room::Tally;
use reverb_core::{Error, Result, Table, TableConfig};
use reverb_formats::table::TableRecord;
use reverb_service::TableHandle;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// What a restore would do.
#[derive(Debug)]
pub struct Plan {
    /// The checkpoint that would be loaded. `None` if there is none.
    pub path: Option<PathBuf>,
    /// Newer checkpoints that are damaged, each with the damage.
    pub damaged: Vec<String>,
    /// The tables of the checkpoint.
    pub tables: Vec<PlannedTable>,
}

/// What a restore would do with a table of a checkpoint.
#[derive(Debug)]
pub struct PlannedTable {
    /// Its name in the checkpoint.
    pub saved_name: String,
    /// Its name on the server. `None` if it would not be loaded.
    pub name: Option<String>,
    /// Number of items. `None` if it is not known without reading all items.
    pub items: Option<u64>,
    /// The options that it would have. `None` if the server has no such table.
    pub options: Option<Vec<OptionTexts>>,
}

/// A checkpoint that was loaded.
#[derive(Debug)]
pub struct Loaded {
    /// Where it is.
    pub path: PathBuf,
    /// Its tables that are tables of the server.
    pub tables: Vec<LoadedTable>,
    /// Where the log of later changes begins, if the checkpoint names one.
    pub log: Option<Position>,
}

/// A table of a checkpoint that was loaded.
#[derive(Debug)]
pub struct LoadedTable {
    /// Which table of the server it is.
    pub place: usize,
    /// The table.
    pub table: Table,
    /// What it knew of the counts of all shards, if it was one of a shard.
    pub tally: Tally,
    /// Whether it was within other limits, so that items may no longer fit.
    pub is_limited: bool,
    /// See [`super::sidecar::TableExtra::defined`].
    pub defined: Option<BTreeMap<String, String>>,
}

/// Loads the checkpoint that the options select, for tables with these definitions. `None` if there is none. See
/// [`super::checkpointer::Checkpointer::restore`].
pub fn load(
    disk: &dyn Disk,
    options: &CheckpointOptions,
    tables: &[TableConfig],
    limit_bytes: u64,
    board: &StatusBoard,
) -> Result<Option<Loaded>> {
    let is_logged = options.durability.is_some();
    let load = |path: &Path| {
        board.loading(disk, path, |disk| load_one(disk, path, (&options.load, is_logged), tables, limit_bytes))
    };
    let (found, damaged) = select(disk, options, load)?;
    if let (Some((path, _)), false) = (&found, damaged.is_empty()) {
        tracing::warn!(
            "loaded checkpoint {}, because newer ones are damaged (they are kept): {}",
            path.display(),
            damaged.join("; ")
        );
    }
    if let (None, Some(path)) = (&found, &options.fallback) {
        // Like the reference, the server starts with empty tables then. Unlike the reference, it logs a warning.
        tracing::warn!("fallback_checkpoint_path {} holds no checkpoint; the tables are empty", path.display());
    }
    Ok(found.map(|(_, loaded)| loaded))
}

/// Installs the tables of a checkpoint that no log follows.
pub fn install(loaded: Vec<LoadedTable>, tables: &[TableHandle]) {
    for LoadedTable { place, mut table, tally, is_limited, .. } in loaded {
        if is_limited {
            table.evict_to_limits(&mut Vec::new());
        }
        tables[place].restore(table, &tally);
    }
}

impl Plan {
    /// Says what a restore with these options would do, without reading items. Nothing is changed.
    ///
    /// # Errors
    /// Those of [`super::checkpointer::Checkpointer::restore`] that show without items. A table that the server lacks
    /// is not an error here.
    pub fn new(options: &CheckpointOptions, tables: &[TableHandle]) -> Result<Self> {
        let plan = |path: &Path| plan_tables(&RealDisk, path, &options.load, tables);
        let (found, damaged) = select(&RealDisk, options, plan)?;
        let (path, tables) = found.unzip();
        Ok(Self { path, damaged, tables: tables.unwrap_or_default() })
    }
}

/// Loads the checkpoint that the options select by `load`. Returns its path and what `load` has returned, or `None` if
/// there is no checkpoint, and what was damaged before.
#[expect(clippy::type_complexity, reason = "a path with what was made of it, and texts")]
fn select<T>(
    disk: &dyn Disk,
    options: &CheckpointOptions,
    load: impl Fn(&Path) -> Result<T>,
) -> Result<(Option<(PathBuf, T)>, Vec<String>)> {
    let load_certain = |path: &Path| {
        load(path).map(|loaded| (Some((path.into(), loaded)), Vec::new())).map_err(|error| in_checkpoint(path, error))
    };
    if let Some(path) = &options.load.path {
        return load_certain(path);
    }
    let load_any = |path: &Path| {
        load(path).map_err(|error| match error {
            Error::DataLoss(_) => error,
            error => in_checkpoint(path, error),
        })
    };
    let (found, damaged) = load_newest(disk, &options.root, load_any)?;
    if found.is_some() {
        return Ok((found, damaged));
    }
    match &options.fallback {
        Some(path) if is_complete(&files_of(disk, path)?.unwrap_or_default()) => load_certain(path),
        _ => Ok((None, damaged)),
    }
}

fn in_checkpoint(path: &Path, error: Error) -> Error {
    let place = path.display();
    match error {
        Error::DataLoss(reason) => Error::DataLoss(format!("checkpoint {place}: {reason}")),
        Error::MessageTooLarge { what, option, size_bytes, limit_bytes } => {
            Error::MessageTooLarge { what: format!("{what} of checkpoint {place}"), option, size_bytes, limit_bytes }
        }
        error => error,
    }
}

/// Loads one checkpoint. Tables whose later changes are in a log keep the saved limits, within which these were made.
fn load_one(
    disk: &dyn Disk,
    path: &Path,
    (options, is_logged): (&LoadOptions, bool),
    tables: &[TableConfig],
    limit_bytes: u64,
) -> Result<Loaded> {
    let mut differences = Vec::new();
    let mut found = Vec::new();
    let mut left_out = Vec::new();
    // Tables that were within other limits.
    let mut limited = Vec::new();
    let mut definitions = HashMap::new();
    let mut choose = |record: &TableRecord, defined: Option<&BTreeMap<String, String>>| {
        let Some(name) = options.target_name(&record.config.name) else {
            left_out.push(record.config.name.clone());
            return Ok(None);
        };
        found.push(record.config.name.clone());
        definitions.insert(record.config.name.clone(), defined.cloned());
        let merged = Merged::new(&record.config, &tables[find(tables, name)?], defined, options.definitions)?;
        differences.extend(merged.difference(options.definitions));
        let (saved, used) = (&record.config, &merged.config);
        if (used.max_size, used.max_bytes) != (saved.max_size, saved.max_bytes) {
            limited.push(record.config.name.clone());
        }
        Ok(Some(if is_logged { with_limits_of(saved, merged.config) } else { merged.config }))
    };
    let (read, log) = read_checkpoint(disk, path, SizeLimit::Foreign(limit_bytes), &mut choose)?;
    options.check_found(path, &found)?;
    if options.definitions == Definitions::Edited && !left_out.is_empty() {
        // They are not in the next checkpoint.
        differences.push(format!("not loaded, because `tables` leaves them out: {}", left_out.join(", ")));
    }
    if !differences.is_empty() {
        tracing::warn!("checkpoint {}: {}", path.display(), differences.join("; "));
    }
    let mut loaded = Vec::new();
    for ReadTable { record, table, tally, .. } in read {
        let saved_name = &record.config.name;
        let (Some(name), Some(table)) = (options.target_name(saved_name), table) else { continue };
        let (place, is_limited) = (find(tables, name)?, limited.contains(saved_name));
        let defined = definitions.remove(saved_name).flatten();
        loaded.push(LoadedTable { place, table, tally, is_limited, defined });
    }
    Ok(Loaded { path: path.into(), tables: loaded, log })
}

fn with_limits_of(saved: &TableConfig, config: TableConfig) -> TableConfig {
    let TableConfig { max_size, max_bytes, max_times_sampled, ref rate_limiter, .. } = *saved;
    TableConfig { max_size, max_bytes, max_times_sampled, rate_limiter: rate_limiter.clone(), ..config }
}

/// Returns which table of the server has a name.
///
/// # Errors
/// [`Error::InvalidArgument`] with all names.
pub fn find(tables: &[TableConfig], name: &str) -> Result<usize> {
    tables.iter().position(|table| table.name == name).ok_or_else(|| {
        let names: Vec<_> = tables.iter().map(|table| format!("'{}'", table.name)).collect();
        Error::invalid(format!(
            "Trying to load table '{name}' but table was not found in provided list of tables. Available tables: [{}]",
            names.join(", ")
        ))
    })
}

/// Says what [`load_one`] would do with each table of a checkpoint.
fn plan_tables(
    disk: &dyn Disk,
    path: &Path,
    options: &LoadOptions,
    tables: &[TableHandle],
) -> Result<Vec<PlannedTable>> {
    check_complete(disk, path)?;
    let (records, sidecar) = read_tables(disk, path)?;
    let mut found = Vec::new();
    let planned = records.into_iter().map(|record| {
        let saved_name = record.config.name.clone();
        let extra = sidecar.as_ref().and_then(|sidecar| sidecar.table(&saved_name));
        let name = options.target_name(&saved_name).map(str::to_owned);
        found.extend(name.is_some().then(|| saved_name.clone()));
        let handle = name.as_ref().and_then(|name| tables.iter().find(|table| table.name() == name));
        let options = handle.map(|handle| {
            let here = handle.with_table(|table| table.config().clone());
            let defined = extra.and_then(|extra| extra.defined.as_ref());
            Merged::new(&record.config, &here, defined, options.definitions).map(|merged| merged.options)
        });
        Ok(PlannedTable { saved_name, name, items: extra.map(|extra| extra.items), options: options.transpose()? })
    });
    let planned = planned.collect::<Result<Vec<_>>>()?;
    options.check_found(path, &found)?;
    Ok(planned)
}
