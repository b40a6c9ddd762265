//! The server half of the protocol: the methods of the service, and its streams.

mod client_names;
mod encoded_chunks;
mod held_chunks;
mod insert_stream;
mod sample_parts;
mod sample_stream;
mod service;

pub use crate::dm_reverb::rpc::reverb_service_server::SERVICE_NAME as NAME;
pub use service::service;
