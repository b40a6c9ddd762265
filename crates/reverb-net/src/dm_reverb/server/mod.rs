//! The server half of the protocol: the methods of the service, and its streams.

mod insert_stream;
mod sample_stream;
mod service;

pub use service::service;
