//! Chooses a checkpoint in a folder and restores the tables of a server from it.

use super::folder::{checkpoints, files_of, is_complete};
use super::load::{ReadTable, SizeLimit, read_checkpoint};
use super::options::{CheckpointOptions, LoadOptions};
use super::status::StatusBoard;
use crate::disk::Disk;
use reverb_core::{Error, Result, Signature, TableConfig};
use reverb_formats::signature::are_compatible;
use reverb_formats::table::TableRecord;
use reverb_service::TableHandle;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// See [`super::checkpointer::Checkpointer::restore`].
pub fn restore(
    disk: &dyn Disk,
    options: &CheckpointOptions,
    tables: &[TableHandle],
    limit_bytes: u64,
    board: &StatusBoard,
) -> Result<Option<PathBuf>> {
    let load =
        |path: &Path| board.loading(disk, path, |disk| load_into(disk, path, &options.load, tables, limit_bytes));
    if let Some(path) = &options.load.path {
        return load(path).map(|()| Some(path.clone())).map_err(|error| in_checkpoint(path, error));
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
    if !is_complete(&files_of(disk, path)?.unwrap_or_default()) {
        // Like the reference, the server starts with empty tables then. Unlike the reference, it logs a warning.
        tracing::warn!("fallback_checkpoint_path {} holds no checkpoint; the tables are empty", path.display());
        return Ok(None);
    }
    load(path).map(|()| Some(path.clone())).map_err(|error| in_checkpoint(path, error))
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

/// Loads one checkpoint. The tables change only after all of it was read and verified.
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
    let restored = read_checkpoint(disk, path, SizeLimit::Foreign(limit_bytes), &mut choose)?;
    options.check_found(path, &found)?;
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

fn find<'a>(tables: &'a [TableHandle], name: &str) -> Result<&'a TableHandle> {
    tables.iter().find(|table| table.name() == name).ok_or_else(|| {
        let names: Vec<_> = tables.iter().map(|table| format!("'{}'", table.name())).collect();
        Error::invalid(format!(
            "Trying to load table '{name}' but table was not found in provided list of tables. Available tables: [{}]",
            names.join(", ")
        ))
    })
}

/// Returns the definition of a restored table: that of the checkpoint or, if `keep_here`, that of the server.
fn merge(
    record: &TableRecord,
    here: TableConfig,
    keep_here: bool,
    differences: &mut Vec<String>,
) -> Result<TableConfig> {
    let saved = &record.config;
    let signature = merge_signatures(saved, &here, keep_here)?;
    let (there_text, here_text) = (describe(saved), describe(&here));
    if there_text != here_text {
        let used = if keep_here { "server" } else { "checkpoint" };
        let hint = if keep_here { "" } else { "; override_definitions=True keeps yours" };
        differences.push(format!(
            "table `{}` was saved with {there_text} but is defined with {here_text}; those of the {used} are used{hint}",
            here.name
        ));
    }
    if keep_here {
        return Ok(TableConfig { signature, ..here });
    }
    Ok(TableConfig {
        name: here.name,
        signature,
        // Checkpoints of the reference do not have these.
        max_bytes: saved.max_bytes.or(here.max_bytes),
        seed: saved.seed.or(here.seed),
        ..saved.clone()
    })
}

fn merge_signatures(saved: &TableConfig, here: &TableConfig, keep_here: bool) -> Result<Option<Arc<Signature>>> {
    Ok(match (&saved.signature, &here.signature) {
        (Some(saved), Some(own)) if !are_compatible(saved, own) => {
            let text =
                |signature: &Signature| signature.specs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            return Err(Error::SignatureMismatch(format!(
                "table `{}` has another signature in the checkpoint ({}) than on the server ({})",
                here.name,
                text(saved),
                text(own)
            )));
        }
        (Some(saved), Some(_)) if !keep_here => Some(saved.clone()),
        (_, Some(own)) => Some(own.clone()),
        (saved, None) => saved.clone(),
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
