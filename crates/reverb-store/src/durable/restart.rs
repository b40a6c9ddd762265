//! The restart of a server with a log: repeats what was confirmed since the checkpoint that was loaded.
//!
//! A log that cannot be trusted is refused, and so is one whose changes nothing would repeat. Only the user can accept the
//! loss: then its segments are renamed, and stay.

use super::place::LogPlace;
use crate::disk::Disk;
use crate::effects::{EffectDecoder, Record};
use crate::log::{Fence, Id, Position, Recovered, Start, boot_id, oldest, recover, remove_from, set_aside, verify};
use bytes::Bytes;
use reverb_core::{Effect, Error, Replay, Result};
use reverb_service::write_ledger::Ledgers;
use std::collections::BTreeSet;
use std::path::Path;

/// What remedies there are, in the words of users.
const ACCEPT_LOSS: &str = "accept_loss=True, or --accept-loss, sets the log aside and starts without these changes";

/// Maximum number of times that a log is read which another server may be writing.
const READS: usize = 5;

/// What was repeated of a log, and how it goes on.
#[derive(Debug)]
pub struct Repeated {
    /// Where the log goes on.
    pub start: Start,
    /// Whether it is a new log, which no checkpoint names.
    pub is_new: bool,
    /// The log that does not go on, if there is one. A checkpoint of what was repeated makes up for it.
    pub left_over: Option<LeftOver>,
    /// The first frame that could not be repeated, although it is whole. The tables are of no use then.
    pub broken_at: Option<u64>,
}

/// Where the tables of a log are repeated.
pub struct Target<'a> {
    /// The tables as the checkpoint has them.
    pub tables: &'a mut [Replay],
    /// Returns which of them has this name in the log. `None` if the table is left out.
    pub find: &'a dyn Fn(&str) -> Result<Option<usize>>,
    /// New ledgers.
    pub ledgers: &'a Ledgers,
    /// LSN of the first frame that is not repeated. `None` for all.
    pub until: Option<u64>,
}

/// Repeats the log in a folder, which the caller has claimed before it has loaded a checkpoint, from the epoch that this
/// checkpoint names; `None` if none was loaded, or if it names none. With `accept_loss`, a log that cannot be repeated is
/// left over: what was repeated of it counts.
///
/// # Errors
/// [`Error::DataLoss`], naming the files, if the log is damaged, is missing or belongs to no checkpoint;
/// [`Error::Storage`] if a file cannot be read or changed; [`Error::InvalidPriority`], [`Error::SignatureMismatch`] and
/// [`Error::InvalidArgument`] if changes do not fit tables whose definitions were changed; those of `find`.
pub fn repeat(
    (place, fence): (&LogPlace, &Fence),
    from: Option<Position>,
    target: Target<'_>,
    accept_loss: bool,
) -> Result<Repeated> {
    let LogPlace { disk, folder, boot_id, .. } = place;
    let Some(from) = from else {
        let left_over = left_over(place, None, accept_loss)?;
        return Ok(Repeated { start: Start::fresh(), is_new: true, left_over, broken_at: None });
    };
    let mut repeat = Repeat::new(target);
    let repeated = check_begin(&**disk, folder, from, *boot_id)
        .and_then(|()| recover(fence, from, *boot_id, &mut |lsn, frame| repeat.frame(lsn, frame)));
    let Repeat { broken_at, left_out, .. } = repeat;
    if !left_out.is_empty() {
        let names = left_out.into_iter().collect::<Vec<_>>().join(", ");
        tracing::warn!("changes of these tables are not repeated, because `tables` leaves them out: {names}");
    }
    match repeated {
        Ok(found) => Ok(Repeated { start: found.next, is_new: false, left_over: None, broken_at: None }),
        Err(Error::DataLoss(why)) if accept_loss => {
            Ok(Repeated { start: Start::fresh(), is_new: true, left_over: Some(LeftOver::Damaged(why)), broken_at })
        }
        Err(error) => Err(or_accept_loss(error)),
    }
}

fn or_accept_loss(error: Error) -> Error {
    match error {
        Error::DataLoss(why) => Error::DataLoss(format!("{why}. {ACCEPT_LOSS}")),
        error => error,
    }
}

/// Reads the log that a server would repeat which loads a checkpoint with this position, and changes nothing. `None` if it
/// would repeat none.
///
/// # Errors
/// Those for which [`repeat`] and [`left_over`] refuse the log as it is, without the loss being accepted.
pub fn plan(place: &LogPlace, from: Option<Position>, is_durable: bool) -> Result<Option<Recovered>> {
    match from {
        Some(from) if is_durable => check(&*place.disk, &place.folder, from).map(Some).map_err(or_accept_loss),
        _ => left_over(place, from, false).map(|_| None),
    }
}

/// A log that nothing will repeat. It stays until a checkpoint has what the server has begun with.
#[derive(Debug)]
pub enum LeftOver {
    /// The checkpoint that was loaded has all that it says.
    Unchanged,
    /// The loss of what it says, or may say, is accepted, for this reason.
    Damaged(String),
}

impl LeftOver {
    /// Removes the log, or sets it aside if it has changes or may have.
    ///
    /// # Errors
    /// [`Error::Storage`] if a file cannot be changed.
    pub fn make_room(self, LogPlace { disk, folder, .. }: &LogPlace) -> Result<()> {
        let Self::Damaged(why) = self else { return remove_from(&**disk, folder, 0) };
        let names: Vec<_> = set_aside(&**disk, folder)?
            .iter()
            .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
            .collect();
        let (folder, names) = (folder.display(), names.join(", "));
        tracing::error!("changes may be lost, as accepted: {why}. The log was set aside in {folder}: {names}");
        Ok(())
    }
}

/// Returns the log in a folder that nothing will repeat, if there is one. Changes nothing. `from` is the epoch that the
/// loaded checkpoint names, for a server that repeats no log.
///
/// # Errors
/// [`Error::DataLoss`], naming the files, if the log has changes since, or may have, unless the loss is accepted;
/// [`Error::Storage`] if a file cannot be read.
pub fn left_over(
    LogPlace { disk, folder, boot_id, .. }: &LogPlace,
    from: Option<Position>,
    accept_loss: bool,
) -> Result<Option<LeftOver>> {
    let checked = match oldest(&**disk, folder) {
        Ok(None) => return Ok(None),
        Ok(Some(first)) => check_unchanged(&**disk, folder, from.unwrap_or(first), *boot_id),
        Err(error) => Err(error),
    };
    match checked {
        Ok(()) => Ok(Some(LeftOver::Unchanged)),
        Err(Error::DataLoss(why)) if accept_loss => Ok(Some(LeftOver::Damaged(why))),
        Err(Error::DataLoss(why)) => Err(Error::DataLoss(format!(
            "{why}. A server with `durability` repeats the log of the checkpoint that it loads; {ACCEPT_LOSS}"
        ))),
        Err(error) => Err(error),
    }
}

/// Reads a log as a restart from a checkpoint would, and changes nothing. A server may write it meanwhile.
///
/// # Errors
/// [`Error::DataLoss`], naming the files, if it is missing or damaged; [`Error::Storage`] if a file cannot be read.
pub fn check(disk: &dyn Disk, folder: &Path, from: Position) -> Result<Recovered> {
    let read = || {
        check_begin(disk, folder, from, boot_id())?;
        let mut decoder = EffectDecoder::new();
        verify(disk, folder, from, boot_id(), &mut |_, frame| decoder.decode(frame, &mut |_| Ok(())))
    };
    // Frames that come behind the end which was just read look like damage there, once.
    let mut read_before = read();
    for _ in 1..READS {
        if !matches!(read_before, Err(Error::DataLoss(_))) {
            break;
        }
        let again = read();
        if again == read_before {
            break;
        }
        read_before = again;
    }
    read_before
}

/// Checks that the first frame with changes is there of the epoch that a checkpoint names. It has the ledgers, and was
/// synced before the checkpoint was saved, so that no crash has torn it.
fn check_begin(disk: &dyn Disk, folder: &Path, from: Position, boot_id: Option<Id>) -> Result<()> {
    if oldest(disk, folder)?.is_none() {
        return Err(missing(folder));
    }
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

/// Checks that a log has no changes from a position on.
fn check_unchanged(disk: &dyn Disk, folder: &Path, from: Position, boot_id: Option<Id>) -> Result<()> {
    let mut decoder = EffectDecoder::new();
    let mut has_changes = false;
    verify(disk, folder, from, boot_id, &mut |_, frame| {
        decoder.decode(frame, &mut |record| {
            has_changes |= matches!(record, Record::Effect { .. });
            Ok(())
        })
    })?;
    if !has_changes {
        return Ok(());
    }
    let folder = folder.display();
    Err(Error::DataLoss(format!("the log in {folder} has confirmed changes that are in no checkpoint that is loaded")))
}

struct Repeat<'a> {
    decoder: EffectDecoder,
    target: Target<'a>,
    /// Where the tables of the epoch are repeated, in the order of the log.
    places: Vec<Option<usize>>,
    /// The names of those that are not.
    left_out: BTreeSet<String>,
    /// Number of epochs that have begun.
    epochs: u64,
    broken_at: Option<u64>,
}

impl<'a> Repeat<'a> {
    fn new(target: Target<'a>) -> Self {
        let (decoder, places, left_out) = (EffectDecoder::new(), Vec::new(), BTreeSet::new());
        Self { decoder, target, places, left_out, epochs: 0, broken_at: None }
    }

    fn frame(&mut self, lsn: u64, frame: Bytes) -> Result<()> {
        let Self { decoder, target: Target { tables, find, ledgers, until }, places, left_out, epochs, .. } = self;
        if until.is_some_and(|until| lsn >= until) {
            return Err(Error::DataLoss(format!("frame {lsn} of the log could not be repeated")));
        }
        let repeated = decoder.decode(frame, &mut |record| match record {
            Record::Begin { tables: names, ledgers: states } => {
                *epochs += 1;
                *places = names.iter().map(|name| find(name)).collect::<Result<_>>()?;
                let is_left_out = names.into_iter().zip(&*places).filter(|(_, place)| place.is_none());
                left_out.extend(is_left_out.map(|(name, _)| name));
                states.iter().try_for_each(|state| ledgers.restore(state))
            }
            // The checkpoint before has these.
            Record::First { .. } if *epochs > 1 => Ok(()),
            Record::First { table, effect } | Record::Effect { table, effect } => {
                if let Effect::Wrote { writer, sequence } = &effect {
                    ledgers.restore_written(writer, *sequence);
                    return Ok(());
                }
                let Some(place) = places[table] else { return Ok(()) };
                tables[place].apply(effect)
            }
        });
        repeated.map_err(|error| {
            self.broken_at = Some(lsn);
            match error {
                Error::DataLoss(why) => Error::DataLoss(format!("frame {lsn} of the log: {why}")),
                Error::InvalidPriority(why) => Error::InvalidPriority(format!("frame {lsn} of the log: {why}")),
                error => error,
            }
        })
    }
}
