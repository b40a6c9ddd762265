//! The session of a writer: sends items in order, has them confirmed, and sends them again after a lost connection.
//!
//! The calling thread uses [`Session`], which inserts items into tables of the same process itself. Over a network, a
//! task (`worker.rs`) sends them. The task also closes chunks that an item has waited for long enough, and reconnects
//! after the server was lost. A writer of a cluster has a task for each shard that it has items for
//! (`shard_streams.rs`).

mod drawn;
mod open_sessions;
mod session;
mod shard_streams;
mod worker;

pub use crate::writing::SessionOptions;
pub use drawn::note_drawn;
pub use open_sessions::{Unconfirmed, unconfirmed};
pub use session::{Discarded, Session};
