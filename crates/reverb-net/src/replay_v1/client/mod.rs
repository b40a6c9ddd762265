//! The client half of the protocol: a connection, and the calls over it.

mod calls;
mod connection;
mod draw_call;
mod insert_link;
mod named_channel;
mod race_call;
mod receipts;
mod sample_answers;
mod sample_link;
mod segments;
mod session;
mod shard_priorities;
mod staging;
mod stock_call;
mod write_link;

pub use connection::{BenchHold, Connection, GRACE, Greeting, timeout_ms};
pub use draw_call::DrawCall;
pub use race_call::{RaceCall, RaceRequest};
pub use receipts::wait_for_streams;
pub use session::Session;
pub use stock_call::{StockCall, StockRequest};
pub use write_link::write;
