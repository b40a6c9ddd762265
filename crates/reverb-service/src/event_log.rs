//! The latest log lines of this process, for the live page and its documents.

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

// limit (HTTP, metrics and logs): log lines that a process keeps | {} of at most {MAX_CHARACTERS} characters | the
// oldest are dropped; the rest of a line is cut off
/// Maximum number of lines that are kept.
const MAX_LINES: usize = 500;
/// Maximum time to wait for the lock, which is held for microseconds.
const PATIENCE: Duration = Duration::from_millis(100);
/// Maximum number of characters of a line. The rest is cut off.
const MAX_CHARACTERS: usize = 2000;

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

/// The number of the latest line, and the lines that are kept.
type Lines = (u64, VecDeque<LogLine>);

static LINES: Mutex<Lines> = Mutex::new((0, VecDeque::new()));

/// Locks the lines. `None` in a child that was forked while a thread held the lock, which nobody will release.
fn locked() -> Option<MutexGuard<'static, Lines>> {
    LINES.try_lock_for(PATIENCE)
}

/// Keeps a line. The oldest one is dropped if there are too many.
pub fn keep(level: LogLevel, message: &str) {
    let message: String = message.chars().take(MAX_CHARACTERS).collect();
    let Some(mut kept) = locked() else { return };
    let (last, lines) = &mut *kept;
    *last += 1;
    if lines.len() == MAX_LINES {
        lines.pop_front();
    }
    lines.push_back(LogLine { number: *last, at: SystemTime::now(), level, message });
}

/// Returns the number of the latest line; 0 before the first.
pub fn last_number() -> u64 {
    locked().map_or(0, |kept| kept.0)
}

/// Returns the kept lines with numbers above `since`, oldest first. A reader that is ahead has read the lines of another
/// process, and gets all.
pub fn lines_since(since: u64) -> Vec<LogLine> {
    let Some(kept) = locked() else { return Vec::new() };
    let (last, lines) = &*kept;
    let known = if since > *last { 0 } else { since };
    lines.iter().filter(|line| line.number > known).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_lines_are_kept_and_long_ones_are_cut() {
        (0..MAX_LINES + 20).for_each(|number| keep(LogLevel::Info, &format!("line {number}")));
        keep(LogLevel::Warning, &"ü".repeat(MAX_CHARACTERS + 1));
        let lines = lines_since(0);
        assert_eq!((lines.len(), lines[0].message.as_str()), (MAX_LINES, "line 21"));
        let last = last_number();
        assert_eq!(lines[MAX_LINES - 1].number, last);
        assert_eq!(lines[MAX_LINES - 1].message.chars().count(), MAX_CHARACTERS);
        assert_eq!(lines_since(last - 2).len(), 2);
        assert_eq!((lines_since(last).len(), lines_since(last + 1).len()), (0, MAX_LINES));
    }
}
