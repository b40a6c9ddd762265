//! From the checkpoints in a folder to the tables of a server.

use super::CheckpointOptions;
use super::disk::Disk;
use super::folder::checkpoints;
use super::load::{ReadTable, read_checkpoint};
use super::table::{TableRecord, are_compatible};
use crate::table_handle::TableHandle;
use reverb_core::{Error, Result, TableConfig};
use std::path::{Path, PathBuf};

/// What is loaded, and how.
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    /// This checkpoint, and no other.
    pub path: Option<PathBuf>,
    /// These tables only: their names in the checkpoint and on the server. `None` for all, under their own names.
    pub tables: Option<Vec<(String, String)>>,
    /// Whether selectors, sizes and limiter stay as they are defined on the server.
    pub keep_definitions: bool,
}

/// See [`super::Checkpointer::restore`].
pub fn restore(
    disk: &dyn Disk,
    options: &CheckpointOptions,
    tables: &[TableHandle],
    limit_bytes: u64,
) -> Result<Option<PathBuf>> {
    let load = |path: &Path| load_into(disk, path, &options.load, tables, limit_bytes);
    if let Some(path) = &options.load.path {
        return load(path).map(|()| Some(path.clone()));
    }
    let mut damaged = Vec::new();
    for entry in checkpoints(disk, &options.root)? {
        let path = options.root.join(&entry.name);
        match load(&path) {
            Ok(()) => {
                if !damaged.is_empty() {
                    tracing::warn!(
                        "loaded checkpoint {}, because newer ones are damaged (they are kept): {}",
                        path.display(),
                        damaged.join("; ")
                    );
                }
                return Ok(Some(path));
            }
            Err(Error::DataLoss(reason)) => damaged.push(format!("{}: {reason}", path.display())),
            Err(error) => return Err(in_checkpoint(&path, error)),
        }
    }
    if !damaged.is_empty() {
        return Err(Error::DataLoss(format!("no checkpoint can be loaded: {}", damaged.join("; "))));
    }
    let Some(path) = &options.fallback else { return Ok(None) };
    match load(path) {
        Ok(()) => Ok(Some(path.clone())),
        // As in the reference the server then starts with empty tables; but it says so.
        Err(Error::InvalidArgument(reason)) if reason.starts_with("Load called") => {
            tracing::warn!("fallback_checkpoint_path {} is no checkpoint; the tables are empty", path.display());
            Ok(None)
        }
        Err(error) => Err(in_checkpoint(path, error)),
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

/// Loads one checkpoint; the tables change when all of it was read and found good.
fn load_into(
    disk: &dyn Disk,
    path: &Path,
    options: &LoadOptions,
    tables: &[TableHandle],
    limit_bytes: u64,
) -> Result<()> {
    let mut differences = Vec::new();
    let mut found = Vec::new();
    // Tables that may have been within other limits.
    let mut limited = Vec::new();
    let mut choose = |record: &TableRecord| {
        let Some(name) = options.target_name(&record.config.name) else { return Ok(None) };
        found.push(record.config.name.clone());
        let handle = find(tables, name)?;
        let here = handle.with_table(|table| table.config().clone());
        if options.keep_definitions || (record.config.max_bytes.is_none() && here.max_bytes.is_some()) {
            limited.push(record.config.name.clone());
        }
        merge(record, here, options.keep_definitions, &mut differences).map(Some)
    };
    let restored = read_checkpoint(disk, path, limit_bytes, &mut choose)?;
    if let Some((missing, _)) = options.tables.iter().flatten().find(|(name, _)| !found.contains(name)) {
        return Err(Error::invalid(format!(
            "checkpoint {} has no table '{missing}'; it has: {}",
            path.display(),
            if found.is_empty() { "none of those asked for".into() } else { found.join(", ") }
        )));
    }
    if !differences.is_empty() {
        tracing::warn!("checkpoint {}: {}", path.display(), differences.join("; "));
    }
    for ReadTable { record, table, .. } in restored {
        let saved_name = &record.config.name;
        let (Some(name), Some(mut table)) = (options.target_name(saved_name), table) else { continue };
        if limited.contains(saved_name) {
            table.evict_to_limits(&mut Vec::new());
        }
        find(tables, name)?.restore(table);
    }
    Ok(())
}

impl LoadOptions {
    /// The name on the server of a table in the checkpoint; `None` if it is not wanted.
    fn target_name<'a>(&'a self, saved: &'a str) -> Option<&'a str> {
        match &self.tables {
            None => Some(saved),
            Some(tables) => tables.iter().find(|(from, _)| from == saved).map(|(_, to)| to.as_str()),
        }
    }
}

fn find<'a>(tables: &'a [TableHandle], name: &str) -> Result<&'a TableHandle> {
    tables.iter().find(|table| table.name() == name).ok_or_else(|| {
        let names: Vec<_> = tables.iter().map(|table| format!("'{}'", table.name())).collect();
        Error::invalid(format!(
            "Trying to load table '{name}' but table was not found in provided list of tables. Available tables: [{}]",
            names.join(", ")
        ))
    })
}

/// What the restored table is made of: the checkpoint's definition, or, if asked for, the server's.
fn merge(
    record: &TableRecord,
    here: TableConfig,
    keep_here: bool,
    differences: &mut Vec<String>,
) -> Result<TableConfig> {
    let saved = &record.config;
    let signature = match (&saved.signature, &here.signature) {
        (Some(saved), Some(own)) if !are_compatible(saved, own) => {
            let text = |signature: &reverb_core::Signature| {
                signature.specs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            };
            return Err(Error::SignatureMismatch(format!(
                "table `{}` has another signature in the checkpoint: {}; here: {}",
                here.name,
                text(saved),
                text(own)
            )));
        }
        (Some(saved), Some(_)) if !keep_here => Some(saved.clone()),
        (_, Some(own)) => Some(own.clone()),
        (saved, None) => saved.clone(),
    };
    let (there_text, here_text) = (describe(saved), describe(&here));
    if there_text != here_text {
        let used = if keep_here { "the server's" } else { "the checkpoint's" };
        differences.push(format!(
            "table `{}` was saved with {there_text}, and is defined with {here_text}; {used} are used",
            here.name
        ));
    }
    if keep_here {
        return Ok(TableConfig { signature, ..here });
    }
    Ok(TableConfig {
        name: here.name,
        signature,
        // The reference's checkpoints do not know these.
        max_bytes: saved.max_bytes.or(here.max_bytes),
        seed: saved.seed.or(here.seed),
        ..saved.clone()
    })
}

fn describe(config: &TableConfig) -> String {
    let limiter = &config.rate_limiter;
    format!(
        "sampler={:?}, remover={:?}, max_size={}, max_times_sampled={}, rate_limiter=({}, {}, {:?}, {:?})",
        config.sampler,
        config.remover,
        config.max_size,
        config.max_times_sampled.max(0),
        limiter.samples_per_insert,
        limiter.min_size_to_sample,
        limiter.min_diff,
        limiter.max_diff
    )
}
