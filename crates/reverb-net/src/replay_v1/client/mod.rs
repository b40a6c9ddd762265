//! The client half of the protocol: a connection, and the calls over it.

mod connection;
mod insert_link;
mod sample_answers;
mod sample_link;

pub use connection::Connection;
pub use sample_link::DrawCall;
