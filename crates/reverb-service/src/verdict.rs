//! The verdict on a server: whether its tables make progress, and whose fault it is if not.

use crate::store::StoreLog;
use reverb_core::words::time;
use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};
use std::time::{Duration, SystemTime};

/// Time for which a log may be late with a sync, however short the time between syncs is.
const MAY_BE_LATE: Duration = Duration::from_secs(10);
/// Number of times between syncs for which a log may be late with one.
const MAY_BE_LATE_TIMES: u32 = 10;

/// Whether something makes progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Items are inserted or sampled.
    Flowing,
    /// Requests wait, and somebody who is connected can end that.
    Waiting,
    /// Requests wait that nobody will end, or for longer than ever.
    Stalled,
    /// Nobody asks for anything.
    Idle,
}

impl Progress {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Flowing, Self::Waiting, Self::Stalled, Self::Idle];

    /// Returns the name of the state in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flowing => "flowing",
            Self::Waiting => "waiting",
            Self::Stalled => "stalled",
            Self::Idle => "idle",
        }
    }

    /// Returns the word with which a sentence begins.
    pub fn word(self) -> &'static str {
        match self {
            Self::Flowing => "Flowing",
            Self::Waiting => "Waiting",
            Self::Stalled => "Stalled",
            Self::Idle => "Idle",
        }
    }
}

/// How good the state of something is, from the best to the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// It works.
    Good,
    /// Nothing moves, and nothing is wrong.
    Quiet,
    /// Somebody should look at it.
    Warning,
    /// Somebody must look at it.
    Alarm,
}

impl Level {
    /// Returns the name of the level in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Quiet => "quiet",
            Self::Warning => "warning",
            Self::Alarm => "alarm",
        }
    }
}

/// Something that is wrong with a server, whether its tables make progress or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// The latest save failed, with this error.
    SaveFailed(String),
    /// The log of changes is closed by this failure, so that nothing can be confirmed.
    LogClosed(String),
    /// The log has not been synced for this time, which is longer than a busy disk takes.
    LogLate(Duration),
    /// The disk has too little free space for the log and a save.
    DiskLow,
    /// The process uses nearly all the memory that it may use. Both numbers are bytes.
    Memory {
        /// What it uses.
        used: u64,
        /// What it may use.
        limit: u64,
    },
}

impl Trouble {
    /// Returns what is wrong with a log.
    pub fn of_log(log: &StoreLog) -> Vec<Self> {
        let &StoreLog { sync_age: age, sync_interval: interval, is_low, .. } = log;
        let is_late = age > MAY_BE_LATE.max(interval.saturating_mul(MAY_BE_LATE_TIMES));
        let of_log = match &log.failure {
            Some(failure) => Some(Self::LogClosed(failure.clone())),
            None => is_late.then_some(Self::LogLate(age)),
        };
        of_log.into_iter().chain(is_low.then_some(Self::DiskLow)).collect()
    }

    /// Returns how bad it is. A server that refuses inserts helps nobody before somebody has looked at it.
    pub fn level(&self) -> Level {
        match self {
            Self::LogClosed(_) => Level::Alarm,
            Self::SaveFailed(_) | Self::LogLate(_) | Self::DiskLow | Self::Memory { .. } => Level::Warning,
        }
    }

    /// Returns the name of its kind in documents.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::SaveFailed(_) => "save_failed",
            Self::LogClosed(_) => "log_closed",
            Self::LogLate(_) => "log_late",
            Self::DiskLow => "disk_low",
            Self::Memory { .. } => "memory",
        }
    }
}

impl Display for Trouble {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::SaveFailed(error) => write!(formatter, "the latest save failed: {error}"),
            Self::LogClosed(error) => {
                let refused = "inserts, deletes, resets and changes of options are refused";
                write!(formatter, "the log is closed: {error}; {refused}")
            }
            Self::LogLate(age) => write!(formatter, "the log has not been synced for {}", time(*age)),
            Self::DiskLow => formatter.write_str("the disk has too little free space for the log and a checkpoint"),
            Self::Memory { used, limit } => {
                let gib = |bytes: u64| bytes as f64 / (1_u64 << 30) as f64;
                write!(formatter, "the process uses {:.1} of {:.1} GiB of memory", gib(*used), gib(*limit))
            }
        }
    }
}

/// The verdict on a server at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// Whether its tables make progress.
    pub progress: Progress,
    /// How good that is, with its troubles.
    pub level: Level,
    /// Time for which it has waited, stalled or been idle. `None` while it flows.
    pub lasted: Option<Duration>,
    /// The verdict in one line.
    pub line: String,
    /// The tables of which the line tells, by number, the one where the wait began first.
    pub tables: Vec<usize>,
    /// What else is wrong.
    pub troubles: Vec<Trouble>,
    /// The verdict on each table.
    pub of_tables: Vec<TableVerdict>,
}

/// The verdict on a table at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct TableVerdict {
    /// Whether it makes progress.
    pub progress: Progress,
    /// How good that is.
    pub level: Level,
    /// Time without progress while requests wait. `None` if it flows, or none waits.
    pub paused: Option<Duration>,
    /// Why it stands still, as a clause. Empty while it does not.
    pub cause: String,
}

/// What was seen of a server at its latest look.
#[derive(Debug, Clone, Default)]
pub struct Watched {
    /// The verdict.
    pub verdict: Verdict,
    /// The rates of each table, in their order.
    pub tables: Vec<TableRates>,
    /// The rates of each connection, by the number of its peer.
    pub peers: HashMap<u64, PeerRates>,
}

/// How fast a table is, and how long it may pause.
#[derive(Debug, Clone, Copy, Default)]
pub struct TableRates {
    /// Inserts a second of late.
    pub inserts_per_second: f64,
    /// Samples a second of late.
    pub samples_per_second: f64,
    /// Samples per insert of late. `None` without inserts.
    pub ratio: Option<f64>,
    /// The longest pause that somebody who is connected may make.
    pub stall_after: Duration,
}

/// How fast a peer is, and when it was heard of.
#[derive(Debug, Clone, Copy)]
pub struct PeerRates {
    /// Items that it inserts a second.
    pub inserts_per_second: f64,
    /// Items that it draws a second.
    pub samples_per_second: f64,
    /// Time at which it sent something last.
    pub last_seen: SystemTime,
}

/// The verdict on a server that has not been looked at yet.
impl Default for Verdict {
    fn default() -> Self {
        Self {
            progress: Progress::Idle,
            level: Level::Quiet,
            lasted: Some(Duration::ZERO),
            line: "Idle: the server has just started".into(),
            tables: Vec::new(),
            troubles: Vec::new(),
            of_tables: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::LogMode;

    const SECOND: Duration = Duration::from_secs(1);

    fn told(log: StoreLog) -> Vec<(&'static str, Level, String)> {
        Trouble::of_log(&log).iter().map(|trouble| (trouble.kind(), trouble.level(), trouble.to_string())).collect()
    }

    #[test]
    fn a_log_is_late_only_beyond_what_a_busy_disk_takes() {
        let of = |sync_age, sync_interval| told(StoreLog { sync_age, sync_interval, ..log() });
        assert_eq!(of(10 * SECOND, SECOND / 10), []);
        assert_eq!(of(30 * SECOND, 3 * SECOND), []);
        assert_eq!(of(Duration::MAX, Duration::MAX), []);
        let late = "the log has not been synced for 11 s";
        assert_eq!(of(11 * SECOND, SECOND), [("log_late", Level::Warning, late.into())]);
        assert_eq!(of(31 * SECOND, 3 * SECOND)[0].0, "log_late");
    }

    #[test]
    fn a_closed_log_is_an_alarm_whatever_else_is_wrong_with_it() {
        assert_eq!(told(log()), []);
        let failure = Some("cannot write: the disk is full".into());
        let closed = told(StoreLog { failure, is_low: true, sync_age: 99 * SECOND, ..log() });
        let refused = "inserts, deletes, resets and changes of options are refused";
        let sentence = format!("the log is closed: cannot write: the disk is full; {refused}");
        let low = "the disk has too little free space for the log and a checkpoint".into();
        assert_eq!(closed, [("log_closed", Level::Alarm, sentence), ("disk_low", Level::Warning, low)]);
    }

    fn log() -> StoreLog {
        let (sync_age, sync_interval) = (Duration::ZERO, SECOND);
        StoreLog { mode: LogMode::Process, size_bytes: 1, sync_age, sync_interval, is_low: false, failure: None }
    }
}
