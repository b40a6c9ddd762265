//! Checkpoints: the state of all tables in a folder, from which a server continues after a stop or a crash.
//!
//! The files have the format of the reference, so each implementation can load checkpoints of the other. Data for which
//! that format has no place is stored in an additional file, the sidecar.
//!
//! - `checkpointer.rs`: the checkpoints of one server: opens, saves, restores and removes them.
//! - `save.rs`: writes a checkpoint; `record_file.rs`: writes one file of it on a separate thread.
//! - `load.rs`: reads a checkpoint into new tables; `record_stream.rs`: reads one file of it on several threads.
//! - `restore.rs`: chooses the checkpoint to load and replaces the tables of a server, or says what that would do.
//! - `logged.rs`: the same for a server with a log of the changes between checkpoints.
//! - `definition.rs`: which options a restored table has.
//! - `reader.rs`: lists, verifies and reads checkpoints without a server.
//! - `status.rs`: the progress and results of saves and loads.
//! - `folder.rs`: names, order and removal of checkpoints; `sidecar.rs`: the additional file.
//!
//! A save takes a snapshot of all tables under all their locks, which copies pointers, and writes it without a lock. It
//! writes to a folder with a temporary name, syncs it, reads it back, and renames it. Only then are older checkpoints
//! removed.

mod checkpointer;
mod definition;
mod folder;
mod load;
mod logged;
mod options;
mod progress;
mod reader;
mod record_file;
mod record_stream;
mod restore;
mod save;
mod sidecar;
mod status;

pub use checkpointer::Checkpointer;
pub use definition::OptionTexts;
pub use load::SizeLimit;
pub use logged::plan_log;
pub use options::{CheckpointOptions, Definitions, Durability, LoadOptions};
pub use reader::{CheckpointBatch, CheckpointReader, Summary, list, verify, verify_log};
pub use restore::{Plan, PlannedTable};
