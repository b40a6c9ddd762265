//! The protocol of dm-reverb 0.14, `deepmind.reverb.ReverbService`: its messages, its server half and its client half.
//!
//! Chunks and items inside of messages stay bytes here. `reverb_formats` reads and writes them.

mod checked;
pub(crate) mod client;
pub mod proto;
pub mod rpc;
pub(crate) mod server;
pub(crate) mod status;
