//! The client half of the protocol: a connection, and the calls over it.

mod answering;
mod chunk_cache;
mod connection;
mod draw_call;
mod draws;
mod idle_streams;
mod insert_call;
mod insert_link;
mod inserts;
mod left;
mod responses;
mod sample_link;
mod sample_reader;
mod tables;
mod writer;

pub use connection::Connection;
pub use draw_call::DrawCall;
pub use writer::write;
