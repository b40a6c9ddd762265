//! A table with a lock and two queues of waiting requests.
//!
//! The lock guards the table and the queues of waiting inserts and waiting draws. A thread that changes the table
//! serves the heads of both queues in order, then unlocks, then wakes the requests it served. So no draw overtakes
//! another, inserts of one client keep their order while clients take turns, and no wake-up is lost. A waiting request that is dropped leaves its queue, and its draws return to the
//! table. Removed data is dropped after unlocking.
//!
//! No call holds the lock for long. A call of many operations makes at most [`OPERATIONS_PER_LOCK`] of them under one
//! lock. Between two such turns others may take the lock, and see a part of the call. They leave the rest of the work
//! to the thread that was interrupted.
//!
//! [`OPERATIONS_PER_LOCK`]: requests::OPERATIONS_PER_LOCK
//!
//! From the bottom up: `ticket_queue.rs`, `turns.rs` and `requests.rs` are the queues and what waits in them, `journal.rs`
//! keeps the effects of the table, `counts.rs` and `room.rs` its part in the limiter of a cluster, `state.rs` what the lock
//! guards, and `handle.rs` the lock and the turns. Above it lie the ways in (`inserts.rs`), out (`draws.rs`) and within
//! (`edits.rs`), the effects for a log (`effects.rs`), the calls that wait (`call.rs`), and what can be seen of
//! a table (`status.rs`, `waits.rs`). Waits beside the queues are in `watch.rs`; draws of a cluster wait there (`stock.rs`).

mod attached;
mod call;
mod counts;
mod draws;
mod edits;
mod effects;
mod handle;
mod inserts;
mod inserts_by_client;
mod journal;
mod long_waits;
mod requests;
mod room;
mod state;
mod status;
mod stock;
mod ticket_queue;
mod turns;
mod wait_histogram;
mod waits;
mod watch;

pub use attached::RoomLink;
pub use call::{Call, Waiting};
pub use draws::{DrawRequest, MAX_DRAWN};
pub use effects::{EffectsBegin, TableBegin, begin_effects};
pub use handle::{TableHandle, snapshot_all};
pub use inserts::Arrival;
pub(crate) use inserts::Writer;
pub(crate) use journal::Keeping;
pub use journal::{Journal, Kept};
pub(crate) use requests::waits_for_disk;
pub use requests::{Operation, TIMED_OUT, WaitKind};
pub use room::{REPEAT, RoomDeliveries, RoomDelivery, RoomMessage};
pub use status::{TablePulse, TableStatus};
pub use stock::Stock;
pub(crate) use ticket_queue::Answer;
pub(crate) use turns::InsertTurn;
pub use waits::WaitingRequest;
