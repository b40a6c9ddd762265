//! What is told of a log when it starts.

use super::folder::Position;
use super::format::{Id, boot_id};
use reverb_service::LogMode;
use std::fmt::{self, Debug};
use std::time::{Duration, Instant};

/// Size of a segment in bytes.
pub const SEGMENT_BYTES: u64 = 64 << 20;

/// Tells the time.
pub type Clock = Box<dyn Fn() -> Instant + Send + Sync>;

/// What is told of a log when it starts.
pub struct LogOptions {
    /// What a confirmed change survives.
    pub mode: LogMode,
    /// Time after which what was written is synced at the latest. Not zero.
    pub sync_interval: Duration,
    /// Size of a segment in bytes.
    pub segment_bytes: u64,
    /// Id of this boot of the system. `None` if it is not known.
    pub boot_id: Option<Id>,
    /// Tells the time.
    pub clock: Clock,
}

impl LogOptions {
    /// The options of a server.
    pub fn new(mode: LogMode, sync_interval: Duration) -> Self {
        let clock = Box::new(Instant::now);
        Self { mode, sync_interval, segment_bytes: SEGMENT_BYTES, boot_id: boot_id(), clock }
    }
}

impl Debug for LogOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mode, interval) = (&self.mode, &self.sync_interval);
        f.debug_struct("LogOptions").field("mode", mode).field("sync_interval", interval).finish_non_exhaustive()
    }
}

/// Where a log goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// The epoch that begins, and the LSN of its first frame.
    pub position: Position,
    /// LSN through which the frames before it are synced. Where it is not the one before the position, frames are
    /// missing in between, and only a checkpoint makes up for them.
    pub synced_through: u64,
}

impl Start {
    /// The beginning of a new log in a folder without segments.
    pub fn fresh() -> Self {
        Self { position: Position { log_id: rand::random(), epoch: 0, lsn: 1 }, synced_through: 0 }
    }
}
