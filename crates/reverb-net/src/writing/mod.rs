//! What a writer has not confirmed, and what its caller, its task and the protocols that send it share.

mod in_flight;
mod linger;
mod local;
mod outbox;
mod pending_limit;
mod shared;

pub use linger::Linger;
pub use local::Local;
pub use outbox::{Outbox, count_items, is_ready, name_counts, name_items};
pub use pending_limit::{DEFAULT_PENDING_BYTES, PendingLimit};
pub use shared::{Queued, SessionOptions, SessionState, SharedSession};
