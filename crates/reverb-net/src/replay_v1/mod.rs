//! Our protocol, `reverb.replay.v1`: its messages, its server half and its client half.

mod checked;
pub(crate) mod client;
mod headers;
pub(crate) mod heartbeat;
pub mod proto;
pub mod rpc;
pub mod sample_response;
mod segment_pool;
pub(crate) mod server;
pub(crate) mod status;
mod version;
pub(crate) mod wire;
