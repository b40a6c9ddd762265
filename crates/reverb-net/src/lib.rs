//! Servers and clients of the replay service, and the protocol between them.
//!
//! [`server`] serves on TCP and on a Unix socket. [`client`] finds the shortest road to a server. Each protocol is a
//! folder with a server half and a client half that do not depend on each other: [`replay_v1`] is ours,
//! [`dm_reverb`] is that of dm-reverb 0.14.

pub mod client;
mod descriptors;
pub mod dm_reverb;
mod grpc;
pub mod replay_v1;
pub mod server;
#[cfg(test)]
#[path = "../../reverb-service/tests/common/mod.rs"]
mod tables;
pub mod transport;
mod writing;

pub use descriptors::DESCRIPTORS;
pub use replay_v1::wire::status_bytes;
pub use server::METHODS;
pub use transport::address::{Address, Endpoint};
