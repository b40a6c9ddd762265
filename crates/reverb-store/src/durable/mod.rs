//! What keeps the confirmed changes of a server's tables between checkpoints: the log as the journal of tables.
//!
//! - `committer.rs`: the threads that commit for tasks.
//! - `journal.rs`: writes what tables note into the log, begins epochs for checkpoints, and heals a closed log.
//! - `restart.rs`: repeats a log on restored tables, or sets one aside that cannot be trusted.
//! - `place.rs`: where the log is.
//!
//! The order of locks: the repair of a closed log, the turn to write of a log, its notes, tables. Nobody waits for a log
//! with the lock of a table.

mod committer;
mod journal;
mod place;
mod restart;

pub use journal::LogJournal;
pub use place::LogPlace;
pub use restart::{LeftOver, Repeated, Target, check, left_over, plan, repeat};
