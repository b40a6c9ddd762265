//! The latest log lines of this process, for those who watch it.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::SystemTime;

/// Maximum number of lines that are kept.
const MAX_LINES: usize = 500;

/// The importance of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// Something expected has happened.
    Info,
    /// Something needs attention.
    Warning,
    /// Something has failed.
    Error,
}

/// A log line.
#[derive(Debug, Clone)]
pub struct LogLine {
    /// Number of the line. The first line of the process has number 1.
    pub number: u64,
    /// Time at which it was logged.
    pub at: SystemTime,
    /// Its importance.
    pub level: LogLevel,
    /// Its text.
    pub message: String,
}

static LINES: Mutex<(u64, VecDeque<LogLine>)> = Mutex::new((0, VecDeque::new()));

/// Keeps a line. The oldest one is dropped if there are too many.
pub fn keep(level: LogLevel, message: String) {
    let (last, lines) = &mut *LINES.lock();
    *last += 1;
    if lines.len() == MAX_LINES {
        lines.pop_front();
    }
    lines.push_back(LogLine { number: *last, at: SystemTime::now(), level, message });
}

/// Returns the number of the latest line; 0 before the first.
pub fn last_number() -> u64 {
    LINES.lock().0
}

/// Returns the kept lines with numbers above `since`, oldest first.
pub fn lines_since(since: u64) -> Vec<LogLine> {
    LINES.lock().1.iter().filter(|line| line.number > since).cloned().collect()
}
