//! Checkpoints of a server with a log: each names where the log of later changes begins, and a restart repeats it.

use super::definition::{Merged, changeable};
use super::options::{CheckpointOptions, Definitions};
use super::restore::{Loaded, LoadedTable, find};
use super::{folder, load};
use crate::disk::{Disk, RealDisk};
use crate::durable::{self, LeftOver, LogPlace, Repeated, Target, repeat};
use crate::log::{Fence, Id, Recovered, Start};
use reverb_core::published_room::Tally;
use reverb_core::{Error, Replay, Result, Table, TableChanges, TableConfig};
use reverb_service::TableHandle;
use reverb_service::write_ledger::Ledgers;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The tables of a server while a log is repeated on them.
struct Restart {
    path: Option<PathBuf>,
    replays: Vec<Replay>,
    /// What else the checkpoint has of each; `None` if it does not have the table.
    others: Vec<Option<Other>>,
    ledgers: Ledgers,
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
        Ok(Self { path, replays: tables.collect::<Result<_>>()?, others, ledgers: Ledgers::default() })
    }
}

/// What a restart has made of a checkpoint and of the log after it.
pub struct Restarted {
    /// The checkpoint. `None` if there was none.
    pub path: Option<PathBuf>,
    /// The claim on the folder.
    pub fence: Arc<Fence>,
    /// Where the log goes on.
    pub start: Start,
    /// The log that does not go on.
    pub left_over: Option<LeftOver>,
    /// Whether a checkpoint must be saved before the tables are served.
    pub must_save: bool,
}

/// Loads a checkpoint for tables with these definitions, and repeats the log after it. The tables change only after all
/// of both was read. See [`super::checkpointer::Checkpointer::restore`].
pub fn restart(
    options: &CheckpointOptions,
    place: &LogPlace,
    (tables, here): (&[TableHandle], &[TableConfig]),
    ledgers: &Ledgers,
    load: &dyn Fn() -> Result<Option<Loaded>>,
) -> Result<Restarted> {
    // Before the load: until then, another server may save checkpoints and remove what they replace.
    let fence = Fence::claim(place.disk.clone(), &place.folder)?;
    let find = |name: &str| options.load.target_name(name).map(|name| find(here, name)).transpose();
    // LSN up to which frames can be repeated.
    let mut until = None;
    let (restart, made, repeated) = loop {
        let loaded = load()?;
        let from = loaded.as_ref().filter(|loaded| options.is_own(&loaded.path)).and_then(|loaded| loaded.log);
        let mut restart = Restart::new(loaded, here)?;
        let target = Target { tables: &mut restart.replays, find: &find, ledgers: &restart.ledgers, until };
        let repeated = repeat((place, &fence), from, target, options.accept_loss)?;
        let made = std::mem::take(&mut restart.replays).into_iter().map(Replay::finish).collect::<Result<Vec<_>>>();
        match (repeated.broken_at, made) {
            // Once more, up to the frame before.
            (Some(lsn), _) => until = Some(lsn),
            (None, Err(Error::DataLoss(_))) if options.accept_loss && until != Some(0) => until = Some(0),
            (None, made) => break (restart, made?, repeated),
        }
    };
    let Repeated { start, left_over, is_new, .. } = repeated;
    let Restart { path, others, ledgers: repeated_ledgers, .. } = restart;
    // The next restart begins with other limits, or tables of other names.
    let mut must_save = is_new || options.load.tables.is_some();
    let mut restored = Vec::new();
    for (mut table, (other, here)) in made.into_iter().zip(others.into_iter().zip(here)) {
        must_save |= other.is_none();
        let (tally, defined) = other.map_or_else(Default::default, |other| (other.tally, other.defined));
        must_save |= set_limits(&mut table, here, defined.as_ref(), options.load.definitions)?;
        restored.push((table, tally));
    }
    repeated_ledgers.states().iter().try_for_each(|state| ledgers.restore(state))?;
    tables.iter().zip(restored).for_each(|(handle, (table, tally))| handle.restore(table, &tally));
    Ok(Restarted { path, fence, start, left_over, must_save })
}

/// Reads the log that a server with these options would repeat after this checkpoint, and changes nothing. `None` if it
/// would repeat none.
///
/// # Errors
/// [`Error::DataLoss`], naming the files, if the server would refuse it; [`Error::Storage`] if a file cannot be read.
pub fn plan_log(options: &CheckpointOptions, path: Option<&Path>, is_durable: bool) -> Result<Option<Recovered>> {
    let disk = Arc::new(RealDisk);
    let sidecar = path.map(|path| load::read_tables(&*disk, path)).transpose()?.and_then(|(_, sidecar)| sidecar);
    let log = sidecar.and_then(|sidecar| sidecar.log).map(|log| log.position()).transpose()?;
    let from = if is_durable { log.filter(|_| path.is_some_and(|path| options.is_own(path))) } else { log };
    durable::plan(&LogPlace::new(disk, options.root.clone()), from, is_durable)
}

/// Returns the oldest epoch of a log from which a checkpoint in a folder may have to be loaded: not one of the `damaged`
/// ones. 0 if that is not known.
pub fn oldest_epoch(disk: &dyn Disk, root: &Path, log_id: Id, damaged: &HashSet<String>) -> u64 {
    let entries = folder::checkpoints(disk, root).unwrap_or_default();
    let epoch = |entry: &folder::CheckpointEntry| {
        let sidecar = load::read_sidecar(disk, &root.join(&entry.name))?;
        let log = sidecar.log.map(|log| log.position()).transpose()?;
        Ok::<_, Error>(log.filter(|log| log.log_id == log_id).map(|log| log.epoch))
    };
    let good = entries.iter().filter(|entry| entry.is_ours && !damaged.contains(&entry.name));
    let epochs = good.map(|entry| match epoch(entry) {
        Ok(epoch) => epoch,
        Err(Error::DataLoss(_)) => None,
        Err(_) => Some(0),
    });
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
