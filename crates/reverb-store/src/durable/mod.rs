//! What keeps the confirmed changes of a server's tables between checkpoints: the log as the journal of tables.
//!
//! - `journal.rs`: writes what tables note into the log, begins epochs for checkpoints, and heals a closed log.
//! - `restart.rs`: repeats a log on restored tables, or sets one aside that cannot be trusted.
//!
//! The order of locks: the turn to write of the log, then what this folder locks, then tables. Nobody waits for the log
//! with the lock of a table.

mod journal;
mod place;
mod restart;

pub use journal::LogJournal;
pub use place::LogPlace;
pub use restart::{Repeated, Target, check, clear, repeat};
