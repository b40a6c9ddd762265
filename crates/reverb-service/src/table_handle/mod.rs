//! A table with a lock and two queues of waiting requests.
//!
//! The lock guards the table and the queues of waiting inserts and waiting draws. A thread that changes the table
//! serves the heads of both queues in order, then unlocks, then wakes the requests it served. So no request overtakes
//! another, and no wake-up is lost. A waiting request that is dropped leaves its queue, and its draws return to the
//! table. Removed data is dropped after unlocking.
//!
//! No call holds the lock for long. A call of many operations makes at most [`OPERATIONS_PER_LOCK`] of them under one
//! lock. Between two such turns others may take the lock, and see a part of the call. They leave the rest of the work
//! to the thread that was interrupted.
//!
//! [`OPERATIONS_PER_LOCK`]: queue::OPERATIONS_PER_LOCK

mod arrival;
mod configure;
mod handle;
mod notices;
mod operation;
mod pulse;
mod queue;
mod requests;
mod status;
mod ticket_queue;
mod wait_histogram;
mod waiting;
mod waits;

pub use arrival::Arrival;
pub use handle::{TableHandle, snapshot_all};
pub use operation::Operation;
pub use pulse::TablePulse;
pub use requests::{DrawRequest, MAX_DRAWN};
pub use status::{TableStatus, WaitTimes};
pub use wait_histogram::{WAIT_BOUNDS, WaitHistogram};
pub use waiting::{Call, Waiting};
pub use waits::WaitingRequest;
