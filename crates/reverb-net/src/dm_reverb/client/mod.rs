//! The client half of the protocol: a connection, and the calls over it.

mod connection;
mod draw_call;
mod tables;
mod unary;

pub use connection::Connection;
pub use draw_call::DrawCall;
pub use tables::Tables;
