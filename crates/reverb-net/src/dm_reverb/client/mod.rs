//! The client half of the protocol: a connection, and the calls over it.

mod connection;
mod draw_call;

pub use connection::Connection;
pub use draw_call::DrawCall;
