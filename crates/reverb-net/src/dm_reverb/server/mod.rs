//! The server half of the protocol: the methods of the service, and its streams.

mod encoded_chunks;
mod held_chunks;
mod insert_stream;
mod sample_parts;
mod sample_stream;
mod service;

pub use service::service;
