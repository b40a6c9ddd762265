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

pub use connection::Connection;
pub use draw_call::DrawCall;
pub use insert_stream::{InsertStream, MESSAGE_BYTES, MESSAGE_ITEMS, check_message_size};
