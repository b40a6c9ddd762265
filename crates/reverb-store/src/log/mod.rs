//! A log of what changes between checkpoints, so that what was confirmed is there after a crash.
//!
//! A log is a row of frames in segments ([`format`]), which lie beside the checkpoints. It knows nothing of tables: the
//! payload of a frame is what a [`Source`] has noted. An *epoch* begins with each checkpoint and each start; a checkpoint
//! names the [`Position`] at which its epoch begins. Nothing is ever appended to the segment of an earlier start, and no
//! segment is used twice.
//!
//! Each frame says through which frame the log was synced when it was written. That tells a torn tail, which a crash
//! leaves behind what was synced, from damage ([`recover`]).

mod commit;
mod evidence;
mod fence;
mod folder;
mod format;
mod options;
mod payload;
mod progress;
mod recovery;
mod segment;
mod shared;
mod upkeep;
mod walk;
mod writer;

pub use commit::{Log, LogStatus};
pub use fence::Fence;
pub use folder::{Position, oldest, remove_from, set_aside};
pub use format::{Id, boot_id};
pub use options::{Clock, LogOptions, SEGMENT_BYTES, Start};
pub use payload::{Payload, Source};
pub use recovery::{Recovered, recover, verify};
