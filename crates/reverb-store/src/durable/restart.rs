//! The restart of a server with a log: repeats what was confirmed since the checkpoint that was loaded.
//!
//! A log that cannot be trusted is refused, and so is one whose changes nothing would repeat. Only the user can accept the
//! loss: then its segments are renamed, and stay.

use super::place::LogPlace;
use crate::disk::Disk;
use crate::effects::{EffectDecoder, Record};
use crate::log::{Fence, Id, Position, Recovered, Start, boot_id, oldest, recover, remove_from, set_aside, verify};
use bytes::Bytes;
use reverb_core::{Error, Replay, Result};
use reverb_service::write_ledger::Ledgers;
use std::path::Path;
use std::sync::Arc;

/// What remedies there are, in the words of users.
const ACCEPT_LOSS: &str = "accept_loss=True, or --accept-loss, sets the log aside and starts without these changes";

/// What was repeated of a log, and how it goes on.
#[derive(Debug)]
pub struct Repeated {
    /// The claim on the folder.
    pub fence: Arc<Fence>,
    /// Where the log goes on.
    pub start: Start,
    /// Whether a checkpoint must be saved before anything is confirmed: none names the log.
    pub is_new: bool,
    /// Whether an effect did not fit its table. Then the tables are of no use.
    pub is_broken: bool,
}

/// Where the tables of a log are repeated.
pub struct Target<'a> {
    /// The tables as the checkpoint has them.
    pub tables: &'a mut [Replay],
    /// Returns which of them has this name in the log. `None` if the table is left out.
    pub find: &'a dyn Fn(&str) -> Result<Option<usize>>,
    /// The ledgers of the server.
    pub ledgers: &'a Ledgers,
}

/// Repeats the log in a folder, which the caller has claimed before it has loaded a checkpoint, from the epoch that this
/// checkpoint names; `None` if none was loaded, or if it names none. With `accept_loss`, a log that cannot be repeated is
/// set aside: what was repeated of it counts.
///
/// # Errors
/// [`Error::DataLoss`], naming the files, if the log is damaged, is missing or belongs to no checkpoint;
/// [`Error::Storage`] if a file cannot be read or changed; those of `find`.
pub fn repeat(
    (place, fence): (&LogPlace, Arc<Fence>),
    from: Option<Position>,
    target: Target<'_>,
    accept_loss: bool,
) -> Result<Repeated> {
    let LogPlace { disk, folder, boot_id, .. } = place;
    let mut repeat = Repeat { decoder: EffectDecoder::new(), target, places: Vec::new(), epochs: 0, is_broken: false };
    let repeated = match oldest(&**disk, folder) {
        Ok(None) if from.is_none() => Ok(None),
        Ok(None) => Err(missing(folder)),
        Ok(Some(first)) => match from {
            Some(from) => check_begin(&**disk, folder, from, *boot_id)
                .and_then(|()| recover(&fence, from, *boot_id, &mut |lsn, frame| repeat.frame(lsn, frame)))
                .map(|found| Some(found.next)),
            None => remove_unchanged(place, first).map(|()| None),
        },
        Err(error) => Err(error),
    };
    let Repeat { is_broken, .. } = repeat;
    let (start, is_new, is_broken) = match repeated {
        Ok(Some(start)) => (start, false, false),
        Ok(None) => (Start::fresh(), true, false),
        Err(Error::DataLoss(why)) if accept_loss => {
            put_aside(place, &why)?;
            (Start::fresh(), true, is_broken)
        }
        Err(Error::DataLoss(why)) => return Err(Error::DataLoss(format!("{why}. {ACCEPT_LOSS}"))),
        Err(error) => return Err(error),
    };
    Ok(Repeated { fence, start, is_new, is_broken })
}

/// Makes room in a folder whose log nothing will repeat: removes a log without changes since the epoch that the loaded
/// checkpoint names. Returns whether there was one: then that checkpoint names a log that is gone, and should not stay the
/// newest.
///
/// # Errors
/// [`Error::DataLoss`], naming the files, if the log has changes or may have, unless the loss is accepted;
/// [`Error::Storage`] if a file cannot be read or changed.
pub fn clear(place: &LogPlace, from: Option<Position>, accept_loss: bool) -> Result<bool> {
    let LogPlace { disk, folder, .. } = place;
    let cleared = match oldest(&**disk, folder) {
        Ok(None) => return Ok(false),
        Ok(Some(first)) => {
            // A server elsewhere that still writes it ends.
            Fence::claim(disk.clone(), folder)?;
            remove_unchanged(place, from.unwrap_or(first))
        }
        Err(error) => Err(error),
    };
    match cleared {
        Err(Error::DataLoss(why)) if accept_loss => put_aside(place, &why),
        Err(Error::DataLoss(why)) => Err(Error::DataLoss(format!(
            "{why}. A server with `durability` repeats the log of the checkpoint that it loads; {ACCEPT_LOSS}"
        ))),
        cleared => cleared,
    }?;
    Ok(true)
}

/// Reads a log as a restart from a checkpoint would, and changes nothing.
///
/// # Errors
/// [`Error::DataLoss`], naming the files, if it is missing or damaged; [`Error::Storage`] if a file cannot be read.
pub fn check(disk: &dyn Disk, folder: &Path, from: Position) -> Result<Recovered> {
    if oldest(disk, folder)?.is_none() {
        return Err(missing(folder));
    }
    check_begin(disk, folder, from, boot_id())?;
    let mut decoder = EffectDecoder::new();
    verify(disk, folder, from, boot_id(), &mut |_, frame| decoder.decode(frame, &mut |_| Ok(())))
}

/// Checks that the first frame with changes is there of the epoch that a checkpoint names. It has the ledgers, and was
/// synced before the checkpoint was saved, so that no crash has torn it.
fn check_begin(disk: &dyn Disk, folder: &Path, from: Position, boot_id: Option<Id>) -> Result<()> {
    let mut is_there = false;
    let read = verify(disk, folder, from, boot_id, &mut |_, _| {
        is_there = true;
        // No other frame is read.
        Err(Error::Cancelled("the first frame was read".into()))
    });
    match read {
        Err(error) if !matches!(error, Error::Cancelled(_)) => Err(error),
        _ if is_there => Ok(()),
        _ => Err(Error::DataLoss(format!(
            "the log in {} does not have the frame with which epoch {} begins, behind {}",
            folder.display(),
            from.epoch,
            from.lsn
        ))),
    }
}

fn missing(folder: &Path) -> Error {
    Error::DataLoss(format!("the log that the checkpoint names is missing in {}", folder.display()))
}

/// Removes a log that has no changes from a position on.
fn remove_unchanged(LogPlace { disk, folder, boot_id, .. }: &LogPlace, from: Position) -> Result<()> {
    let mut decoder = EffectDecoder::new();
    let mut has_changes = false;
    verify(&**disk, folder, from, *boot_id, &mut |_, frame| {
        decoder.decode(frame, &mut |record| {
            has_changes |= matches!(record, Record::Effect { .. });
            Ok(())
        })
    })?;
    if has_changes {
        return Err(Error::DataLoss(format!(
            "the log in {} has confirmed changes that are in no checkpoint that is loaded",
            folder.display()
        )));
    }
    remove_from(&**disk, folder, 0)
}

fn put_aside(LogPlace { disk, folder, .. }: &LogPlace, why: &str) -> Result<()> {
    let aside = set_aside(&**disk, folder)?;
    let names: Vec<_> = aside.iter().map(|path| path.file_name().map(Path::new).unwrap_or(path).display()).collect();
    let names = names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    tracing::error!("changes may be lost, as accepted: {why}. The log was set aside in {}: {names}", folder.display());
    Ok(())
}

struct Repeat<'a> {
    decoder: EffectDecoder,
    target: Target<'a>,
    /// Where the tables of the epoch are repeated, in the order of the log.
    places: Vec<Option<usize>>,
    /// Number of epochs that have begun.
    epochs: u64,
    is_broken: bool,
}

impl Repeat<'_> {
    fn frame(&mut self, lsn: u64, frame: Bytes) -> Result<()> {
        let Self { decoder, target: Target { tables, find, ledgers }, places, epochs, is_broken } = self;
        let repeated = decoder.decode(frame, &mut |record| match record {
            Record::Begin { tables: names, ledgers: states } => {
                *epochs += 1;
                *places = names.iter().map(|name| find(name)).collect::<Result<_>>()?;
                states.iter().try_for_each(|state| ledgers.restore(state))
            }
            // The checkpoint before has these.
            Record::First { .. } if *epochs > 1 => Ok(()),
            Record::First { table, effect } | Record::Effect { table, effect } => {
                if let reverb_core::Effect::Wrote { writer, sequence } = &effect {
                    ledgers.restore_written(writer, *sequence);
                    return Ok(());
                }
                let Some(place) = places[table] else { return Ok(()) };
                tables[place].apply(effect).inspect_err(|_| *is_broken = true)
            }
        });
        repeated.map_err(|error| match error {
            Error::DataLoss(why) => Error::DataLoss(format!("frame {lsn} of the log: {why}")),
            Error::InvalidPriority(why) => Error::DataLoss(format!("frame {lsn} of the log: {why}")),
            error => error,
        })
    }
}
