//! An owner of a log: it notes numbered changes, and knows what it was told of each.

use crate::crash_disk::CrashDisk;
use bytes::Bytes;
use parking_lot::Mutex;
use reverb_core::{Error, Result};
use reverb_service::LogMode;
use reverb_store::log::{Fence, Id, Log, LogOptions, Payload, Position, Recovered, Source, Start, oldest, recover};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

pub const FOLDER: &str = "/checkpoints";
pub const INTERVAL: Duration = Duration::from_secs(1);
/// Small, so that a few changes fill one.
pub const SEGMENT: u64 = 1024;
/// Two boots of the system.
pub const BOOTS: [Id; 2] = [[1; 16], [2; 16]];

/// A clock that stands still until it is moved.
#[derive(Debug, Clone)]
pub struct Clock(Instant, Arc<AtomicU64>);

impl Default for Clock {
    fn default() -> Self {
        Self(Instant::now(), Arc::default())
    }
}

impl Clock {
    pub fn advance(&self, time: Duration) {
        self.1.fetch_add(time.as_millis() as u64, Relaxed);
    }

    pub fn options(&self, mode: LogMode) -> LogOptions {
        let clock = self.clone();
        let now = move || clock.0 + Duration::from_millis(clock.1.load(Relaxed));
        let boot_id = Some(BOOTS[0]);
        LogOptions { segment_bytes: SEGMENT, boot_id, clock: Box::new(now), ..LogOptions::new(mode, INTERVAL) }
    }
}

/// The bytes of a change: its number, their length, and filling that follows from the number.
pub fn change(number: u32) -> Vec<u8> {
    let length = (number * 37) % 150;
    let filling = (0..length).map(|at| (number * 31 + at) as u8);
    [number.to_le_bytes(), length.to_le_bytes()].concat().into_iter().chain(filling).collect()
}

/// The numbers of the changes in a payload.
pub fn numbers(mut payload: &[u8]) -> Vec<u32> {
    let mut numbers = Vec::new();
    while !payload.is_empty() {
        let number = u32::from_le_bytes(payload[..4].try_into().unwrap());
        let (first, rest) = payload.split_at(change(number).len());
        assert_eq!(first, change(number));
        numbers.push(number);
        payload = rest;
    }
    numbers
}

/// Where changes are noted.
#[derive(Debug, Default)]
pub struct Notes(pub Mutex<Vec<u32>>);

impl Source for Notes {
    fn drain(&self, payload: &mut Payload) -> Result<()> {
        for number in self.0.lock().drain(..) {
            let bytes = change(number);
            // Some go as pieces, and some are cut in two.
            match number % 3 {
                0 => payload.own().extend(bytes),
                1 => payload.put_piece(Bytes::from(bytes)),
                _ => {
                    let (first, rest) = bytes.split_at(bytes.len() / 2);
                    payload.own().extend_from_slice(first);
                    payload.put_piece(Bytes::copy_from_slice(rest));
                }
            }
        }
        Ok(())
    }
}

/// A log, and what its owner knows of it.
pub struct Owner {
    pub log: Log,
    pub clock: Clock,
    notes: Notes,
    mode: LogMode,
    pub story: Story,
}

/// What has happened to changes, which are numbered from 0.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Story {
    /// Number of changes that were noted.
    pub noted: u32,
    /// Number of those that were confirmed.
    pub confirmed: u32,
    /// Number of those that the log has said are on disk.
    pub synced: u32,
    /// Whether a call has failed.
    pub has_failed: bool,
    /// Finished checkpoints: the number of changes in each, and where its log goes on.
    pub checkpoints: Vec<(u32, Position)>,
}

impl Owner {
    /// Starts a log behind what was recovered.
    pub fn start(disk: &CrashDisk, mode: LogMode, start: Start, story: Story) -> Result<Self> {
        let clock = Clock::default();
        let log = Log::start(claim(disk)?, start, clock.options(mode))?;
        Ok(Self { log, clock, notes: Notes::default(), mode, story })
    }

    /// Notes a change, and commits it.
    pub fn commit(&mut self) {
        self.note();
        let result = self.log.commit(&self.notes);
        self.hear(result.is_ok(), self.mode == LogMode::Power);
    }

    pub fn commit_written(&mut self) {
        self.note();
        let result = self.log.commit_written(&self.notes);
        self.hear(result.is_ok(), false);
    }

    pub fn note(&mut self) {
        self.notes.0.lock().push(self.story.noted);
        self.story.noted += 1;
    }

    fn hear(&mut self, is_confirmed: bool, is_synced: bool) {
        assert!(!(is_confirmed && self.story.has_failed), "{:?}", self.story);
        if is_confirmed {
            self.story.confirmed = self.story.noted;
        } else {
            self.story.has_failed = true;
            let failure = self.log.failure();
            assert!(matches!(&failure, Some(Error::Storage(text)) if text.contains("may or may not")), "{failure:?}");
        }
        if is_confirmed && is_synced {
            self.story.synced = self.story.noted;
        }
    }

    /// Lets the time pass after which all is synced.
    pub fn pass_interval(&mut self) {
        self.clock.advance(INTERVAL);
        self.log.tick();
        let status = self.log.status().unwrap();
        if status.failure.is_none() {
            assert_eq!(status.sync_age, Duration::ZERO);
            self.story.synced = self.story.confirmed;
        }
    }

    /// Begins an epoch whose checkpoint is finished at once. One more change is noted, and is the last of the old epoch.
    pub fn checkpoint(&mut self) {
        self.note();
        let notes = &self.notes;
        if let Ok((position, ())) = self.log.begin_epoch(|payload| notes.drain(payload)) {
            self.hear(true, true);
            self.story.checkpoints.push((self.story.noted, position));
        } else {
            // Where only the new segment could not be made, the old epoch goes on.
            let result = self.log.commit(&self.notes);
            self.hear(result.is_ok(), self.mode == LogMode::Power);
        }
    }

    pub fn stop(&mut self) {
        if self.log.stop().is_ok() {
            self.story.synced = self.story.confirmed;
        }
    }
}

/// Claims the folder, as each server does.
pub fn claim(disk: &CrashDisk) -> Result<Arc<Fence>> {
    Fence::claim(Arc::new(disk.clone()), Path::new(FOLDER))
}

/// Recovers what a new server finds: the number of changes, from the first on, or the error.
pub fn recovered(disk: &CrashDisk, story: &Story, boot: Id) -> Result<(u32, Option<Recovered>)> {
    match story.checkpoints.last() {
        Some(&(count, position)) => recovered_from(disk, count, position, boot),
        None => match oldest(disk, Path::new(FOLDER))? {
            Some(position) => recovered_from(disk, 0, position, boot),
            None => Ok((0, None)),
        },
    }
}

/// The same behind a checkpoint with `count` changes.
pub fn recovered_from(disk: &CrashDisk, count: u32, position: Position, boot: Id) -> Result<(u32, Option<Recovered>)> {
    let mut next = count;
    let recovered = recover(&*claim(disk)?, position, Some(boot), &mut |_, payload| {
        for number in numbers(&payload) {
            assert_eq!(number, next, "changes come once, and in order");
            next += 1;
        }
        Ok(())
    })?;
    Ok((next, Some(recovered)))
}

/// What a server does in its life: it fills several segments, and changes epochs.
pub fn live(owner: &mut Owner) {
    for round in 0..2 {
        for _ in 0..6 {
            owner.commit();
        }
        owner.pass_interval();
        owner.commit_written();
        owner.log.tick();
        owner.commit();
        if round == 0 {
            owner.checkpoint();
            owner.commit();
        }
    }
    for _ in 0..9 {
        owner.note();
    }
    owner.commit();
}
