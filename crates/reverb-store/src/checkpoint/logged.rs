//! Checkpoints of a server with a log: each names where the log of later changes begins, and a restart repeats it.

use super::definition::{Merged, changeable};
use super::options::{CheckpointOptions, Definitions, Durability};
use super::restore::{Loaded, LoadedTable, find};
use super::{folder, load};
use crate::disk::Disk;
use crate::durable::{LogJournal, LogPlace, Target, repeat};
use crate::log::{Fence, Id};
use reverb_core::published_room::Tally;
use reverb_core::{Error, Replay, Result, Table, TableChanges, TableConfig};
use reverb_service::TableHandle;
use reverb_service::write_ledger::Ledgers;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The tables of a server while a log is repeated on them.
struct Restart {
    path: Option<PathBuf>,
    replays: Vec<Replay>,
    /// What else the checkpoint has of each; `None` if it does not have the table.
    others: Vec<Option<Other>>,
}

struct Other {
    tally: Tally,
    defined: Option<BTreeMap<String, String>>,
}

impl Restart {
    fn new(loaded: Option<Loaded>, definitions: &[TableConfig]) -> Result<Self> {
        let (path, loaded) = loaded.map_or((None, Vec::new()), |loaded| (Some(loaded.path), loaded.tables));
        let mut tables: Vec<_> = definitions.iter().map(|_| None).collect();
        let mut others: Vec<_> = definitions.iter().map(|_| None).collect();
        for LoadedTable { place, table, tally, defined, .. } in loaded {
            tables[place] = Some(table);
            others[place] = Some(Other { tally, defined });
        }
        let tables = tables.into_iter().zip(definitions).map(|(table, config)| match table {
            Some(table) => Ok(Replay::new(table)),
            None => Table::new(config.clone()).map(Replay::new),
        });
        Ok(Self { path, replays: tables.collect::<Result<_>>()?, others })
    }
}

/// What a restart has made of a checkpoint and of the log after it.
pub struct Restarted {
    /// The checkpoint. `None` if there was none.
    pub path: Option<PathBuf>,
    /// The journal of the tables from now on.
    pub journal: Arc<LogJournal>,
    /// Whether a checkpoint must be saved before the tables are served.
    pub must_save: bool,
}

/// Loads a checkpoint, and repeats the log after it. See [`super::checkpointer::Checkpointer::restore`].
pub fn restart(
    options: &CheckpointOptions,
    (place, durability): (&LogPlace, Durability),
    tables: &[TableHandle],
    ledgers: &Ledgers,
    load: &dyn Fn() -> Result<Option<Loaded>>,
) -> Result<Restarted> {
    let here: Vec<_> = tables.iter().map(|table| table.with_table(|table| table.config().clone())).collect();
    // Before the load: until then, another server may save checkpoints and remove what they replace.
    let fence = Fence::claim(place.disk.clone(), &place.folder)?;
    let loaded = load()?;
    let is_own = |loaded: &&Loaded| options.load.path.is_none() && loaded.path.parent() == Some(&options.root);
    let from = loaded.as_ref().filter(is_own).and_then(|loaded| loaded.log);
    let mut restart = Restart::new(loaded, &here)?;
    let find = |name: &str| options.load.target_name(name).map(|name| find(&here, name)).transpose();
    let target = Target { tables: &mut restart.replays, find: &find, ledgers };
    let repeated = repeat((place, fence), from, target, options.accept_loss)?;
    if repeated.is_broken {
        restart = Restart::new(load()?, &here)?;
    }
    let Restart { path, replays, others } = restart;
    let mut must_save = repeated.is_new;
    for ((handle, replay), (other, here)) in tables.iter().zip(replays).zip(others.into_iter().zip(&here)) {
        let mut table = replay.finish()?;
        // The next restart begins with these limits.
        must_save |= other.is_none();
        let (tally, defined) = other.map_or_else(Default::default, |other| (other.tally, other.defined));
        must_save |= set_limits(&mut table, here, defined.as_ref(), options.load.definitions)?;
        handle.restore(table, &tally);
    }
    let journal = LogJournal::start((place.clone(), durability), repeated, tables, ledgers)?;
    Ok(Restarted { path, journal, must_save })
}

/// Returns the oldest epoch of a log from which a checkpoint in a folder may have to be loaded. 0 if that is not known.
pub fn oldest_epoch(disk: &dyn Disk, root: &Path, log_id: Id) -> u64 {
    let entries = folder::checkpoints(disk, root).unwrap_or_default();
    let epoch = |entry: &folder::CheckpointEntry| {
        let sidecar = load::read_sidecar(disk, &root.join(&entry.name))?;
        let log = sidecar.log.map(|log| log.position()).transpose()?;
        Ok::<_, Error>(log.filter(|log| log.log_id == log_id).map(|log| log.epoch))
    };
    let epochs = entries.iter().filter(|entry| entry.is_ours).map(|entry| epoch(entry).unwrap_or(Some(0)));
    epochs.flatten().min().unwrap_or(0)
}

/// Gives a table that was repeated within the saved limits those that hold now. Returns whether any differs.
fn set_limits(
    table: &mut Table,
    here: &TableConfig,
    defined: Option<&BTreeMap<String, String>>,
    definitions: Definitions,
) -> Result<bool> {
    let saved = table.config().clone();
    let TableConfig { max_size, max_bytes, max_times_sampled, rate_limiter, .. } =
        Merged::new(&saved, here, defined, definitions)?.config;
    let changes = TableChanges {
        max_size: Some(max_size),
        max_bytes: Some(max_bytes),
        max_times_sampled: Some(max_times_sampled),
        rate_limiter: Some(rate_limiter),
    };
    drop(table.configure(&changes)?);
    table.evict_to_limits(&mut Vec::new());
    Ok(changeable(table.config()) != changeable(&saved))
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
