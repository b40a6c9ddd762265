//! The client half of the protocol: a connection, and the calls over it.

mod answering;
mod chunk_cache;
mod connection;
mod draw_call;
mod draws;
mod insert_call;
mod insert_stream;
mod insert_streams;
mod inserts;
mod left;
mod sample_reader;
mod sample_stream;
mod tables;
mod unary;
mod writer;

pub use connection::Connection;
pub use draw_call::DrawCall;
pub use writer::write;
