//! The client half of the protocol: a connection, and the calls over it.

mod calls;
mod connection;
mod insert_link;
mod named_channel;
mod receipts;
mod sample_answers;
mod sample_link;
mod session;
mod write_link;

pub use connection::{BenchHold, Connection, GRACE, Greeting, timeout_ms};
pub use receipts::wait_for_streams;
pub use sample_link::DrawCall;
pub use session::Session;
pub use write_link::write;
