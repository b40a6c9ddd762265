//! A table with a lock and two queues of waiting requests.
//!
//! The lock guards the table and the queues of waiting inserts and waiting draws. A thread that changes the table
//! serves the heads of both queues in order, then unlocks, then wakes the requests it served. So no request overtakes
//! another, and no wake-up is lost. A waiting request that is dropped leaves its queue, and its draws return to the
//! table. Removed data is dropped after unlocking.

mod arrival;
mod handle;
mod notices;
mod queue;
mod requests;
mod status;
mod waiting;

pub use arrival::Arrival;
pub use handle::{TableHandle, snapshot_all};
pub use requests::DrawRequest;
pub use status::{TableStatus, WaitTimes};
pub use waiting::{Call, Waiting};
