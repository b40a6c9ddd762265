//! The client half of the protocol: a connection, and the calls over it.

mod chunk_cache;
mod connection;
mod draw_call;
mod draws;
mod sample_reader;
mod sample_stream;
mod tables;
mod unary;

pub use connection::Connection;
pub use draw_call::DrawCall;
