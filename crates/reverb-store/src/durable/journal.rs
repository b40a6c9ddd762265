//! The journal of a server's tables.
//!
//! After a failure the log is closed for good: changes that would have to be confirmed are refused, and what the tables
//! note is dropped, since memory has it. A new log and a checkpoint of all tables heal that.

use super::committer::Committer;
use super::place::LogPlace;
use crate::checkpoint::Durability;
use crate::effects::{Begin, EffectEncoder};
use crate::log::{Fence, Log, LogOptions, Payload, Position, Source, Start, remove_from};
use parking_lot::{Mutex, RwLock};
use reverb_core::{Confirmation, Effect, Error, Result, TableSnapshot};
use reverb_service::LogMode;
use reverb_service::write_ledger::{LedgerState, Ledgers};
use reverb_service::{EffectsBegin, Journal, Kept, StoreLog, TableBegin, TableHandle, begin_effects};
use std::fmt::{self, Debug};
use std::sync::{Arc, OnceLock};

/// Number of bytes of a log below which no checkpoint is saved on its account, unless the options say so.
const MIN_SAVE_BYTES: u64 = 1 << 30;

/// The journal of a server's tables, which writes a log.
pub struct LogJournal {
    place: LogPlace,
    durability: Durability,
    fence: Arc<Fence>,
    log: RwLock<Arc<Log>>,
    notes: Mutex<Notes>,
    repair: Mutex<Repair>,
    /// The threads for those who are told later. Only in [`LogMode::Power`].
    committer: OnceLock<Committer>,
}

/// Where the effects come from, and what the epoch has of them. Used by the thread that has the turn to write.
struct Notes {
    /// The tables. None after the stop, so that tables and journal do not keep each other alive.
    tables: Vec<TableHandle>,
    ledgers: Ledgers,
    encoder: EffectEncoder,
    /// What the first frame of the epoch says, until it is written.
    begin: Option<FirstFrame>,
    effects: Vec<Effect>,
}

struct FirstFrame {
    tables: Vec<(String, Vec<Effect>)>,
    ledgers: Vec<LedgerState>,
}

/// What is done about a closed log.
#[derive(Default)]
struct Repair {
    /// The log that takes its place once a checkpoint is saved. The tables keep their notes for it.
    next: Option<Log>,
    /// Number of logs that were to take its place.
    attempts: u64,
    /// Whether an update was reported that no log has.
    has_warned: bool,
}

impl Debug for LogJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogJournal").field("place", &self.place).finish_non_exhaustive()
    }
}

impl LogJournal {
    /// Begins an epoch behind what was repeated, and becomes the journal of the tables, which nobody uses yet.
    ///
    /// # Errors
    /// Those of [`Log::start`].
    pub fn start(
        (place, durability): (LogPlace, Durability),
        (fence, start): (Arc<Fence>, Start),
        tables: &[TableHandle],
        ledgers: &Ledgers,
    ) -> Result<Arc<Self>> {
        let log = Log::start(fence.clone(), start, log_options(&place, &durability))?.with_thread()?;
        let journal = Arc::new(Self {
            place,
            durability,
            fence,
            log: RwLock::new(Arc::new(log)),
            notes: Mutex::new(Notes {
                tables: tables.to_vec(),
                ledgers: ledgers.clone(),
                encoder: EffectEncoder::new(),
                begin: None,
                effects: Vec::new(),
            }),
            repair: Mutex::default(),
            committer: OnceLock::new(),
        });
        if journal.waits_for_disk() {
            let weak = Arc::downgrade(&journal);
            // Those who ask hold the journal.
            let commit = move || match weak.upgrade() {
                Some(journal) => (journal.commit(Confirmation::Synced), journal.log().last_group_bytes()),
                None => (Err(Error::Cancelled("the server was stopped".into())), 0),
            };
            let committer = Committer::start(commit)?;
            journal.committer.get_or_init(|| committer);
        }
        tables.iter().for_each(|table| table.set_journal(journal.clone()));
        journal.notes.lock().begin();
        Ok(journal)
    }

    /// Begins an epoch, and returns where it begins and the state of the tables there. If the log is closed, that is an
    /// epoch of a new one, which opens with [`LogJournal::saved`].
    ///
    /// # Errors
    /// [`Error::Storage`] if the log cannot be written. The tables are unchanged.
    pub fn begin_epoch(&self) -> Result<(Position, Vec<TableSnapshot>)> {
        let log = self.log();
        if log.failure().is_some() {
            return self.begin_again(&log);
        }
        let (position, snapshots) = log.begin_epoch(|payload| self.notes.lock().end_epoch(payload))?;
        // A checkpoint of the epoch needs the ledgers in its first frame.
        log.commit_synced(self)?;
        Ok((position, snapshots))
    }

    fn begin_again(&self, closed: &Log) -> Result<(Position, Vec<TableSnapshot>)> {
        // Another server may have closed it.
        self.fence.check()?;
        let mut repair = self.repair.lock();
        repair.attempts += 1;
        let start = closed.successor(repair.attempts)?;
        let next = Log::start(self.fence.clone(), start, log_options(&self.place, &self.durability))?;
        let position = next.began();
        let snapshots = self.notes.lock().begin();
        // A checkpoint of the epoch needs the ledgers in its first frame.
        if let Err(error) = next.commit_synced(self) {
            self.give_up(next);
            return Err(error);
        }
        repair.next = Some(next);
        Ok((position, snapshots))
    }

    /// Notes that a checkpoint of the last epoch that has begun is saved, and that the epochs before `oldest` are needed
    /// no longer. `checkpoint_bytes` is the size of the checkpoint.
    ///
    /// # Errors
    /// [`Error::Storage`] if the log cannot be written.
    pub fn saved(&self, oldest: u64, checkpoint_bytes: u64) -> Result<()> {
        let mut repair = self.repair.lock();
        if let Some(next) = repair.next.take() {
            // If this fails, the checkpoint has its epoch all the same. The mark says that the checkpoint is needed.
            next.commit_synced(self)?;
            next.mark_synced()?;
            let next = Arc::new(next.with_thread()?);
            let closed = std::mem::replace(&mut *self.log.write(), next);
            *repair = Repair::default();
            // Without the lock: this waits for the thread of the closed log.
            drop(closed);
            tracing::info!("the log in {} is open again", self.place.folder.display());
        }
        drop(repair);
        let log = self.log();
        log.set_reserve(checkpoint_bytes);
        log.remove_before(oldest)
    }

    /// Notes that no checkpoint of the last epoch was saved. One may be there all the same.
    pub fn not_saved(&self, is_there: bool) {
        if let Some(next) = self.repair.lock().next.take().filter(|_| !is_there) {
            self.give_up(next);
        }
    }

    /// Removes a log that no checkpoint names.
    fn give_up(&self, next: Log) {
        let LogPlace { disk, folder, .. } = &self.place;
        let epoch = next.began().epoch;
        drop(next);
        self.notes.lock().begin = None;
        if let Err(error) = remove_from(&**disk, folder, epoch) {
            tracing::warn!("a segment that nobody needs stays: {error}");
        }
    }

    /// Whether a failure has closed the log.
    pub fn is_closed(&self) -> bool {
        self.log().failure().is_some()
    }

    /// Whether a checkpoint should be saved: the log is closed, or it has grown.
    pub fn wants_save(&self) -> bool {
        let Some(status) = self.log().status() else { return false };
        status.failure.is_some() || status.epoch_bytes > self.size_limit()
    }

    fn size_limit(&self) -> u64 {
        self.durability.max_log_bytes.unwrap_or_else(|| {
            let live: u64 = self.notes.lock().tables.iter().map(|table| table.pulse().bytes).sum();
            live.max(MIN_SAVE_BYTES)
        })
    }

    /// What the log tells of itself. `None` in a forked child.
    pub fn status(&self) -> Option<StoreLog> {
        let status = self.log().status()?;
        Some(StoreLog {
            mode: status.mode,
            size_bytes: status.bytes,
            sync_age: status.sync_age,
            sync_interval: self.durability.sync_interval,
            is_low: status.is_low,
            failure: status.failure.map(|failure| failure.to_string()),
        })
    }

    /// Syncs the log, and lets go of the tables. Later changes are not confirmed.
    ///
    /// # Errors
    /// [`Error::Storage`] if the log is closed by a failure, or by one in this call.
    pub fn stop(&self) -> Result<()> {
        let log = self.log();
        // What nobody waits for, as the counts of draws.
        let written = log.commit_written(self);
        let stopped = log.stop();
        self.notes.lock().tables.clear();
        match written {
            Err(Error::Cancelled(_)) => stopped,
            written => written.and(stopped),
        }
    }

    fn log(&self) -> Arc<Log> {
        self.log.read().clone()
    }

    /// Drops what the tables have noted, which no log will have, and says so once. Returns false if another log has taken
    /// the place of the closed one: what was noted is for that one.
    fn drop_notes(&self, closed: &Arc<Log>, cause: &Error) -> bool {
        // While another log is made, updates do not wait for the disk. What they have noted is for that log, or for the
        // next caller.
        let repair = self.repair.try_lock();
        if !Arc::ptr_eq(closed, &self.log()) {
            return false;
        }
        let Some(mut repair) = repair else { return true };
        if !std::mem::replace(&mut repair.has_warned, true) {
            tracing::warn!("updates of priorities and receipts are in memory only: {cause}");
        }
        if repair.next.is_none() {
            let Notes { tables, effects, .. } = &mut *self.notes.lock();
            tables.iter().for_each(|table| {
                table.drain_effects(effects);
                effects.clear();
            });
        }
        true
    }
}

impl Source for LogJournal {
    fn drain(&self, payload: &mut Payload) -> Result<()> {
        self.notes.lock().drain(payload)
    }
}

impl Journal for LogJournal {
    fn check(&self) -> Result<()> {
        self.log.read().failure().map_or(Ok(()), Err)
    }

    fn waits_for_disk(&self) -> bool {
        self.durability.mode == LogMode::Power
    }

    fn commit(&self, confirmation: Confirmation) -> Result<()> {
        loop {
            let log = self.log();
            let kept = match confirmation {
                Confirmation::Nothing => return Ok(()),
                Confirmation::Written => log.commit_written(self),
                Confirmation::Synced => log.commit(self),
            };
            let Err(error) = kept else { return Ok(()) };
            if log.failure().is_none() {
                return Err(error);
            }
            if self.drop_notes(&log, &error) {
                // Updates and receipts go on without a log.
                return if confirmation == Confirmation::Written { Ok(()) } else { Err(error) };
            }
        }
    }

    fn commit_later(&self, kept: Kept) {
        match self.committer.get() {
            Some(committer) if committer.is_ours() => committer.ask(kept),
            _ => kept(self.commit(Confirmation::Synced)),
        }
    }
}

impl Notes {
    /// Moves what was noted into the payload.
    fn drain(&mut self, payload: &mut Payload) -> Result<()> {
        self.put_first_frame(payload)?;
        let Self { tables, encoder, effects, .. } = self;
        for (index, table) in tables.iter().enumerate() {
            table.drain_effects(effects);
            let put = encoder.put_effects(payload, index, effects);
            effects.clear();
            put?;
        }
        Ok(())
    }

    fn put_first_frame(&mut self, payload: &mut Payload) -> Result<()> {
        let Some(FirstFrame { tables, ledgers }) = self.begin.take() else { return Ok(()) };
        let tables = tables.iter().map(|(name, first)| (name.as_str(), first.as_slice())).collect();
        self.encoder.put_begin(payload, &Begin { tables, ledgers: &ledgers })
    }

    /// Moves what was noted before this moment into the last frame of an epoch, and begins the next one with the state of
    /// the tables.
    fn end_epoch(&mut self, payload: &mut Payload) -> Result<Vec<TableSnapshot>> {
        let begin = begin_effects(&self.tables, &self.ledgers);
        for (index, table) in begin.tables.iter().enumerate().filter(|(_, table)| !table.before.is_empty()) {
            self.put_first_frame(payload)?;
            self.encoder.put_effects(payload, index, &table.before)?;
        }
        Ok(self.go_on(begin))
    }

    /// Begins an epoch with the state of the tables, of which the effects before it are in no log.
    fn begin(&mut self) -> Vec<TableSnapshot> {
        let begin = begin_effects(&self.tables, &self.ledgers);
        self.go_on(begin)
    }

    fn go_on(&mut self, EffectsBegin { tables, ledgers }: EffectsBegin) -> Vec<TableSnapshot> {
        let names = self.tables.iter().map(|table| table.name().to_owned());
        let (firsts, snapshots): (Vec<_>, Vec<_>) =
            tables.into_iter().map(|TableBegin { first, snapshot, .. }| (first, snapshot)).unzip();
        self.begin = Some(FirstFrame { tables: names.zip(firsts).collect(), ledgers });
        snapshots
    }
}

fn log_options(place: &LogPlace, durability: &Durability) -> LogOptions {
    let options = LogOptions::new(durability.mode, durability.sync_interval);
    LogOptions { segment_bytes: place.segment_bytes, boot_id: place.boot_id, ..options }
}
