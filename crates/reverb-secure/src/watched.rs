//! Files that are read again when they change. Those that are wrong never replace what was read before.

use crate::files::Mark;
use parking_lot::Mutex;
use reverb_core::Result;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What was last seen of some files.
#[derive(Debug)]
pub struct Watched {
    paths: Vec<PathBuf>,
    seen: Mutex<Seen>,
    failures: AtomicU64,
}

#[derive(Debug)]
struct Seen {
    marks: Vec<Mark>,
    /// Whether they were refused, so that the ones before are in use.
    is_refused: bool,
}

/// What came of a look at files.
#[derive(Debug)]
pub enum Look<T> {
    /// They are as they were.
    Same,
    /// They were read.
    Read(T),
    /// They are wrong, and have not been so for long: the error is to be told.
    Refused(reverb_core::Error),
}

impl Watched {
    /// Looks at the files for the first time, before they are read.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        let seen = Mutex::new(Seen { marks: marks(&paths), is_refused: false });
        Self { paths, seen, failures: AtomicU64::new(0) }
    }

    /// Reads the files if they have changed, or were wrong at the last look.
    pub fn look<T>(&self, read: impl FnOnce() -> Result<T>) -> Look<T> {
        let mut seen = self.seen.lock();
        let marks = marks(&self.paths);
        let is_new = marks != seen.marks;
        if !is_new && !seen.is_refused {
            return Look::Same;
        }
        let read = read();
        *seen = Seen { marks, is_refused: read.is_err() };
        match read {
            Ok(read) => Look::Read(read),
            Err(error) if is_new => {
                self.failures.fetch_add(1, Relaxed);
                Look::Refused(error)
            }
            Err(_) => Look::Same,
        }
    }

    /// Returns how often changed files were refused.
    pub fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }
}

fn marks(paths: &[PathBuf]) -> Vec<Mark> {
    paths.iter().map(|path| Mark::of(path)).collect()
}
